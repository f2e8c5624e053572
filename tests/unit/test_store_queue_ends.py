"""Queues that continue at an offset although the store has none of their earlier messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.test_store_positions import ROOT, ends, fill, opened

from orbitmq.message.record import iter_records
from orbitmq.store import MessageStore
from orbitmq.store.queues.positions import NAMES
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

# The number of entries in a consume queue file of these tests.
FILE = 100


def queue_files(runtime: SimulatedRuntime, topic: str, queue_id: int) -> list[str]:
    return runtime.files.list_dir(f"{ROOT}/consumequeue/{topic}/{queue_id}")


def forget_positions(runtime: SimulatedRuntime) -> None:
    for name in NAMES:
        runtime.files.remove(f"{ROOT}/{name}")


def offsets(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    found = store.get(topic, queue_id, store.min_offset(topic, queue_id), 100)
    return [record.queue_offset for record in iter_records(found.body)]


async def test_only_an_empty_queue_moves_and_only_forward() -> None:
    store = await opened(simulated_runtime(1), "a", "b")
    await fill(store, "b", 4)
    assert store.go_on_at("a", 0, 7)
    assert not store.go_on_at("a", 0, 7)
    assert not store.go_on_at("a", 0, 6)
    assert store.go_on_at("a", 0, 9)
    assert store.go_on_at("a", 5, 3)  # the topic has fewer queues than before
    assert not store.go_on_at("a", -1, 3)
    assert not store.go_on_at("a", 1 << 20, 3)
    assert not store.go_on_at("never set", 0, 3)
    assert not store.go_on_at("b", 1, 7)
    assert ends(store, "a") == [(9, 9), (0, 0), (0, 0), (0, 0)]
    assert store.max_offset("a", 5) == 3
    assert ends(store, "b") == [(0, 1)] * 4
    await store.stop()


async def test_only_queues_that_had_messages_and_have_none_are_told() -> None:
    store = await opened(simulated_runtime(1), "a", "b", "new")
    await fill(store, "a", 6)
    await fill(store, "b", 4)
    assert list(store.quiet_ends()) == []
    while store.max_commit_log_offset < 3 << 16:
        await fill(store, "b", 1)  # queue 0
    await store.flush()
    config = store.config
    store.config = replace(config, file_reserved_ms=0)
    await asyncio.sleep(1)
    store.clean()
    store.config = config
    assert dict(store.quiet_ends()) == {
        "a": [(0, 2), (1, 2), (2, 1), (3, 1)],
        "b": [(1, 1), (2, 1), (3, 1)],
    }
    await fill(store, "a", 1)
    told = store.quiet_ends()
    assert next(told) == ("a", [(1, 2), (2, 1), (3, 1)])
    store.drop_topic("b")
    store.set_topic("b", read_queues=4, write_queues=4, perm=6)
    assert list(told) == []
    await store.stop()


@pytest.mark.parametrize("end", [7, FILE, 2 * FILE + 50])
@pytest.mark.parametrize("keep", [None, *Keep])
@pytest.mark.parametrize("positions", [True, False])
async def test_what_is_kept_survives_a_crash(end: int, keep: Keep | None, positions: bool) -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "b", 4)
    await asyncio.sleep(30)  # this checkpoint lacks the queue's end
    assert store.go_on_at("a", 2, end)
    await store.keep_ends()
    if not positions:
        # Before the next checkpoint no file has positions, so the files of the queues count.
        store.drop_topic("b")
    for _ in range(2):
        runtime.files.crash(keep=keep) if keep is not None else runtime.files.end_process()
        store = await opened(runtime, "a")
        assert ends(store, "a")[2] == (end, end)
    await fill(store, "a", 8)
    assert offsets(store, "a", 2) == [end, end + 1]
    runtime.files.end_process()
    store = await opened(runtime, "a")
    assert ends(store, "a") == [(0, 2), (0, 2), (end, end + 2), (0, 2)]
    assert offsets(store, "a", 2) == [end, end + 1]
    await store.stop()
    forget_positions(runtime)
    store = await opened(runtime, "a")
    assert offsets(store, "a", 2) == [end, end + 1]
    await store.stop()


async def test_a_moved_queue_costs_no_file_until_it_is_kept_or_gets_a_message() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    assert store.go_on_at("a", 0, 7)
    assert store.go_on_at("a", 1, FILE)
    assert queue_files(runtime, "a", 0) == queue_files(runtime, "a", 1) == []
    await fill(store, "a", 4)
    await store.stop()
    assert queue_files(runtime, "a", 0) == [f"{0:020d}"]
    assert queue_files(runtime, "a", 1) == [f"{FILE * 20:020d}"]
    forget_positions(runtime)
    store = await opened(runtime, "a")
    assert ends(store, "a") == [(7, 8), (FILE, FILE + 1), (0, 1), (0, 1)]
    await store.stop()


async def test_a_message_says_where_its_queue_goes_on_before_that_is_kept() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await asyncio.sleep(30)
    assert store.go_on_at("a", 0, 7)
    await fill(store, "a", 1)
    runtime.files.crash()
    store = await opened(runtime, "a")
    assert ends(store, "a")[0] == (7, 8)
    assert offsets(store, "a", 0) == [7]
    await store.stop()


async def test_older_entries_of_a_queue_that_moves_are_gone() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 12)
    await store.flush()
    await asyncio.sleep(30)
    await store.truncate(0)
    assert ends(store, "a") == [(0, 0)] * 4
    assert store.go_on_at("a", 0, 2)
    await store.keep_ends()
    runtime.files.crash()
    forget_positions(runtime)
    store = await opened(runtime, "a")
    assert ends(store, "a")[0] == (2, 2)
    await store.stop()


@pytest.mark.parametrize("operation", ["pwrite", "sync", "write_atomic"])
async def test_a_disk_that_refuses_is_told_of_and_tried_again(operation: str) -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    assert store.go_on_at("a", 0, 7)
    runtime.files.fail(operation, times=-1)
    with pytest.raises(OSError, match=r"."):
        await store.keep_ends()
    runtime.files.heal()
    await store.keep_ends()
    runtime.files.crash()
    store = await opened(runtime, "a")
    assert ends(store, "a")[0] == (7, 7)
    await store.stop()


async def test_the_next_checkpoint_keeps_it_though_nobody_waits() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await asyncio.sleep(30)
    assert store.go_on_at("a", 0, 7)
    await asyncio.sleep(30)
    runtime.files.crash()
    store = await opened(runtime, "a")
    assert ends(store, "a")[0] == (7, 7)
    await store.stop()


async def test_a_topic_that_goes_meanwhile_keeps_nobody_waiting() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    assert store.go_on_at("a", 0, 7)
    assert store.go_on_at("b", 0, 7)
    keeping = asyncio.ensure_future(store.keep_ends())
    await asyncio.sleep(0)
    store.drop_topic("b")
    assert store.go_on_at("a", 1, 8)
    await keeping
    runtime.files.crash()
    store = await opened(runtime, "a")
    assert ends(store, "a")[:2] == [(7, 7), (8, 8)]
    store.set_topic("b", read_queues=4, write_queues=4, perm=6)
    assert ends(store, "b") == [(0, 0)] * 4
    await store.stop()


async def test_a_topic_that_was_dropped_and_made_again_keeps_its_own_files() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    assert store.go_on_at("a", 0, 7)
    store.drop_topic("a")
    store.set_topic("a", read_queues=4, write_queues=4, perm=6)
    await fill(store, "a", 4)
    await store.keep_ends()
    runtime.files.crash()
    store = await opened(runtime, "a")
    assert ends(store, "a") == [(0, 1)] * 4
    assert offsets(store, "a", 0) == [0]
    await store.stop()


async def test_a_queue_that_moves_once_more_meanwhile_is_kept_too() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    assert store.go_on_at("a", 0, 7)
    keeping = asyncio.ensure_future(store.keep_ends())
    while not queue_files(runtime, "a", 0):
        await asyncio.sleep(0.0001)
    assert store.go_on_at("a", 0, 9)
    await keeping
    runtime.files.crash()
    store = await opened(runtime, "a")
    assert ends(store, "a")[0] == (9, 9)
    await store.stop()


async def test_who_waits_may_be_cancelled_and_the_store_stopped() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    assert store.go_on_at("a", 0, 7)
    keeping = asyncio.ensure_future(store.keep_ends())
    await asyncio.sleep(0)
    keeping.cancel()
    await store.stop()
    store = await opened(runtime, "a")
    assert ends(store, "a")[0] == (7, 7)
    await store.stop()


async def test_a_cut_leaves_a_queue_where_it_began_late() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "b", 4)
    end = store.max_commit_log_offset
    assert store.go_on_at("a", 0, FILE)
    await fill(store, "a", 8)
    await store.truncate(end)
    assert ends(store, "a") == [(FILE, FILE), (0, 0), (0, 0), (0, 0)]
    runtime.files.crash()
    for _ in range(2):
        store = await opened(runtime, "a", "b")
        assert ends(store, "a") == [(FILE, FILE), (0, 0), (0, 0), (0, 0)]
        runtime.files.end_process()
