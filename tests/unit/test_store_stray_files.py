"""Files among those of a store that OrbitMQ has not created."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.runtime.system import system_runtime
from orbitmq.store import MessageStore, NewMessage, StoreConfig

STRAY = ("notes.txt", "commitlog/notes.txt", "consumequeue/.DS_Store", "consumequeue/a/notes.txt")


async def opened(root: Path) -> MessageStore:
    settings = StoreConfig(root=str(root), commit_log_file_bytes=1 << 20, index=False)
    store = MessageStore(system_runtime(), settings)
    await store.start()
    store.set_topic("a", read_queues=1, write_queues=1, perm=6)
    return store


@pytest.mark.behaviour("ST-14")
@pytest.mark.parametrize("stray", STRAY)
def test_they_are_left_alone(tmp_path: Path, stray: str) -> None:
    async def scene() -> None:
        store = await opened(tmp_path)
        await store.stored(store.put(NewMessage("a", 0, b"x", b"")).end_offset)
        await store.stop()
        (tmp_path / stray).write_text("mine")
        # Without the checkpoint, the folders of all queues are listed.
        (tmp_path / "checkpoint").unlink()
        store = await opened(tmp_path)
        assert store.max_offset("a", 0) == 1
        await store.stop()
        assert (tmp_path / stray).read_text() == "mine"

    asyncio.run(scene())
