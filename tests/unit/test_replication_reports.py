"""What a follower says of a piece of its master's log that comes in parts."""

from __future__ import annotations

import asyncio
from typing import cast
from unittest.mock import Mock

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.stream import ack, piece_header
from orbitmq.replication.link.stream_follower import ACK_SECONDS, Ours, StreamFollowerLink
from orbitmq.runtime.simulated import SimulatedRuntime
from orbitmq.store import MessageStore, NewMessage, StoreConfig


class Link(StreamFollowerLink):
    """A link that follows already, without a network; knows what it said."""

    def __init__(self, runtime: SimulatedRuntime, store: MessageStore) -> None:
        super().__init__(runtime.clock, BrokerConfig(), store, "m:1", cast("Ours", Mock()))
        self.said: list[bytes] = []
        self._reader.expected = 0
        self.transferring = True

    def _write(self, data: bytes) -> None:
        self.said.append(data)

    def comes(self, data: bytes) -> None:
        self.get_buffer(-1)[: len(data)] = data
        self.buffer_updated(len(data))


async def log_of_a_master(runtime: SimulatedRuntime) -> bytes:
    store = MessageStore(runtime, StoreConfig(root="/m", index=False, commit_log_file_bytes=1 << 20))
    await store.start()
    store.set_topic("t", read_queues=1, write_queues=1, perm=6)
    for _ in range(20):
        store.put(NewMessage("t", 0, bytes(1000), b"", tags_code=0))
    store.write()
    log = bytes(store.raw.data(0, 1 << 20) or b"")
    await store.stop()
    return log


async def follower(runtime: SimulatedRuntime, *, sync: bool) -> tuple[Link, MessageStore]:
    config = StoreConfig(root="/s", index=False, commit_log_file_bytes=1 << 20, sync_flush=sync)
    store = MessageStore(runtime, config)
    await store.start()
    return Link(runtime, store), store


async def test_a_piece_that_comes_in_parts_is_reported_once(orbitmq_runtime: SimulatedRuntime) -> None:
    log = await log_of_a_master(orbitmq_runtime)
    link, store = await follower(orbitmq_runtime, sync=False)
    frames = piece_header(0, len(log)) + log
    link.comes(frames[:5000])
    assert link.said == []
    link.comes(frames[5000:])
    assert link.said == [ack(len(log), 0)]
    await orbitmq_runtime.clock.sleep(2 * ACK_SECONDS)
    assert len(link.said) == 1
    link.end(None)
    await store.stop()


async def test_a_part_is_reported_soon_when_the_rest_does_not_come(orbitmq_runtime: SimulatedRuntime) -> None:
    log = await log_of_a_master(orbitmq_runtime)
    link, store = await follower(orbitmq_runtime, sync=False)
    link.comes((piece_header(0, len(log)) + log)[:5000])
    await orbitmq_runtime.clock.sleep(2 * ACK_SECONDS)
    assert link.said == [ack(store.received_offset, 0)]
    link.end(None)
    await store.stop()


async def test_what_a_flush_brought_is_told_while_the_next_piece_comes(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    log = await log_of_a_master(orbitmq_runtime)
    link, store = await follower(orbitmq_runtime, sync=True)
    half = len(log) // 2
    store.flusher.watchers.append(link._flushed)
    link.comes(piece_header(0, half) + log[:half] + (piece_header(half, len(log) - half) + log[half:])[:100])
    await asyncio.sleep(ACK_SECONDS / 2)
    assert store.flushed_offset > 0
    assert link.said == [ack(half + 100 - len(piece_header(0, 0)), store.flushed_offset)]
    link.end(None)
    await store.stop()
