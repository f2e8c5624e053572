"""Zeros behind a durable batch: their places, the cases without zeros, and that no result depends on them."""

from __future__ import annotations

import errno

import pytest

from orbitmq.store import GetStatus, MessageStore, NewMessage, StoreConfig
from orbitmq.store.log.commit_log import FEW_BYTES, ZEROS_BYTES
from orbitmq.testing.machine.memory_files import MemorySegment
from orbitmq.testing.machine.simulated import SimulatedRuntime

Writes = list[tuple[int, int, bool]]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """All writes to the log: first byte, byte after the last, whether they are all zeros."""
    seen: Writes = []
    pwrite = MemorySegment.pwrite

    def spy(self: MemorySegment, data: memoryview, offset: int) -> None:
        if "/commitlog/" in self.path:
            seen.append((offset, offset + len(data), not any(data)))
        pwrite(self, data, offset)

    monkeypatch.setattr(MemorySegment, "pwrite", spy)
    return seen


async def opened(runtime: SimulatedRuntime, *, sync_flush: bool = True, file_mib: int = 4) -> MessageStore:
    settings = StoreConfig(root="/store", sync_flush=sync_flush, commit_log_file_bytes=file_mib << 20)
    store = MessageStore(runtime, settings)
    await store.start()
    store.set_topic("orders", read_queues=1, write_queues=1, perm=6)
    return store


async def send(store: MessageStore, body_bytes: int = 100) -> None:
    result = store.put(NewMessage("orders", 0, b"x" * body_bytes, b""))
    await store.stored(result.end_offset)


async def test_small_durable_batches_are_written_into_blocks_that_were_written_before(
    runtime: SimulatedRuntime, writes: Writes
) -> None:
    store = await opened(runtime)
    for _ in range(1000):
        await send(store, 1000)
    await store.stop()
    zeros = [(start, end) for start, end, empty in writes if empty]
    batches = [(start, end) for start, end, empty in writes if not empty]
    fresh = [
        batch for batch in batches if not any(start <= batch[0] and batch[1] <= end for start, end in zeros)
    ]
    assert len(batches) == 1000
    # Only the batch that reaches the end of the zeros gets new blocks, and more zeros follow it at once.
    assert [end for _, end in fresh] == [start for start, _ in zeros]
    assert len(fresh) <= batches[-1][1] // (ZEROS_BYTES - 4096) + 1
    assert all(end % 4096 == 0 and end - start <= ZEROS_BYTES for start, end in zeros)


@pytest.mark.parametrize(("sync_flush", "body_bytes"), [(False, 100), (True, ZEROS_BYTES // 4)])
async def test_batches_that_do_not_wait_and_large_batches_have_no_zeros_behind_them(
    runtime: SimulatedRuntime, sync_flush: bool, body_bytes: int, writes: Writes
) -> None:
    store = await opened(runtime, sync_flush=sync_flush)
    for _ in range(3):
        await send(store, body_bytes)
    await store.stop()
    assert writes
    assert not any(empty for _, _, empty in writes)


@pytest.mark.parametrize(
    ("sync_flush", "body_bytes", "expected"), [(True, 1000, 2), (True, FEW_BYTES, 0), (False, 1000, 0)]
)
async def test_a_slave_has_zeros_behind_what_a_sender_waits_for(
    runtime: SimulatedRuntime, sync_flush: bool, body_bytes: int, expected: int, writes: Writes
) -> None:
    master = await opened(runtime)
    for _ in range(400):
        await send(master, body_bytes)
    log = bytes(master.raw.data(0, 400 * 1200) or b"")
    ends = [end for _, end, empty in writes if not empty and end <= len(log)]
    await master.stop()
    slave = MessageStore(
        runtime, StoreConfig(root="/slave", sync_flush=sync_flush, commit_log_file_bytes=4 << 20)
    )
    await slave.start()
    writes.clear()
    for start, end in zip([0, *ends], ends, strict=False):
        slave.append_raw(start, log[start:end])
    assert sum(empty for _, _, empty in writes) == expected
    assert bytes(slave.raw.data(0, len(log)) or b"") == log[: ends[-1]]
    await slave.stop()


async def test_zeros_end_with_their_file(runtime: SimulatedRuntime, writes: Writes) -> None:
    store = await opened(runtime, file_mib=1)
    while store.max_commit_log_offset < 3 << 20:
        await send(store, 3000)
    await store.stop()
    assert sum(end == 1 << 20 and empty for _, end, empty in writes) >= 2
    assert all(end <= 1 << 20 for _, end, _ in writes)


async def test_a_disk_that_refuses_the_zeros_takes_the_message_all_the_same(
    runtime: SimulatedRuntime,
) -> None:
    store = await opened(runtime)
    runtime.files.fail("pwrite", "/commitlog/", error=errno.EIO, skip=1)
    await send(store)
    await send(store)
    assert store.accepting
    found = store.get("orders", 0, 0, 32)
    assert (found.status, found.next_offset) == (GetStatus.FOUND, 2)
    await store.stop()
