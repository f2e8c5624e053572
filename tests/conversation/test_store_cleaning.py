"""A store over days of virtual time: files expire, the disk fills, queues know their first offset."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from orbitmq.message.record import iter_records
from orbitmq.store import (
    GetStatus,
    MessageStore,
    NewMessage,
    StoreClosedError,
    StoreConfig,
    StoreError,
)
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime

HOUR_MS = 3_600_000
FILE_BYTES = 16 * 1024
BODY = b"x" * 900  # 16 records fill a file


def config(**changes: Any) -> StoreConfig:
    values: dict[str, Any] = {
        "root": "/store",
        "commit_log_file_bytes": FILE_BYTES,
        "consume_queue_file_bytes": 10 * 20,
        "batch_bytes": 8 * 1024,
        "tail_entries": 8,
        # Its search for work many times a second would be too slow for days of virtual time.
        "index": False,
        "file_reserved_ms": 2 * HOUR_MS,
        "flush_interval_ms": 600_000,
        "checkpoint_interval_ms": 600_000,
        "clean_interval_ms": 600_000,
    }
    return StoreConfig(**{**values, **changes})


async def opened(runtime: SimulatedRuntime, settings: StoreConfig, *topics: str) -> MessageStore:
    store = MessageStore(runtime, settings)
    await store.start()
    for topic in topics or ("T",):
        store.set_topic(topic, read_queues=1, write_queues=1, perm=6)
    return store


async def fill(store: MessageStore, count: int, topic: str = "T") -> None:
    for _ in range(count):
        result = store.put(NewMessage(topic, 0, BODY, b""))
        await store.stored(result.end_offset)


def offsets(store: MessageStore, topic: str = "T") -> list[int]:
    found: list[int] = []
    offset = store.min_offset(topic, 0)
    while (result := store.get(topic, 0, offset, 100)).status is GetStatus.FOUND:
        found += [record.queue_offset for record in iter_records(result.body)]
        offset = result.next_offset
    return found


def log_files(runtime: SimulatedRuntime) -> list[str]:
    return runtime.files.list_dir("/store/commitlog")


def simulated(main: Callable[[SimulatedRuntime], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        await main(simulated_runtime(7))

    run(inside(), limit_s=30 * 86_400)


def test_expired_files_go_at_the_hour_and_queues_begin_later() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 40)
        await asyncio.sleep(26 * 3600)
        await fill(store, 10)
        assert offsets(store)[-1] == 49
        await asyncio.sleep(26 * 3600)
        first = store.min_offset("T", 0)
        assert 0 < first < 50
        assert offsets(store) == list(range(first, 50))
        assert store.max_offset("T", 0) == 50
        too_small = store.get("T", 0, 0, 1)
        assert (too_small.status, too_small.next_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
        assert store.offset_by_time("T", 0, 0) == first
        assert store.min_commit_log_offset > 0
        # Files of the queue with entries of deleted messages only are deleted too.
        names = runtime.files.list_dir("/store/consumequeue/T/0")
        assert int(names[0]) == first // 10 * 200
        await store.stop()

        again = await opened(runtime, config())
        assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (first, 50)
        assert offsets(again) == list(range(first, 50))
        await again.stop()

    simulated(main)


def test_a_queue_whose_messages_all_expired_goes_on_counting() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config(), "T", "other")
        await fill(store, 5)
        for _ in range(3):
            await asyncio.sleep(26 * 3600)
            await fill(store, 40, "other")
        await asyncio.sleep(26 * 3600)
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (5, 5)
        await store.stop()
        store = await opened(runtime, config(), "T", "other")
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (5, 5)
        await fill(store, 1)
        assert offsets(store) == [5]
        await store.stop()

    simulated(main)


@pytest.mark.behaviour("ST-05")
def test_expired_files_go_at_each_hour_of_deleting() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        now = runtime.clock.local_time(runtime.clock.now_ms())
        hours = frozenset(((now.hour + 5) % 24, (now.hour + 10) % 24))
        store = await opened(runtime, config(delete_hours=hours))
        for _ in range(2):
            await fill(store, 40)
            first = store.min_offset("T", 0)
            await asyncio.sleep(4 * 3600)
            assert store.min_offset("T", 0) == first
            await asyncio.sleep(3600)
            assert store.min_offset("T", 0) > first
        await store.stop()

    simulated(main)


@pytest.mark.behaviour("ST-05")
def test_a_clock_that_was_ahead_for_a_while_keeps_no_file_for_longer() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        runtime.clock.set_wall(1000 * 3600)
        store = await opened(runtime, config())
        await fill(store, 40)
        await store.stop()
        runtime.clock.set_wall(-1000 * 3600)
        store = await opened(runtime, config(delete_hours=frozenset(range(24))))
        await fill(store, 40)
        await asyncio.sleep(3600)
        assert store.min_offset("T", 0) == 0
        await asyncio.sleep(2 * 3600)
        assert store.min_offset("T", 0) > 40
        await store.stop()

    simulated(main)


@pytest.mark.behaviour("ST-06")
def test_the_disk_of_a_log_in_another_folder_counts_too() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        used = {"/store": 0.1, "/log": 0.2}
        runtime.files.disk_used_ratio = used.__getitem__  # type: ignore[method-assign]
        store = await opened(runtime, config(commit_log="/log"))
        await fill(store, 60)
        assert len(runtime.files.list_dir("/log")) > 3
        used["/log"] = 0.86
        store.clean()
        assert len(runtime.files.list_dir("/log")) == 1
        assert store.accepting
        used["/log"] = 0.93
        store.clean()
        assert store.refusal == "the disk of /log is 93% full, the limit is 90%"
        used["/log"] = 0.2
        store.clean()
        await fill(store, 1)
        used["/store"] = 0.93
        store.clean()
        assert store.refusal == "the disk of /store is 93% full, the limit is 90%"
        await store.stop()

    simulated(main)


@pytest.mark.behaviour("ST-07")
@pytest.mark.parametrize("killed", [False, True])
def test_a_store_whose_disk_is_full_starts(killed: bool) -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        settings = config(checkpoint_interval_ms=1000, clean_interval_ms=10_000)
        store = await opened(runtime, settings)
        await fill(store, 100)
        await asyncio.sleep(3)
        if killed:
            for task in asyncio.all_tasks():
                if task.get_name().startswith("store-"):
                    task.cancel()
            await asyncio.sleep(0)
            runtime.files.end_process()
        else:
            await store.stop()
        before = len(log_files(runtime))
        runtime.files.capacity_bytes = runtime.files.used_bytes()
        store = await opened(runtime, settings)
        assert len(log_files(runtime)) >= before - 2
        await asyncio.sleep(11)
        assert store.accepting
        await fill(store, 1)
        assert offsets(store) == list(range(store.min_offset("T", 0), 101))
        await store.stop()

    simulated(main)


def test_files_are_kept_by_the_age_of_their_last_message_also_behind_an_empty_file() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        settings = config(delete_hours=frozenset((0,)), file_reserved_ms=10_000 * HOUR_MS)
        store = await opened(runtime, settings)
        await fill(store, 20)
        # The next file exists and holds no byte yet.
        store.log.roll()
        for _ in range(3):
            await asyncio.sleep(24 * 3600)
        assert offsets(store) == list(range(20))
        store.clean()
        assert offsets(store) == list(range(20))
        await store.stop()

    simulated(main)


def test_a_full_disk_takes_the_oldest_files_but_none_that_a_flush_works_on() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        settings = config(sync_flush=False, flush_interval_ms=60_000, checkpoint_interval_ms=90_000_000)
        store = await opened(runtime, settings)
        for _ in range(50):
            store.put(NewMessage("T", 0, BODY, b""))
        await asyncio.sleep(0)
        assert len(log_files(runtime)) == 4
        runtime.files.capacity_bytes = int(runtime.files.used_bytes() / 0.88)
        store.clean()
        assert store.flushed_offset == 0
        assert len(log_files(runtime)) == 4
        await store.flusher.flush()
        assert store.flusher.error is None
        store.clean()
        assert len(log_files(runtime)) == 1
        assert store.accepting
        assert offsets(store) == list(range(store.min_offset("T", 0), 50))
        await store.stop()

    simulated(main)


def test_no_message_is_taken_on_a_disk_without_room_and_again_when_there_is() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 3)
        runtime.files.capacity_bytes = int(runtime.files.used_bytes() / 0.95)
        await asyncio.sleep(601)
        with pytest.raises(StoreClosedError, match=r"the disk of /store is 9\d% full, the limit is 90%"):
            store.put(NewMessage("T", 0, BODY, b""))
        assert offsets(store) == [0, 1, 2]
        runtime.files.capacity_bytes *= 10
        await asyncio.sleep(601)
        await fill(store, 1)
        assert offsets(store) == [0, 1, 2, 3]
        await store.stop()

    simulated(main)


def test_what_cleaning_frees_counts_at_once() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 60)
        runtime.files.capacity_bytes = int(runtime.files.used_bytes() / 0.95)
        store.clean()
        assert len(log_files(runtime)) == 1
        assert store.accepting
        await fill(store, 1)
        await store.stop()

    simulated(main)


def test_room_on_the_disk_does_not_heal_a_failed_flush() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 3)
        runtime.files.fail("sync", "commitlog")
        with pytest.raises(StoreClosedError):
            await fill(store, 1)
        whole = runtime.files.capacity_bytes
        runtime.files.capacity_bytes = int(runtime.files.used_bytes() / 0.95)
        await asyncio.sleep(601)
        runtime.files.capacity_bytes = whole
        await asyncio.sleep(601)
        assert not store.accepting
        await store.stop()
        assert runtime.files.exists("/store/abort")

    simulated(main)


def test_a_consume_queue_that_cannot_be_written_refuses_and_then_goes_on() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config(checkpoint_interval_ms=90_000_000))
        await fill(store, 8)
        runtime.files.fail("pwrite", "consumequeue", error=errno.ENOSPC, times=2)
        with pytest.raises(StoreClosedError, match="consume queues could not be written"):
            store.put(NewMessage("T", 0, BODY, b""))
        assert not store.accepting
        await asyncio.sleep(601)
        assert not store.accepting
        await asyncio.sleep(601)
        assert store.accepting
        await fill(store, 10)
        assert offsets(store) == list(range(18))
        await store.stop()

    simulated(main)


def test_a_store_that_stays_full_takes_nothing_that_it_cannot_answer() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 15)
        runtime.files.fail("preallocate", "commitlog", error=errno.ENOSPC, times=-1)
        with pytest.raises(StoreClosedError):
            await fill(store, 10)
        for _ in range(5):
            await asyncio.sleep(600)
            with pytest.raises(StoreClosedError):
                store.put(NewMessage("T", 0, BODY, b""))
        runtime.files.heal()
        await asyncio.sleep(601)
        await fill(store, 1)
        assert offsets(store) == list(range(store.max_offset("T", 0)))
        await store.stop()

    simulated(main)


def test_stopping_on_a_full_disk_gives_the_folder_back_and_loses_nothing() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config(checkpoint_interval_ms=90_000_000))
        await fill(store, 7)
        runtime.files.fail("pwrite", "consumequeue", error=errno.ENOSPC, times=-1)
        await store.stop()
        runtime.files.heal()
        store = await opened(runtime, config())
        assert offsets(store) == list(range(7))
        await store.stop()

    simulated(main)


def test_a_file_that_cannot_be_deleted_stays_and_is_tried_again() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config(delete_hours=frozenset((0,)), clean_interval_ms=60_000))
        await fill(store, 40)
        runtime.files.fail("remove", "commitlog", error=errno.EROFS, times=2)
        await asyncio.sleep(26 * 3600)
        await fill(store, 40)
        await asyncio.sleep(26 * 3600)
        assert offsets(store) == list(range(store.min_offset("T", 0), 80))
        assert store.min_offset("T", 0) > 0
        await store.stop()

    simulated(main)


@pytest.mark.behaviour("ST-10")
def test_queues_that_cleaning_could_not_shorten_are_shortened_later() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config(checkpoint_interval_ms=90_000_000), "T", "other")
        await fill(store, 40, "other")
        await fill(store, 40)
        await asyncio.sleep(3 * 3600)
        store.config = config(delete_hours=frozenset(range(24)))
        runtime.files.fail("pwrite", "consumequeue", error=errno.ENOSPC, times=1)
        await asyncio.sleep(601)
        assert store.min_commit_log_offset > 0
        assert (store.min_offset("T", 0), store.min_offset("other", 0)) == (0, 0)
        await asyncio.sleep(601)
        assert store.min_offset("other", 0) == 40
        assert offsets(store) == list(range(store.min_offset("T", 0), 40))
        await store.stop()

    simulated(main)


def test_a_consume_queue_of_another_file_size_is_refused_not_misread() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 25)
        await store.stop()
        for entries in (5, 7, 20):
            other = MessageStore(runtime, config(consume_queue_file_bytes=entries * 20))
            with pytest.raises(StoreError, match="mappedFileSizeConsumeQueue"):
                await other.start()
        store = await opened(runtime, config())
        assert offsets(store) == list(range(25))
        await store.stop()

    simulated(main)


def test_a_log_of_another_file_size_is_refused_not_misread() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 25)
        await store.stop()
        for size in (FILE_BYTES // 2, FILE_BYTES * 4):
            with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
                await MessageStore(runtime, config(commit_log_file_bytes=size)).start()
        store = await opened(runtime, config())
        assert offsets(store) == list(range(25))
        await store.stop()

    simulated(main)


@pytest.mark.behaviour("ST-08")
def test_a_log_of_one_file_of_another_size_is_refused_too() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 5)
        await store.stop()
        assert len(log_files(runtime)) == 1
        for size in (FILE_BYTES // 2, FILE_BYTES * 4):
            with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
                await MessageStore(runtime, config(commit_log_file_bytes=size)).start()
        store = await opened(runtime, config())
        assert offsets(store) == list(range(5))
        await store.stop()

    simulated(main)


def test_an_old_record_that_rotted_costs_no_other_when_queues_are_rebuilt() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        await fill(store, 60)
        entry = store.entry("T", 0, 20)
        assert entry is not None
        await store.stop()
        segment = runtime.files.open_segment(
            f"/store/commitlog/{entry[0] // FILE_BYTES * FILE_BYTES:020d}", FILE_BYTES
        )
        segment.pwrite(b"!", entry[0] % FILE_BYTES + 200)
        segment.sync()
        segment.close()
        for flag in ("abort", "none"):
            # An operator deletes the folder to have the consume queues rebuilt.
            runtime.files.remove_tree("/store/consumequeue")
            runtime.files.write_atomic(f"/store/{flag}", b"")
            store = await opened(runtime, config())
            assert offsets(store) == list(range(60))
            await store.stop()
        store = await opened(runtime, config())
        await fill(store, 5)
        assert offsets(store) == list(range(65))
        await store.stop()

    simulated(main)


def test_a_topic_made_again_has_none_of_its_old_messages_after_a_crash() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config(), "T", "other")
        await fill(store, 12)
        await fill(store, 3, "other")
        store.drop_topic("T")
        store.set_topic("T", read_queues=1, write_queues=1, perm=6)
        await fill(store, 4)
        await fill(store, 3, "other")
        runtime.files.crash()
        store = await opened(runtime, config(), "T", "other")
        assert offsets(store) == [0, 1, 2, 3]
        assert offsets(store, "other") == [0, 1, 2, 3, 4, 5]
        await store.stop()

    simulated(main)


def test_a_topic_dropped_while_a_checkpoint_is_written_stays_dropped() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        for wait_ms in range(12):
            store = await opened(runtime, config(checkpoint_interval_ms=1000), "T", "other")
            await fill(store, 12)
            await fill(store, 3, "other")
            await asyncio.sleep(1 - (runtime.clock.now_ms() % 1000) / 1000 + wait_ms / 1000)
            store.drop_topic("T")
            await asyncio.sleep(0.02)
            runtime.files.crash()
            store = await opened(runtime, config(), "other")
            assert store.drop_unknown_topics() == []
            await store.stop()

    simulated(main)


def test_store_times_never_go_back_though_the_clock_does() -> None:
    async def main(runtime: SimulatedRuntime) -> None:
        store = await opened(runtime, config())
        times = []
        now = runtime.clock.now_ms
        for shift in (0, -HOUR_MS, -10, 5):
            runtime.clock.now_ms = lambda shift=shift: now() + shift  # type: ignore[method-assign,misc]
            await fill(store, 1)
            times.append(store.store_time("T", 0, store.max_offset("T", 0) - 1))
        assert times == sorted(times)
        assert store.offset_by_time("T", 0, times[-1]) == 3
        assert store.offset_by_time("T", 0, times[0] - 1) == 0
        assert store.offset_by_time("T", 0, times[-1] + 1) == 4
        await store.stop()

    simulated(main)
