"""Single flipped bits in the files of a store are logged, and never read as another message."""

from __future__ import annotations

import struct

import pytest

from orbitmq.broker.messaging.stored import record_of
from orbitmq.client.core.damaged import messages_of
from orbitmq.message.model import MessageQueue
from orbitmq.store import MessageFilter, MessageStore, NewMessage, StoreConfig
from orbitmq.store.queues import mending
from orbitmq.testing.machine.memory_files import MemoryFiles
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime
from orbitmq.wording import counted

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

ROOT = "/store"
QUEUE_FILE = f"{ROOT}/consumequeue/a/0/{0:020d}"
LOG_FILE = f"{ROOT}/commitlog/{0:020d}"
COUNT = 50
MIDDLE = 20  # the offset whose entry or record is damaged
# All records have one size, so that a changed log offset is most often that of another record.
RECORD_BYTES = 256


async def opened(runtime: SimulatedRuntime) -> MessageStore:
    config = StoreConfig(root=ROOT, commit_log_file_bytes=1 << 16, consume_queue_file_bytes=2000, index=False)
    store = MessageStore(runtime, config)
    await store.start()
    for topic in ("a", "b"):
        store.set_topic(topic, read_queues=1, write_queues=1, perm=6)
    return store


async def filled(runtime: SimulatedRuntime) -> None:
    store = await opened(runtime)
    size = 0
    for number in range(COUNT):
        for topic in ("a", "b"):
            body = b"%s%04d" % (topic.encode(), number)
            result = store.put(NewMessage(topic, 0, body.ljust(RECORD_BYTES - 92), b""))
            await store.stored(result.end_offset)
            size += 1
    assert store.end == size * RECORD_BYTES
    await store.stop()


def flip(files: MemoryFiles, path: str, bit: int) -> None:
    data = bytearray(files.read_bytes(path))
    data[bit // 8] ^= 1 << bit % 8
    files.write_atomic(path, bytes(data))


def read(store: MessageStore) -> dict[int, bytes]:
    """The messages of topic a that a consumer gets: bodies by offset, without damaged records."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset < store.max_offset("a", 0):
        result = store.get("a", 0, offset, 8)
        for message in messages_of(MessageQueue("a", "broker-a", 0), result.body):
            found[message.queue_offset] = message.body
        assert result.next_offset > offset
        offset = result.next_offset
    return found


@pytest.mark.behaviour("ST-22")
@pytest.mark.parametrize("bit", range(96))
async def test_a_bit_of_a_queue_entry(bit: int, caplog: pytest.LogCaptureFixture) -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    flip(runtime.files, QUEUE_FILE, MIDDLE * 160 + bit)
    store = await opened(runtime)
    for _ in range(2):
        found = read(store)
        assert all(body.startswith(b"a%04d" % offset) for offset, body in found.items())
        by_client = [line for line in caplog.messages if "which is of topic b" in line]
        assert set(range(COUNT)) - set(found) == ({MIDDLE} if by_client else set())
    by_store = [line for line in caplog.messages if f"{QUEUE_FILE} at {MIDDLE * 20}" in line]
    assert len(by_store) == (0 if by_client else 1)
    await store.stop()


def empty(files: MemoryFiles, path: str, first: int, count: int) -> None:
    data = bytearray(files.read_bytes(path))
    data[20 * first : 20 * (first + count)] = bytes(20 * count)
    files.write_atomic(path, bytes(data))


@pytest.mark.behaviour("ST-25")
@pytest.mark.parametrize(("first", "count"), [(MIDDLE, 1), (1, COUNT - 2), (COUNT - 9, 8)])
async def test_a_hole_in_a_queue_file_is_filled_from_the_log(
    first: int, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    whole = runtime.files.read_bytes(QUEUE_FILE)
    empty(runtime.files, QUEUE_FILE, first, count)
    store = await opened(runtime)
    assert set(read(store)) == set(range(COUNT))
    assert counted(count, "entry") in caplog.text
    await store.stop()
    assert runtime.files.read_bytes(QUEUE_FILE) == whole


@pytest.mark.behaviour("ST-25")
async def test_who_filters_by_tags_does_not_pass_over_a_hole() -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    empty(runtime.files, QUEUE_FILE, MIDDLE, 3)
    store = await opened(runtime)
    found = store.get("a", 0, MIDDLE - 5, 32, filter=MessageFilter([77]))
    assert (found.count, found.next_offset) == (0, COUNT)
    assert store.entry("a", 0, MIDDLE + 1) == (place_of(runtime.files) + 2 * RECORD_BYTES, RECORD_BYTES, 0)
    await store.stop()


@pytest.mark.behaviour("ST-25")
async def test_a_hole_whose_messages_lie_far_apart_is_filled_by_many_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mending, "PIECE_RECORDS", 3)
    runtime = simulated_runtime(1)
    await filled(runtime)
    empty(runtime.files, QUEUE_FILE, MIDDLE, 20)
    store = await opened(runtime)
    offset, turns = MIDDLE - 2, 0
    while offset < COUNT:
        found = store.get("a", 0, offset, 1)
        assert found.next_offset == offset + found.count
        offset, turns = found.next_offset, turns + 1
        assert turns < 100
    assert turns > COUNT - MIDDLE + 10
    assert set(read(store)) == set(range(COUNT))
    await store.stop()


@pytest.mark.behaviour("ST-25")
async def test_a_damaged_record_is_searched_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    flip(runtime.files, LOG_FILE, 8 * (place_of(runtime.files) + 20) + 3)
    store = await opened(runtime)
    for _ in range(2):
        assert set(range(COUNT)) - set(read(store)) == {MIDDLE}
    assert len([line for line in caplog.messages if "left out" in line]) == 1
    await store.stop()


def place_of(files: MemoryFiles) -> int:
    return int(struct.unpack_from(">q", files.read_bytes(QUEUE_FILE), MIDDLE * 20)[0])


@pytest.mark.behaviour("ST-22")
@pytest.mark.parametrize(
    "byte", [0, 1, 2, 3, 4, 7, 8, 11, *range(20, 36), 36, 39, 84, 87, 88, 90, 200, 252, 254]
)
async def test_a_bit_of_a_record(byte: int) -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    flip(runtime.files, LOG_FILE, 8 * (place_of(runtime.files) + byte) + byte % 7)
    store = await opened(runtime)
    found = read(store)
    assert all(body.startswith(b"a%04d" % offset) for offset, body in found.items())
    assert set(range(COUNT)) - set(found) <= {MIDDLE}
    await store.stop()


@pytest.mark.behaviour("ST-22")
async def test_a_damaged_body_is_not_stored_again(caplog: pytest.LogCaptureFixture) -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    place = place_of(runtime.files)
    flip(runtime.files, LOG_FILE, 8 * (place + 100))
    store = await opened(runtime)
    assert store.record_at(place) is None
    assert store.record_at(place) is None
    assert store.record_at(place, damaged=True) is not None
    assert store.record_at(place + RECORD_BYTES) is not None
    told = [line for line in caplog.messages if f"{LOG_FILE}: the body of the record at {place}" in line]
    assert len(told) == 1
    await store.stop()


@pytest.mark.behaviour("ST-22")
async def test_an_entry_that_leads_to_another_message_stores_none_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = simulated_runtime(1)
    await filled(runtime)
    # The flipped bit turns the log offset into that of the neighbouring record of topic b.
    flip(runtime.files, QUEUE_FILE, MIDDLE * 160 + 8 * 6)
    store = await opened(runtime)
    assert record_of(store, "a", 0, MIDDLE) is None
    assert "leads from offset 20 to the record of another message" in caplog.text
    record = record_of(store, "a", 0, MIDDLE + 1)
    assert record is not None
    assert record.queue_offset == MIDDLE + 1
    await store.stop()
