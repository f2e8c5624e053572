"""The log is cut, or a topic dropped, while a thread still writes the positions of all queues."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.system import system_runtime
from orbitmq.store import MessageStore, NewMessage, StoreConfig

MESSAGES, LEFT = 20, 10


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=str(root),
        commit_log_file_bytes=1 << 20,
        checkpoint_interval_ms=3_600_000,
        index=False,
        sync_flush=False,
    )


class Held:
    """Holds a thread in the write of the positions file until :meth:`go`.

    Attributes:
        work: the checkpoint.
    """

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        self._entered, self._go = threading.Event(), threading.Event()
        self.work: asyncio.Future[None]
        write = runtime.files.write_atomic

        def slow(path: str, data: bytes, *, sync: bool = True) -> None:
            if "queuePositions" in path and not self._go.is_set():
                self._entered.set()
                self._go.wait(20)
            write(path, data, sync=sync)

        monkeypatch.setattr(runtime.files, "write_atomic", slow)

    async def entered(self) -> None:
        await asyncio.to_thread(self._entered.wait, 20)

    def go(self) -> None:
        self._go.set()


@asynccontextmanager
async def writing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[MessageStore, list[int], Held]]:
    """A store with messages of one queue, the log offsets of these messages, and its checkpoint under way."""
    runtime = system_runtime()
    store = MessageStore(runtime, config(root))
    await store.start()
    store.set_topic("T", read_queues=1, write_queues=1, perm=6)
    starts = []
    for _ in range(MESSAGES):
        starts.append(store.end)
        store.put(NewMessage("T", 0, b"x" * 900, b""))
        store.write()
    await store.flush()
    held = Held(runtime, monkeypatch)
    held.work = asyncio.ensure_future(store._upkeep.checkpoint())
    await held.entered()
    yield store, starts, held
    await store.stop()


async def killed(root: Path) -> MessageStore:
    """The store of a new process that starts with a copy of the disk."""
    copied = root.with_name("copied")
    shutil.copytree(root, copied)
    store = MessageStore(system_runtime(), config(copied))
    await store.start()
    return store


@pytest.mark.behaviour("PO-28")
def test_a_log_that_is_cut_ends_there_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log must not end where the positions say, with zeros in between."""

    async def scene() -> None:
        root = tmp_path / "store"
        async with writing(root, monkeypatch) as (store, starts, held):
            cutting = asyncio.ensure_future(store.truncate(starts[LEFT]))
            await asyncio.sleep(0.2)
            held.go()
            await cutting
            await held.work
            again = await killed(root)
            again.set_topic("T", read_queues=1, write_queues=1, perm=6)
            assert again.max_commit_log_offset == starts[LEFT]
            assert again.max_offset("T", 0) == LEFT
            await again.stop()

    asyncio.run(scene())


def test_a_topic_that_is_made_anew_begins_at_0_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positions that are being written still have the old end of its queue."""

    async def scene() -> None:
        root = tmp_path / "store"
        async with writing(root, monkeypatch) as (store, _, held):
            store.drop_topic("T")
            held.go()
            await held.work
            again = await killed(root)
            again.set_topic("T", read_queues=1, write_queues=1, perm=6)
            assert again.max_offset("T", 0) == 0
            await again.stop()

    asyncio.run(scene())
