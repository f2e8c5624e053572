"""Consume queues that are rebuilt from the log: ends that no record shows, and kills meanwhile."""

from __future__ import annotations

import asyncio
import errno
import struct
from typing import Any

import pytest

from orbitmq.message.record import decode_record
from orbitmq.message.tags import tags_code
from orbitmq.store import MessageFilter, MessageStore, NewMessage, StoreConfig
from orbitmq.store.recovery.opening import Opening
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

ROOT = "/store"
QUEUES = f"{ROOT}/consumequeue"
HOUR_MS = 3_600_000


async def opened(runtime: SimulatedRuntime, *topics: str, **changes: Any) -> MessageStore:
    values: dict[str, Any] = {
        "commit_log_file_bytes": 16 * 1024,
        "consume_queue_file_bytes": 200,
        "batch_bytes": 8 * 1024,
        "tail_entries": 8,
        "index": False,
        "file_reserved_ms": HOUR_MS,
        "clean_interval_ms": 10**9,
    }
    store = MessageStore(runtime, StoreConfig(root=ROOT, **{**values, **changes}))
    await store.start()
    for topic in topics:
        store.set_topic(topic, read_queues=2, write_queues=2, perm=6)
    return store


async def fill(store: MessageStore, topic: str, count: int) -> None:
    for number in range(count):
        result = store.put(NewMessage(topic, number % 2, b"x" * 900, b""))
        await store.stored(result.end_offset)


def ends(store: MessageStore, topic: str) -> list[tuple[int, int]]:
    return [(store.min_offset(topic, queue), store.max_offset(topic, queue)) for queue in range(2)]


def readable(store: MessageStore, topic: str) -> list[int]:
    """The number of messages of each queue that can be read one after the other."""
    counts = []
    for queue in range(2):
        offset = store.min_offset(topic, queue)
        count = 0
        while found := store.get(topic, queue, offset, 1).count:
            offset, count = offset + 1, count + found
        counts.append(count)
    return counts


async def kill(store: MessageStore, runtime: SimulatedRuntime, keep: Keep | None) -> None:
    """End the process only if ``keep`` is ``None``, else the machine."""
    mine = [task for task in asyncio.all_tasks() if task.get_name().startswith("store-")]
    for task in mine:
        task.cancel()
    await asyncio.gather(*mine, return_exceptions=True)
    if keep is None:
        runtime.files.end_process()
    else:
        runtime.files.crash(keep=keep)


@pytest.mark.behaviour("ST-01")
@pytest.mark.parametrize("keep", [None, Keep.NOTHING, Keep.ANY])
async def test_a_kill_before_the_first_checkpoint_leaves_no_part_of_the_queues(keep: Keep | None) -> None:
    runtime = simulated_runtime(3)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 60)
    await fill(store, "b", 2)
    await store.stop()
    runtime.files.remove_tree(QUEUES)
    for _ in range(2):
        store = await opened(runtime, "a", "b", checkpoint_interval_ms=10**9)
        assert readable(store, "a") == [30, 30]
        await kill(store, runtime, keep)
    store = await opened(runtime, "a", "b")
    assert ends(store, "a") == [(0, 30), (0, 30)]
    assert readable(store, "a") == [30, 30]
    await fill(store, "a", 2)
    assert readable(store, "a") == [31, 31]
    await store.stop()
    # Later starts read the positions again, and no other file.
    store = await opened(runtime, "a", "b")
    assert store.recovered is not None
    assert not store.recovered.rebuilt
    assert readable(store, "a") == [31, 31]
    await store.stop()


@pytest.mark.behaviour("ST-01")
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("writes", [0, 1, 4, 7])
async def test_a_rebuild_that_is_broken_off_begins_again(writes: int, clean: bool) -> None:
    runtime = simulated_runtime(3)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 60)
    await fill(store, "b", 60)
    if clean:
        await store.stop()
    else:
        await asyncio.sleep(11)
        await kill(store, runtime, Keep.NOTHING)
    runtime.files.remove_tree(QUEUES)
    runtime.files.fail("pwrite", "consumequeue", error=errno.EIO, skip=writes, times=-1)
    with pytest.raises(OSError, match="injected"):
        await opened(runtime, "a", "b")
    runtime.files.heal()
    runtime.files.crash(keep=Keep.ANY)
    store = await opened(runtime, "a", "b")
    assert ends(store, "a") == ends(store, "b") == [(0, 30), (0, 30)]
    assert readable(store, "a") == readable(store, "b") == [30, 30]
    await store.stop()


@pytest.mark.behaviour("ST-02")
@pytest.mark.parametrize("kills", [0, 2])
async def test_expired_queues_go_on_where_they_ended(kills: int) -> None:
    runtime = simulated_runtime(3)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 26)
    await fill(store, "b", 40)
    await asyncio.sleep(2 * HOUR_MS / 1000)
    await fill(store, "b", 20)
    store.clean()
    assert ends(store, "a") == [(13, 13), (13, 13)]
    await store.stop()
    runtime.files.remove_tree(QUEUES)
    for _ in range(kills):
        store = await opened(runtime, "a", "b", checkpoint_interval_ms=10**9)
        await kill(store, runtime, Keep.NOTHING)
    for _ in range(2):
        store = await opened(runtime, "a", "b")
        assert ends(store, "a") == [(13, 13), (13, 13)]
        await asyncio.sleep(6)
        await kill(store, runtime, Keep.NOTHING)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 2)
    assert ends(store, "a") == [(13, 14), (13, 14)]
    assert readable(store, "a") == [1, 1]
    await store.stop()


@pytest.mark.behaviour("ST-15")
async def test_the_times_of_a_java_brokers_checkpoint_are_a_little_ahead() -> None:
    runtime = simulated_runtime(3)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 30)
    await asyncio.sleep(5)
    await fill(store, "a", 12)
    await fill(store, "b", 2)
    await fill(store, "a", 8)
    record = store.record_at(3 * 16 * 1024)
    assert record is not None
    border = decode_record(record).store_timestamp
    await store.stop()
    # This is the state after a power loss: entries of b are not on the device, and the checkpoint counts a's
    # next ones.
    runtime.files.remove_tree(f"{QUEUES}/b")
    times = struct.pack(">5q", border, border, 0, 0, 0)
    runtime.files.write_atomic(f"{ROOT}/checkpoint", times.ljust(4096, b"\0"))
    runtime.files.write_atomic(f"{ROOT}/abort", b"")
    store = await opened(runtime, "a", "b")
    assert readable(store, "a") == [25, 25]
    assert readable(store, "b") == [1, 1]
    await store.stop()


@pytest.mark.behaviour("ST-11")
async def test_tags_that_a_java_broker_keeps_in_files_of_their_own_are_read_from_the_log() -> None:
    runtime = simulated_runtime(3)
    store = await opened(runtime, "a")
    for number in range(20):
        result = store.put(NewMessage("a", 0, b"x", b"TAGS\x01t%d\x02" % (number % 2), tags_code=number % 2))
        await store.stored(result.end_offset)
    await store.stop()
    # With enableConsumeQueueExt=true an entry has an address in consumequeue_ext instead of the tag's hash.
    for name in runtime.files.list_dir(f"{QUEUES}/a/0"):
        segment = runtime.files.open_segment(f"{QUEUES}/a/0/{name}", 200)
        for place in range(10):
            segment.pwrite((-(1 << 63) + place).to_bytes(8, "big", signed=True), 20 * place + 12)
        segment.close()
    runtime.files.make_dirs(f"{ROOT}/consumequeue_ext/a/0")
    checkpoint = bytearray(runtime.files.read_bytes(f"{ROOT}/checkpoint"))
    struct.pack_into(">q", checkpoint, 32, 4711)
    runtime.files.write_atomic(f"{ROOT}/checkpoint", bytes(checkpoint))
    for rebuilt in (True, False):
        store = await opened(runtime, "a")
        assert store.recovered is not None
        assert store.recovered.rebuilt is rebuilt
        found = store.get("a", 0, 0, 32, filter=MessageFilter([tags_code("t1")]))
        assert (found.count, found.next_offset) == (5, 10)  # all of one file
        await store.stop()


@pytest.mark.behaviour("MX-02")
async def test_a_start_tells_how_much_of_the_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = simulated_runtime(3)
    store = await opened(runtime, "a")
    await fill(store, "a", 60)
    await store.stop()
    runtime.files.remove_tree(QUEUES)
    again = MessageStore(runtime, store.config)
    seen: list[int | None] = [again.percent_read]
    note = Opening._note_read

    def noted(opening: Opening, percent: int) -> None:
        note(opening, percent)
        seen.append(again.percent_read)

    monkeypatch.setattr(Opening, "_note_read", noted)
    await again.start()
    assert seen[:2] == [None, 0]
    told = [percent for percent in seen if percent is not None]
    # A file of the log holds 16 of the 60 messages.
    assert len(set(told)) >= 4
    assert told == sorted(told)
    assert 75 <= told[-1] <= 100
    assert again.percent_read is None
    await again.stop()
