"""Starts from the file of queue positions: when it is trusted, and the cost and the result of a start."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from orbitmq.message.record import decode_record
from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.store.errors import StoreError
from orbitmq.store.queues import layout
from orbitmq.store.queues.positions import NAMES
from orbitmq.store.recovery.checkpoint import read_checkpoint
from orbitmq.testing.machine.memory_files import MemoryFiles
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


ROOT = "/store"


async def opened(runtime: SimulatedRuntime, *topics: str, **changes: Any) -> MessageStore:
    values: dict[str, Any] = {
        "commit_log_file_bytes": 1 << 16,
        "consume_queue_file_bytes": 2000,
        "index": False,
    }
    store = MessageStore(runtime, StoreConfig(root=ROOT, **{**values, **changes}))
    await store.start()
    for topic in topics:
        store.set_topic(topic, read_queues=4, write_queues=4, perm=6)
    return store


async def fill(store: MessageStore, topic: str, count: int) -> None:
    for number in range(count):
        result = store.put(NewMessage(topic, number % 4, b"x" * 50, b""))
        await store.stored(result.end_offset)


def ends(store: MessageStore, topic: str) -> list[tuple[int, int]]:
    return [(store.min_offset(topic, queue), store.max_offset(topic, queue)) for queue in range(4)]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of consume queues that were listed."""
    seen: list[str] = []
    list_dir = MemoryFiles.list_dir

    def spy(self: MemoryFiles, path: str) -> list[str]:
        if "/consumequeue/" in path:
            seen.append(path)
        return list_dir(self, path)

    monkeypatch.setattr(MemoryFiles, "list_dir", spy)
    return seen


@pytest.mark.parametrize("killed", [False, True])
async def test_a_start_looks_at_no_queue_that_is_not_used(killed: bool, listed: list[str]) -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 40)
    await fill(store, "b", 8)
    if killed:
        await asyncio.sleep(11)  # a checkpoint
        runtime.files.crash()
    else:
        await store.stop()
    listed.clear()
    store = await opened(runtime, "a", "b")
    assert ends(store, "a") == [(0, 10)] * 4
    assert ends(store, "b") == [(0, 2)] * 4
    assert listed == []
    assert store.get("a", 1, 0, 32).count == 10
    assert listed == [f"{ROOT}/consumequeue/a/1"]
    await fill(store, "a", 4)
    assert store.get("a", 1, 0, 32).count == 11
    await store.stop()


@pytest.mark.parametrize("change", ["java", "damaged", "lost"])
async def test_positions_that_do_not_fit_are_not_trusted(change: str, listed: list[str]) -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 40)
    await store.stop()
    checkpoint = bytearray(runtime.files.read_bytes(f"{ROOT}/checkpoint"))
    if change == "java":
        # A Java broker writes its five numbers and leaves the rest of the file unchanged.
        struct.pack_into(">q", checkpoint, 32, 4711)
        runtime.files.write_atomic(f"{ROOT}/checkpoint", bytes(checkpoint))
        assert read_checkpoint(runtime, f"{ROOT}/checkpoint").safe_offset == -1
    for name in NAMES:
        path = f"{ROOT}/{name}"
        if change == "lost":
            runtime.files.remove(path)
        elif change == "damaged" and runtime.files.exists(path):
            data = bytearray(runtime.files.read_bytes(path))
            data[-1] ^= 1
            runtime.files.write_atomic(path, bytes(data))
    listed.clear()
    store = await opened(runtime, "a")
    assert len(listed) >= 4
    assert ends(store, "a") == [(0, 10)] * 4
    await store.stop()
    listed.clear()
    store = await opened(runtime, "a")
    assert listed == []
    await store.stop()


@pytest.mark.behaviour("DU-07")
async def test_a_power_loss_behind_a_start_that_read_more_leaves_all_entries() -> None:
    """A kill within a write hides where the positions end, so the queues are written again; the power takes
    some of these writes, which must not count as present.
    """
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 40)
    await store.stop()
    store = await opened(runtime, "a")
    name = runtime.files.list_dir(f"{ROOT}/commitlog")[-1]
    torn = runtime.files.open_segment(f"{ROOT}/commitlog/{name}", 1 << 16)
    torn.pwrite(torn.view()[:100].tobytes(), store.end)
    runtime.files.end_process()
    for _ in range(2):
        store = await opened(runtime, "a")
        assert ends(store, "a") == [(0, 10)] * 4
        runtime.files.crash()
    store = await opened(runtime, "a")
    await fill(store, "a", 4)
    assert [store.get("a", queue, 0, 32).count for queue in range(4)] == [11] * 4
    await store.stop()


async def test_a_dropped_topic_is_in_no_later_positions() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b", "c")
    for topic in "abc":
        await fill(store, topic, 8)
    store.drop_topic("b")
    await store.stop()
    for _ in range(2):
        store = await opened(runtime, "a", "c")
        assert store.drop_unknown_topics() == []
        assert ends(store, "a") == ends(store, "c") == [(0, 2)] * 4
        store.set_topic("b", read_queues=4, write_queues=4, perm=6)
        assert ends(store, "b") == [(0, 0)] * 4
        store.drop_topic("b")
        await store.stop()


async def damaged_store(runtime: SimulatedRuntime, files: int) -> list[str]:
    """A stopped store of a topic with ``files`` files in its queue 2; returns their paths."""
    store = await opened(runtime, "a", "b")
    await fill(store, "b", 4)
    await fill(store, "a", 4 * (100 * files - 50))
    await store.stop()
    folder = f"{ROOT}/consumequeue/a/2"
    return [f"{folder}/{name}" for name in runtime.files.list_dir(folder)]


def damage(files: MemoryFiles, path: str, how: str) -> None:
    data = files.read_bytes(path)
    if how == "removed":
        files.remove(path)
        return
    shapes = {
        "empty": b"",
        "zeroed": bytes(len(data)),
        "cut": data[:50],
        "longer": data + b"x",
        "first entry": bytes(20) + data[20:],
    }
    files.write_atomic(path, shapes[how])


HOW = ("removed", "empty", "zeroed", "cut", "longer", "first entry")
# The number of the damaged file and the number of files, the kind of damage, and whether there are positions.
# Without positions the queue begins with its first file and ends with its last one.
DAMAGES = [(which, how, True) for which in ((0, 1), (0, 3), (1, 3), (2, 3)) for how in HOW]
DAMAGES += [((0, 3), "zeroed", False), ((0, 3), "first entry", False)]
DAMAGES += [((1, 3), "zeroed", False), ((1, 3), "first entry", False), ((1, 3), "removed", False)]


@pytest.mark.behaviour("ST-16")
@pytest.mark.parametrize(("which", "how", "positions"), DAMAGES)
async def test_queue_files_that_were_damaged_are_made_anew(
    which: tuple[int, int], how: str, positions: bool, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = simulated_runtime(1)
    number, count = which
    paths = await damaged_store(runtime, count)
    assert len(paths) == count
    damage(runtime.files, paths[number], how)
    if not positions:
        for name in NAMES:
            runtime.files.remove(f"{ROOT}/{name}")
    for _ in range(2):
        store = await opened(runtime, "a", "b")
        messages = 100 * count - 50
        assert ends(store, "a") == [(0, messages)] * 4
        for queue in range(4):
            offset = 0
            while (found := store.get("a", queue, offset, 32)).count:
                offset = found.next_offset
            assert offset == messages
        assert store.get("b", 2, 0, 32).count == 1
        await store.stop()
    assert paths[number] in caplog.text


@pytest.mark.behaviour("ST-16")
@pytest.mark.parametrize("other", ["a/2/1", "a/2/2", "a/1/0", "b/2/0"])
async def test_queue_files_that_changed_places_are_made_anew(
    other: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = simulated_runtime(1)
    path, *_ = await damaged_store(runtime, 3)
    folder, number = f"{ROOT}/consumequeue/{other}".rsplit("/", 1)
    second = f"{folder}/{runtime.files.list_dir(folder)[int(number)]}"
    contents = [runtime.files.read_bytes(each) for each in (second, path)]
    for each, content in zip((path, second), contents, strict=True):
        runtime.files.write_atomic(each, content)
    store = await opened(runtime, "a", "b")
    for topic, count in (("a", 250), ("b", 1)):
        for queue in range(4):
            offset = 0
            while (found := store.get(topic, queue, offset, 32)).count:
                assert decode_record(found.body).topic == topic
                offset = found.next_offset
            assert offset == count
    assert "are made anew from the log" in caplog.text
    await store.stop()


@pytest.mark.behaviour("ST-16")
async def test_a_whole_folder_of_a_queue_that_was_removed_is_made_anew() -> None:
    runtime = simulated_runtime(1)
    await damaged_store(runtime, 2)
    runtime.files.remove_tree(f"{ROOT}/consumequeue/a")
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 8)
    await asyncio.sleep(6)
    assert ends(store, "a") == [(0, 152)] * 4
    await store.stop()


@pytest.mark.behaviour("ST-16")
async def test_files_that_cleaning_removed_behind_the_last_positions_are_not_missed() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", file_reserved_ms=1000, commit_log_file_bytes=1 << 14)
    await fill(store, "a", 4 * 250)
    await asyncio.sleep(6)
    kept = {
        name: runtime.files.read_bytes(f"{ROOT}/{name}")
        for name in runtime.files.list_dir(ROOT)
        if name in NAMES
    }
    checkpoint = runtime.files.read_bytes(f"{ROOT}/checkpoint")
    await asyncio.sleep(10)
    store.clean()
    assert store.min_offset("a", 0) > 100
    low = store.min_offset("a", 0)
    await store.stop()
    # This is the state after a kill before the next checkpoint.
    for name, data in kept.items():
        runtime.files.write_atomic(f"{ROOT}/{name}", data)
    runtime.files.write_atomic(f"{ROOT}/checkpoint", checkpoint)
    store = await opened(runtime, "a", commit_log_file_bytes=1 << 14)
    assert store.recovered is not None
    assert not store.recovered.rebuilt
    assert ends(store, "a")[0] == (low, 250)
    await store.stop()


async def test_a_cancelled_start_leaves_the_folder_as_a_crash_does() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 40)
    await asyncio.sleep(0.01)
    runtime.files.crash()
    again = MessageStore(runtime, store.config)
    starting = asyncio.ensure_future(again.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert runtime.files.exists(f"{ROOT}/abort")
    store = await opened(runtime, "a")
    assert ends(store, "a") == [(0, 10)] * 4
    await store.stop()


async def test_rings_begin_small_grow_and_are_taken_back() -> None:
    store = await opened(simulated_runtime(1), "a", consume_queue_file_bytes=20_000)
    slot = store.queues.slot("a", 0)
    assert store.appender.get(slot, layout.Q_RING) == 0
    seen = set()
    for number in range(1200):
        store.put(NewMessage("a", 0, b"%d" % number, b""))
        seen.add(store.appender.get(slot, layout.Q_RING))
        if number % 100 == 0:
            store.write()
            for offset in range(0, number, 37):
                assert store.entry("a", 0, offset) is not None
    assert seen == {8, 64, 512}
    await store.stop()


async def test_only_so_many_queues_have_open_files() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, tail_entries=2)
    topics = [f"t{number}" for number in range(100)]
    for topic in topics:
        store.set_topic(topic, read_queues=4, write_queues=4, perm=6)
    for _ in range(5):
        for topic in topics:
            for queue in range(4):
                store.put(NewMessage(topic, queue, b"x", b""))
    store.write()
    await asyncio.sleep(6)
    for topic in topics:
        for queue in range(4):
            assert store.get(topic, queue, 0, 32).count == 5
    open_files = [one for one in runtime.files._segments if "/consumequeue/" in one.path]
    assert 0 < len(open_files) <= 256
    await store.stop()


async def test_idle_checkpoints_touch_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", 40)
    await asyncio.sleep(11)
    opened_files: list[str] = []
    open_segment = MemoryFiles.open_segment

    def spy(self: MemoryFiles, path: str, *args: Any, **named: Any) -> Any:
        opened_files.append(path)
        return open_segment(self, path, *args, **named)

    monkeypatch.setattr(MemoryFiles, "open_segment", spy)
    await asyncio.sleep(60)
    assert opened_files == []
    await fill(store, "b", 1)
    await asyncio.sleep(6)
    assert {path.split("/consumequeue/")[1][:3] for path in opened_files} == {"b/0"}
    await store.stop()


LOG_BYTES = 1 << 14


async def log_files(runtime: SimulatedRuntime) -> list[str]:
    """The log files of a stopped store that has several of them."""
    store = await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    await fill(store, "a", 4 * 100)
    await store.stop()
    return [f"{ROOT}/commitlog/{name}" for name in runtime.files.list_dir(f"{ROOT}/commitlog")]


@pytest.mark.behaviour("ST-23")
@pytest.mark.parametrize("number", [1, 2, -1])
async def test_a_log_file_that_is_missing_is_named_and_refused(number: int) -> None:
    runtime = simulated_runtime(1)
    paths = await log_files(runtime)
    assert len(paths) > 3
    kept = runtime.files.read_bytes(paths[number])
    runtime.files.remove(paths[number])
    with pytest.raises(StoreError, match=rf"^{paths[number]} is missing, .* join as a slave"):
        await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    runtime.files.write_atomic(paths[number], kept)
    store = await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    assert ends(store, "a") == [(0, 100)] * 4
    await store.stop()


@pytest.mark.behaviour("ST-23")
async def test_a_log_that_was_removed_is_told_and_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    runtime = simulated_runtime(1)
    await log_files(runtime)
    runtime.files.remove_tree(f"{ROOT}/commitlog")
    store = await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    assert f"{ROOT}/commitlog has no file" in caplog.text
    await fill(store, "a", 4)
    await store.stop()


@pytest.mark.behaviour("ST-23")
async def test_a_log_whose_end_is_given_up_begins_where_it_ends() -> None:
    runtime = simulated_runtime(1)
    paths = await log_files(runtime)
    runtime.files.remove(paths[-1])
    runtime.files.remove(f"{ROOT}/checkpoint")
    store = await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    assert 0 < store.max_offset("a", 0) < 100
    await fill(store, "a", 4)
    await store.stop()


@pytest.mark.behaviour("ST-23")
async def test_the_first_log_files_may_be_deleted_which_is_told(caplog: pytest.LogCaptureFixture) -> None:
    runtime = simulated_runtime(1)
    paths = await log_files(runtime)
    runtime.files.remove(paths[0])
    store = await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    assert store.min_offset("a", 0) > 0
    assert f"the log begins at {LOG_BYTES} and began at 0 or before when the broker stopped" in caplog.text
    await store.stop()


@pytest.mark.behaviour("ST-23")
@pytest.mark.parametrize("number", [0, 1, -1])
async def test_a_log_file_without_a_record_is_named(number: int, caplog: pytest.LogCaptureFixture) -> None:
    runtime = simulated_runtime(1)
    paths = await log_files(runtime)
    runtime.files.write_atomic(paths[number], bytes(LOG_BYTES))
    store = await opened(runtime, "a", commit_log_file_bytes=LOG_BYTES)
    assert f"{paths[number]} has no record" in caplog.text
    assert [high for _, high in ends(store, "a")] == [100] * 4
    await fill(store, "a", 4)
    assert store.get("a", 0, 100, 1).count == 1
    await store.stop()
