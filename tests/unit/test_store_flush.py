"""Flushes of a durable log: their contents, and that a refused write does not prevent the flush of others."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.runtime import system_runtime
from orbitmq.runtime.seam import Segment
from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.testing.machine.simulated import SimulatedRuntime

Done = Callable[[BaseException | None], object]


class Waiting:
    """A gate that always waits for the next safe offset."""

    waits = True

    def advance(self) -> None: ...

    def abandon(self) -> None: ...


@pytest.fixture
def flushes(runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch) -> list[Done]:
    """The flushes that have begun; calling one ends it."""
    begun: list[Done] = []

    def begin(_segments: Sequence[Segment], done: Done) -> None:
        begun.append(done)

    monkeypatch.setattr(runtime.threads, "sync", begin)
    return begun


async def opened(runtime: SimulatedRuntime) -> MessageStore:
    settings = StoreConfig(root="/store", sync_flush=True, commit_log_file_bytes=1 << 20)
    store = MessageStore(runtime, settings)
    store.flusher.attach(Waiting())
    await store.start()
    store.set_topic("orders", read_queues=1, write_queues=1, perm=6)
    return store


def put(store: MessageStore, body: bytes = b"x") -> int:
    return store.put(NewMessage("orders", 0, body, b"")).end_offset


async def iteration() -> None:
    """Let the current iteration of the event loop end."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_flush_behind_a_larger_one_takes_what_its_iteration_brings(
    runtime: SimulatedRuntime, flushes: list[Done]
) -> None:
    store = await opened(runtime)
    first = put(store, b"larger")
    await iteration()
    assert len(flushes) == 1
    put(store)
    await iteration()
    assert len(flushes) == 1  # one at a time
    flushes[0](None)
    assert store.flushed_offset == first
    third = put(store)
    assert len(flushes) == 1  # none begins before this iteration has written its messages
    await iteration()
    assert len(flushes) == 2
    flushes[1](None)
    assert store.flushed_offset == third
    await store.stop()


async def test_a_flush_behind_a_smaller_one_begins_at_once(
    runtime: SimulatedRuntime, flushes: list[Done]
) -> None:
    store = await opened(runtime)
    put(store)
    await iteration()
    second = put(store, b"larger")
    await iteration()
    flushes[0](None)
    assert len(flushes) == 2
    flushes[1](None)
    assert store.flushed_offset == second
    await store.stop()


@pytest.mark.parametrize("fault", [None, ConnectionError("its link broke")])
async def test_who_follows_the_log_gets_a_batch_before_its_flush_begins(
    runtime: SimulatedRuntime, flushes: list[Done], fault: Exception | None
) -> None:
    store = await opened(runtime)
    seen: list[tuple[int, int]] = []

    def written() -> None:
        seen.append((store.max_commit_log_offset, len(flushes)))
        if fault is not None:
            raise fault

    store.log.wakers.append(written)
    end = put(store)
    if fault is None:
        store.write()
    else:
        with pytest.raises(ConnectionError):
            store.write()
    assert seen == [(end, 0)]
    assert len(flushes) == 1  # a failure there keeps no message from the device
    store.log.wakers.remove(written)
    flushes[0](None)
    await store.stop()


async def test_without_more_a_flush_behind_a_larger_one_begins_all_the_same(
    runtime: SimulatedRuntime, flushes: list[Done]
) -> None:
    store = await opened(runtime)
    put(store, b"larger")
    await iteration()
    second = put(store)
    await iteration()
    flushes[0](None)
    await iteration()
    assert len(flushes) == 2
    flushes[1](None)
    assert store.flushed_offset == second
    await store.stop()


async def test_a_refused_write_does_not_keep_earlier_ones_from_their_flush(
    runtime: SimulatedRuntime, flushes: list[Done]
) -> None:
    store = await opened(runtime)
    put(store, b"larger")
    await iteration()
    second = put(store)
    await iteration()
    flushes[0](None)
    runtime.files.fail("pwrite", "/commitlog/", error=errno.EIO)
    put(store)
    await iteration()
    assert not store.accepting
    assert len(flushes) == 2
    flushes[1](None)
    assert store.flushed_offset == second
    await store.stop()


async def test_a_topic_is_dropped_beside_a_flush_that_fails(runtime: SimulatedRuntime) -> None:
    """The error goes to that flush too, and no checkpoint counts bytes that the device lacks."""
    store = await opened(runtime)
    store.set_topic("dropped", read_queues=1, write_queues=1, perm=6)
    runtime.files.fail("sync", "commitlog")
    end = put(store)
    await iteration()
    store.drop_topic("dropped")
    assert store.flusher.error is None, "told a moment later"
    runtime.files.crash()
    store = await opened(runtime)
    assert store.max_commit_log_offset == end
    assert store.record_at(0) is not None
    await store.stop()


def test_queues_that_another_thread_syncs_are_not_taken_for_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint beside that sync must not count the queues as synced, as the sync fails."""
    runtime = system_runtime()
    begun, goes_on, synced = threading.Event(), threading.Event(), list[str]()

    def sync_all(path: str) -> None:
        begun.set()
        goes_on.wait(10)
        synced.append(path)
        if len(synced) == 1:
            raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(runtime.files, "sync_all", sync_all)
    queues = MessageStore(runtime, StoreConfig(root=str(tmp_path))).queues
    queues._file_created = True
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(queues.sync)
        assert begun.wait(10)
        threading.Timer(0.05, goes_on.set).start()
        queues.sync()
        assert len(synced) == 2
        assert isinstance(first.exception(), OSError)
