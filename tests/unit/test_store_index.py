"""The message index: bytes of its files, searches, restarts, crashes."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from orbitmq.message import sysflag
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record, blank_record, encode_record
from orbitmq.message.tags import java_hash
from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.store.index import index
from orbitmq.store.index import layout as scan
from orbitmq.store.index.file import IndexFile
from orbitmq.store.index.scan import IndexBuilder, key_hash, select
from orbitmq.store.log import log_feed
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime

SLOTS, ENTRIES = 10, 100
HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")


def record(at: int, keys: str = "", unique: str = "", time_ms: int = 5000, **values: Any) -> bytes:
    properties = {"a": "b", "UNIQ_KEY": unique, "KEYS": keys, "z": "KEYS"}
    block = encode_properties({name: value for name, value in properties.items() if value})
    return encode_record(
        Record(
            **{
                "topic": "T",
                "body": b"body",
                "properties": block,
                "physical_offset": at,
                "store_timestamp": time_ms,
                "born_host": ("127.0.0.1", 1),
                "store_host": ("127.0.0.1", 2),
                **values,
            }
        )
    )


def scanned(builder: IndexBuilder, log: bytes, file: bytes | None = None) -> tuple[int, bytearray]:
    """Scan a log from its start; returns the status and the contents of the file that would be written."""
    content = bytearray(file or bytes(scan.HEADER_BYTES + SLOTS * 4 + ENTRIES * 20))
    first = builder.first_entry
    status = builder.scan(log, 0, len(log), bytes(content))
    count = builder.next_entry - first
    at = scan.HEADER_BYTES + SLOTS * 4 + first * 20
    content[at : at + count * 20] = builder.entries[: count * 20]
    for place, piece in builder.take_changed_slots():
        content[scan.HEADER_BYTES + place : scan.HEADER_BYTES + place + len(piece)] = piece
    return status, content


def found(file: bytes, next_entry: int, key: bytes, begin: int, end: int, limit: int) -> list[int]:
    h = key_hash(key)
    (entry,) = struct.unpack_from(">i", file, 40 + h % SLOTS * 4)
    return select(file, SLOTS, entry, next_entry, h, begin, end, limit)


def slot_of(key: str) -> int:
    return abs(java_hash(key)) % SLOTS


def test_entries_and_slots_lie_as_rocketmq_lays_them() -> None:
    log = record(0, "k1 k2", "U1", 5000)
    second = record(len(log), "k1", "", 8500)
    builder = IndexBuilder(SLOTS, ENTRIES, 50)
    status, file = scanned(builder, log + second)
    assert status == scan.DONE
    assert builder.position == len(log + second)
    slots = struct.unpack_from(f">{SLOTS}i", file, 40)
    entries = [ENTRY.unpack_from(file, 40 + 4 * SLOTS + 20 * number) for number in range(5)]
    assert entries[0] == (0, 0, 0, 0)
    previous = dict.fromkeys(range(SLOTS), 0)
    expected = []
    for number, (key, offset, seconds) in enumerate(
        [("T#U1", 0, 0), ("T#k1", 0, 0), ("T#k2", 0, 0), ("T#k1", len(log), 3)], start=1
    ):
        expected.append((abs(java_hash(key)), offset, seconds, previous[slot_of(key)]))
        previous[slot_of(key)] = number
    assert entries[1:] == expected
    assert list(slots) == [previous[slot] for slot in range(SLOTS)]
    assert (builder.begin_time, builder.end_time) == (5000, 8500)
    assert (builder.begin_offset, builder.end_offset) == (0, len(log))
    assert (builder.next_entry, builder.used_slots) == (5, len([slot for slot in slots if slot]))


@pytest.mark.parametrize(
    "key", ["", "a", "polygenelubricants", "ключ", "鍵", "🔑x", "é" * 40, "abcdé", "abcd鍵efghi🔑jklm"]
)
def test_hashes_are_javas(key: str) -> None:
    data = key.encode()
    builder = IndexBuilder(SLOTS, ENTRIES, 50)
    _, file = scanned(builder, record(0, key or "x"))
    stored = ENTRY.unpack_from(file, 40 + 4 * SLOTS + 20)[0]
    value = abs(java_hash(f"T#{key or 'x'}"))
    assert stored == (0 if value == 1 << 31 else value)
    assert found(bytes(file), 2, b"T#" + (data or b"x"), 0, 9, 9) == [0]


def test_what_is_not_indexed() -> None:
    rollback = record(0, "k", "U", sys_flag=sysflag.TRANSACTION_ROLLBACK)
    prepared = record(len(rollback), "k", sys_flag=sysflag.TRANSACTION_PREPARED)
    none = record(len(rollback + prepared))
    builder = IndexBuilder(SLOTS, ENTRIES, 50)
    status, _ = scanned(builder, rollback + prepared + none + blank_record(64) + bytes(56))
    assert (status, builder.next_entry, builder.end_offset) == (scan.DONE, 2, len(rollback))
    assert builder.position == len(rollback + prepared + none) + 64


def test_a_record_with_ipv6_hosts_and_a_long_topic() -> None:
    log = record(0, "k", topic="t" * 200, born_host=("::1", 1), store_host=("::2", 2))
    builder = IndexBuilder(SLOTS, ENTRIES, 50)
    _, file = scanned(builder, log)
    assert found(bytes(file), 2, b"t" * 200 + b"#k", 0, 0, 9) == [0]


def test_a_full_file_takes_no_part_of_a_record() -> None:
    builder = IndexBuilder(SLOTS, 4, 50)
    first = record(0, "a b")
    status, _ = scanned(builder, first + record(len(first), "c d"))
    assert (status, builder.position, builder.next_entry) == (scan.FULL, len(first), 3)


def test_a_full_buffer_asks_to_be_written() -> None:
    builder = IndexBuilder(SLOTS, ENTRIES, 3)
    first = record(0, "a b")
    log = first + record(len(first), "c d")
    status, file = scanned(builder, log)
    assert (status, builder.position) == (scan.MORE, len(first))
    builder.first_entry = builder.next_entry
    assert builder.scan(log, len(first), len(log), bytes(file)) == scan.DONE


def test_damage_is_noticed() -> None:
    good = record(0, "a")
    for bad in (b"\0" * 100, good[:-1], b"\x7f" + good[1:]):
        builder = IndexBuilder(SLOTS, ENTRIES, 50)
        status, _ = scanned(builder, bad)
        assert status == scan.BROKEN


def test_a_search_bounds_seconds_and_number() -> None:
    log = b""
    for number in range(8):
        log += record(len(log), "k", time_ms=1000 * number)
    size = len(log) // 8
    builder = IndexBuilder(SLOTS, ENTRIES, 50)
    _, file = scanned(builder, log)
    data = bytes(file)
    assert found(data, 9, b"T#k", 0, 99, 3) == [7 * size, 6 * size, 5 * size]
    assert found(data, 9, b"T#k", 2, 3, 9) == [3 * size, 2 * size]
    assert found(data, 9, b"T#no", 0, 99, 9) == []


# -- in a store --------------------------------------------------------------------------------------------


def config(**values: Any) -> StoreConfig:
    return StoreConfig(
        **{
            "root": "/s",
            "commit_log_file_bytes": 1 << 16,
            "consume_queue_file_bytes": 2000,
            "index_slots": 50,
            "index_entries": 40,
            **values,
        }
    )


async def opened(runtime: SimulatedRuntime, **values: Any) -> MessageStore:
    store = MessageStore(runtime, config(**values))
    await store.start()
    store.set_topic("T", read_queues=1, write_queues=1, perm=6)
    return store


async def put(store: MessageStore, *keys: str) -> list[int]:
    offsets = []
    for key in keys:
        result = store.put(NewMessage("T", 0, b"x" * 50, encode_properties({"KEYS": key})))
        await store.stored(result.end_offset)
        offsets.append(result.commit_log_offset)
    return offsets


async def find(
    store: MessageStore, key: str, begin: int = 0, end: int = 1 << 62, limit: int = 99
) -> list[int]:
    assert store.index is not None
    return await store.index.find("T", key, begin, end, limit)


def names(runtime: SimulatedRuntime) -> list[str]:
    return runtime.files.list_dir("/s/index")


Talk = Callable[[SimulatedRuntime], Awaitable[None]]


def simulate(talk: Talk) -> None:
    async def main() -> None:
        await talk(simulated_runtime())

    run(main())


def test_a_message_is_found_at_once_and_in_many_files() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, *(f"k{number % 7} all" for number in range(130)))
        assert await find(store, "k3") == offsets[3::7]
        assert await find(store, "all", limit=5) == offsets[-5:]
        assert await find(store, "none") == []
        assert len(names(runtime)) == 7
        assert names(runtime) == sorted(names(runtime))
        datetime.strptime(names(runtime)[0], "%Y%m%d%H%M%S%f")
        assert store.index is not None
        assert store.index.newest[1] == offsets[-1]
        header = HEADER.unpack(runtime.files.read_bytes(f"/s/index/{names(runtime)[0]}")[:40])
        assert header[2:4] == (offsets[0], offsets[18])
        assert header[5] == 39
        await store.stop()

    simulate(talk)


def test_messages_are_taken_up_in_batches_not_one_by_one() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, index_entries=4000, sync_flush=False)
        batches = 0

        def slow(function: Any, *args: Any) -> Any:
            # Messages arrive while a batch is processed, so there is always a next batch.
            nonlocal batches
            batches += function is index._scan_and_write
            loop = asyncio.get_running_loop()
            done: asyncio.Future[Any] = loop.create_future()
            loop.call_later(0.001, done.set_result, function(*args))
            return done

        runtime.threads.run = slow  # type: ignore[method-assign]
        begin = runtime.clock.monotonic()
        for number in range(2500):
            await put(store, f"key-{number}")
            await runtime.clock.sleep(0.0002)
        assert 20 < batches <= (runtime.clock.monotonic() - begin) / log_feed.PAUSE_SECONDS
        assert len(await find(store, "key-2499")) == 1
        await store.stop()

    simulate(talk)


def test_the_table_of_a_new_file_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the default size it is 20 MB, which would block the event loop for 0.1 s."""
    inside: list[str] = []
    made: list[bool] = []
    builder = IndexFile.builder

    async def talk(runtime: SimulatedRuntime) -> None:
        run_in_thread = runtime.threads.run

        def noted(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
            inside.append("a thread")
            try:
                return run_in_thread(function, *args)
            finally:
                inside.pop()

        def build(self: IndexFile, *args: Any) -> IndexBuilder:
            made.append(bool(inside))
            return builder(self, *args)

        monkeypatch.setattr(runtime.threads, "run", noted)
        monkeypatch.setattr(IndexFile, "builder", build)
        store = await opened(runtime)
        offsets = await put(store, *["k"] * 250)
        assert await find(store, "k", limit=1000) == offsets
        await store.stop()

    simulate(talk)
    assert len(made) > 1
    assert all(made)


def test_the_range_of_time_is_exact() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets, times = [], []
        for _ in range(5):
            offsets += await put(store, "k")
            times.append(store.store_time("T", 0, len(offsets) - 1))
            await runtime.clock.sleep(0.25)
        assert await find(store, "k", times[1], times[3]) == offsets[1:4]
        assert await find(store, "k", times[1] + 1, times[3] - 1) == offsets[2:3]
        assert await find(store, "k", times[4] + 1) == []
        assert await find(store, "k", 0, times[0] - 1) == []
        await store.stop()

    simulate(talk)


def test_a_clean_restart_goes_on_where_it_was() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        offsets: list[int] = []
        for _ in range(4):
            store = await opened(runtime)
            assert await find(store, "k") == offsets
            offsets += await put(store, *["k"] * 15)
            if len(offsets) % 2:
                assert await find(store, "k") == offsets
            await store.stop()
        assert len(names(runtime)) == 2

    simulate(talk)


@pytest.mark.parametrize("orbitmq_seed", range(10))
async def test_after_a_crash_what_is_missing_is_made_again(
    orbitmq_loop: SimulatedLoop, orbitmq_seed: int
) -> None:
    runtime = simulated_runtime(orbitmq_seed)
    offsets: list[int] = []
    for _ in range(3):
        store = await opened(runtime, checkpoint_interval_ms=300)
        offsets += await put(store, *["k"] * runtime.random.randrange(1, 60))
        await runtime.clock.sleep(runtime.random.random())
        if runtime.random.random() < 0.5:
            offsets += await put(store, *["k"] * 5)
        runtime.files.crash(keep=runtime.random.choice(list(Keep)))
        await store.stop()
    store = await opened(runtime)
    assert await find(store, "k", limit=1000) == offsets
    await store.stop()


def test_files_of_another_size_are_made_again() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, *["k"] * 50)
        await find(store, "k")
        await store.stop()
        store = await opened(runtime, index_entries=1000)
        assert await find(store, "k") == offsets
        assert len(names(runtime)) == 1
        await store.stop()

    simulate(talk)


@pytest.mark.behaviour("ST-23")
@pytest.mark.parametrize(("number", "how"), [(-1, "removed"), (-1, "zeroed"), (0, "zeroed"), (1, "zeroed")])
def test_what_a_damaged_file_had_is_indexed_again(number: int, how: str) -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, *["k"] * 145)
        assert await find(store, "k", limit=1000) == offsets
        await store.stop()
        path = f"/s/index/{names(runtime)[number]}"
        assert len(names(runtime)) == 4  # with 39 entries in each
        if how == "removed":
            runtime.files.remove(path)
        else:
            runtime.files.write_atomic(path, bytes(len(runtime.files.read_bytes(path))))
        for _ in range(2):
            store = await opened(runtime)
            assert await find(store, "k", limit=1000) == offsets
            await store.stop()

    simulate(talk)


def test_a_full_disk_delays_the_index_only() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, *["k"] * 10)
        assert await find(store, "k") == offsets
        runtime.files.fail("pwrite", "/s/index", times=1)
        offsets += await put(store, *["k"] * 10)
        assert set(await find(store, "k")) <= set(offsets)
        await runtime.clock.sleep(11)
        assert await find(store, "k") == offsets
        await store.stop()

    simulate(talk)


def test_complete_files_stay_while_no_new_one_can_be_made() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, *["k"] * 250)
        assert await find(store, "k", limit=1000) == offsets
        before = names(runtime)
        runtime.files.fail("open_segment", "/s/index", times=4)
        offsets += await put(store, *["k"] * 250)
        await runtime.clock.sleep(35)
        assert names(runtime)[: len(before)] == before
        await runtime.clock.sleep(60)
        assert await find(store, "k", limit=1000) == offsets
        assert names(runtime)[: len(before)] == before
        await store.stop()

    simulate(talk)


def test_a_lost_disk_is_told_once_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, "k")
        assert await find(store, "k") == offsets
        runtime.files.fail("*", "/s/index", times=-1)
        offsets += await put(store, "k")
        await runtime.clock.sleep(3600 - 1)
        lines = [line for line in caplog.messages if "the disk refused" in line]
        assert len(lines) == 6  # one at once, then one after each ten minutes
        assert lines[0].startswith("index follows the log: the disk refused, it is tried again: ")
        assert re.match(r"disk refused: \d\d more within 600 seconds, the last: index follows", lines[1])
        runtime.files.heal()
        await runtime.clock.sleep(11)
        assert await find(store, "k") == offsets
        await store.stop()

    simulate(talk)


def test_damage_in_an_old_file_hides_what_is_behind_it_in_that_file_only() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, index=False, commit_log_file_bytes=4096)
        offsets = await put(store, *["k"] * 100)
        await store.stop()
        log = runtime.files.open_segment(f"/s/commitlog/{0:020d}", 4096)
        log.pwrite(b"\xff" * 8, offsets[3])
        log.sync()
        store = await opened(runtime, commit_log_file_bytes=4096)
        found = await find(store, "k", limit=1000)
        assert found == offsets[:3] + [offset for offset in offsets if offset >= 4096]
        await store.stop()

    simulate(talk)


def test_old_files_go_with_the_log() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime)
        offsets = await put(store, *["k"] * 100)
        await find(store, "k")
        before = names(runtime)
        assert store.index is not None
        store.index.drop_below(offsets[80])
        assert names(runtime) == before[2:]
        await store.stop()

    simulate(talk)


def test_switched_on_again_it_has_what_came_meanwhile() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        offsets: list[int] = []
        for index_is_on in (True, False, True):
            store = await opened(runtime, index=index_is_on)
            offsets += await put(store, *["k"] * 50)
            if index_is_on:
                assert await find(store, "k", limit=1000) == offsets
            await store.stop()

    simulate(talk)


def test_it_can_be_switched_off() -> None:
    async def talk(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, index=False)
        await put(store, "k")
        assert store.index is None
        await store.stop()
        assert names(runtime) == []

    simulate(talk)
