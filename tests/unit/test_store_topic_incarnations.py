"""The queues of a topic that are emptied when the store learns that the topic is a new one, or since when."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.unit.test_store_positions import ROOT, ends, fill, opened

from orbitmq.store import Made
from orbitmq.store.queues.positions import NAMES
from orbitmq.testing.machine.simulated import simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

NONE = [(0, 0)] * 4


async def test_only_what_lies_before_the_place_and_is_older_goes() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "b", 1)
    before, early = store.end, runtime.clock.now_ms()
    await asyncio.sleep(1)
    await fill(store, "a", 6)
    store.incarnations.take("a", Made(before, runtime.clock.now_ms() + 1))
    store.incarnations.take("a", Made(store.end, early))
    assert ends(store, "a") == [(0, 2), (0, 2), (0, 1), (0, 1)]
    await asyncio.sleep(1)
    made = store.incarnations.now("new")
    assert made == Made(store.end, runtime.clock.now_ms() + 1)
    store.incarnations.take("a", made)
    assert (ends(store, "a"), ends(store, "b")) == (NONE, [(0, 1), *NONE[1:]])
    await fill(store, "a", 1)
    store.incarnations.take("a", made)
    assert ends(store, "a") == [(0, 1), *NONE[1:]]
    await store.stop()


async def test_a_topic_that_is_made_where_messages_of_it_are_has_all_of_them() -> None:
    """At a slave, the master's notice of the topic may still be missing."""
    store = await opened(simulated_runtime(1), "a")
    assert store.incarnations.now("b") is None  # no message is before it
    await fill(store, "a", 1)
    assert store.incarnations.now("a") is None
    assert store.incarnations.now("b") is not None
    store.drop_topic("a")
    assert store.incarnations.now("a") is not None
    await store.stop()


async def test_queues_without_a_message_begin_anew_for_another_topic_only() -> None:
    store = await opened(simulated_runtime(1), "a", "b")
    await fill(store, "b", 1)
    made = Made(store.end, 1)
    store.incarnations.doubtful = True
    store.incarnations.resume("a", made)
    assert store.go_on_at("a", 0, 7)
    store.incarnations.resume("a", made)
    store.incarnations.take("a", made)
    assert ends(store, "a")[0] == (7, 7)
    store.incarnations.take("a", Made(store.end, 2))
    assert ends(store, "a") == NONE
    await store.stop()


@pytest.mark.behaviour("MO-13")
@pytest.mark.parametrize("old", [(4, 12), (8, 0), (4, 0)])
@pytest.mark.parametrize("new", [0, 4, 8, 24])
async def test_queues_that_began_anew_behind_the_last_checkpoint_are_the_new_ones_after_a_kill(
    old: tuple[int, int], new: int
) -> None:
    """Seed 15310: the checkpoint has the old ends, to which the files' new entries seem to belong.

    Seed 17103: there are no new entries, and no file shows that the old ones are gone.
    """
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "a", old[0])
    await fill(store, "b", 1)
    await asyncio.sleep(11)  # a checkpoint
    await fill(store, "a", old[1])
    made = Made(store.end, runtime.clock.now_ms() + 1)
    await asyncio.sleep(1)
    store.incarnations.take("a", made)
    await fill(store, "a", new)
    store.queues.write_all()
    runtime.files.end_process()
    again = await opened(runtime, "a", "b")
    again.incarnations.resume("a", made)
    assert ends(again, "a") == [(0, new // 4)] * 4
    await fill(again, "a", 4)
    assert [again.get("a", queue, 0, 32).count for queue in range(4)] == [new // 4 + 1] * 4
    await again.stop()


@pytest.mark.parametrize("clock_was_ahead_ms", [0, 60_000])
async def test_messages_where_the_log_had_another_end_when_the_topic_was_made_are_kept(
    clock_was_ahead_ms: int,
) -> None:
    """The power failed when the table of topics was on the disk, and the end of the log was not."""
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 4)
    made = Made(store.end + 10_000, runtime.clock.now_ms() + 1 + clock_was_ahead_ms)
    await asyncio.sleep(1)
    store.incarnations.take("a", made)
    assert ends(store, "a") == NONE
    await fill(store, "a", 8)
    await store.stop()
    runtime.files.remove_tree(f"{ROOT}/consumequeue")
    again = await opened(runtime, "a")
    assert again.incarnations.doubtful
    again.incarnations.resume("a", made)
    assert ends(again, "a") == [(0, 2)] * 4
    await again.stop()


async def test_a_copy_keeps_what_another_history_has_where_the_topic_was_made() -> None:
    """The sender of the notice lost the end of its log, and its later messages have earlier times."""
    ours, theirs = simulated_runtime(1), simulated_runtime(2)
    master = await opened(theirs, "a")
    await fill(master, "a", 8)
    store = await opened(ours, "a")
    told = Made(master.end - 1, theirs.clock.now_ms() + 60_000)
    store.incarnations.take("a", told)
    store.append_raw(0, master.raw.data(0, 1 << 20))
    await asyncio.sleep(1)
    assert ends(store, "a") == [(0, 2)] * 4
    store.incarnations.take("a", Made(0, 0))
    assert ends(store, "a") == [(0, 2)] * 4
    await store.stop()
    await master.stop()


@pytest.mark.behaviour("MO-13")
async def test_a_copy_that_was_told_too_early_empties_its_queues_when_it_is_told_again() -> None:
    """The link was lost, so the topic counts as created; then the missing messages of the old topic
    arrive.
    """
    ours, theirs = simulated_runtime(1), simulated_runtime(2)
    master, store = await opened(theirs, "a", "b"), await opened(ours, "a")
    await fill(master, "b", 1)
    behind = master.end
    await fill(master, "a", 8)
    made = Made(master.end, theirs.clock.now_ms() + 1)
    store.append_raw(0, master.raw.data(0, behind))
    store.incarnations.take("a", made)
    store.append_raw(behind, master.raw.data(behind, 1 << 20))
    await store.stop()
    store = await opened(ours, "a")
    store.incarnations.resume("a", made, copies=True)
    store.incarnations.take("a", made)
    assert ends(store, "a") == NONE
    await store.stop()
    await master.stop()


async def test_a_damaged_entry_makes_no_queue_an_older_ones() -> None:
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a", "b")
    await fill(store, "b", 1)
    made = store.incarnations.now("a")
    assert made is not None
    await fill(store, "a", 12)
    await asyncio.sleep(1)
    await store.stop()
    path = f"{ROOT}/consumequeue/a/0/{0:020d}"
    runtime.files.write_atomic(path, bytes(20) + runtime.files.read_bytes(path)[20:])
    for name in NAMES:
        if runtime.files.exists(f"{ROOT}/{name}"):
            runtime.files.remove(f"{ROOT}/{name}")
    store = await opened(runtime, "a", "b")
    store.incarnations.take("a", made)
    assert ends(store, "a") == [(0, 3)] * 4
    assert store.get("a", 0, 1, 32).count == 2
    await store.stop()


@pytest.mark.parametrize("queues_lost", [False, True])
@pytest.mark.parametrize("copies", [False, True])
async def test_a_queue_that_rocketmq_may_have_gone_on_with_is_kept_until_another_broker_tells(
    queues_lost: bool, copies: bool
) -> None:
    """Queues rebuilt by RocketMQ hold the messages before the new topic, and its next ones behind them."""
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 8)
    made = Made(store.end, runtime.clock.now_ms() + 1)
    await asyncio.sleep(1)
    await fill(store, "a", 4)
    await store.stop()
    checkpoint = bytearray(runtime.files.read_bytes(f"{ROOT}/checkpoint"))
    struct.pack_into(">q", checkpoint, 32, 4711)
    runtime.files.write_atomic(f"{ROOT}/checkpoint", bytes(checkpoint))
    runtime.files.write_atomic(f"{ROOT}/abort", b"")
    if queues_lost:
        runtime.files.remove_tree(f"{ROOT}/consumequeue")
    store = await opened(runtime, "a")
    store.incarnations.resume("a", made, copies=copies)
    assert ends(store, "a") == [(0, 3)] * 4
    store.incarnations.take("a", made)
    assert ends(store, "a") == (NONE if copies else [(0, 3)] * 4)
    await store.stop()


async def test_a_topic_is_made_later_than_all_messages_whatever_the_clock_says() -> None:
    """The clock was set back while the broker was stopped."""
    runtime = simulated_runtime(1)
    store = await opened(runtime, "a")
    await fill(store, "a", 1)
    newest = store.store_time("a", 0, 0)
    await store.stop()
    runtime.clock.set_wall(-3600)
    store = await opened(runtime, "a")
    made = store.incarnations.now("b")
    assert made is not None
    assert made.time_ms > newest
    await store.stop()


async def test_many_topics_are_deleted_with_one_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start waits for the checkpoint, and each one is synced."""
    runtime = simulated_runtime(1)
    store = await opened(runtime)
    for topic in map(str, range(20)):
        store.queues.register(topic, 0)
    written: list[str] = []
    write = runtime.files.write_atomic

    def spy(path: str, *args: Any, **more: Any) -> None:
        written.append(path)
        write(path, *args, **more)

    monkeypatch.setattr(runtime.files, "write_atomic", spy)
    assert len(store.drop_unknown_topics()) == 20
    assert written.count(f"{ROOT}/checkpoint") == 1
    await store.stop()
