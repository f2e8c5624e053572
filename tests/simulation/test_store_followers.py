"""What follows the log: bounded pieces in order, paces, failures, truncation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from tests.seeds import seeds

from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.store.errors import LogDamagedError
from orbitmq.store.log import log_feed as module
from orbitmq.store.ports import LogPiece
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime
from orbitmq.testing.machine.virtual_loop import VirtualLoop

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


class Scripted:
    """Keeps the bodies that it was given, and does what a test tells it to."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.pieces: list[LogPiece] = []
        self.script: list[Callable[[LogPiece], None]] = []
        self.most = 1000

    async def take(self, piece: LogPiece) -> int:
        self.pieces.append(piece)
        if self.script:
            self.script.pop(0)(piece)
        position = piece.start
        for count, record in enumerate(piece.records()):
            if count == self.most:
                return position
            if not self.taken or record.physical_offset > self.taken[-1][0]:
                self.taken.append((record.physical_offset, record.body))
            position = piece.behind(record)
        return max(position, piece.end) if piece.end == piece.file_end else position

    def failed(self) -> int:
        return self.taken[-1][0] if self.taken else 0

    async def truncate(self, to: int) -> int:
        self.taken = [one for one in self.taken if one[0] < to]
        return to


def config() -> StoreConfig:
    return StoreConfig(
        root="/store",
        commit_log_file_bytes=16 * 1024,
        consume_queue_file_bytes=400,
        batch_bytes=8 * 1024,
        index=False,
        checkpoint_interval_ms=700,
    )


async def opened(
    runtime: SimulatedRuntime, follower: Scripted, *, piece_bytes: int = module.PIECE_BYTES
) -> tuple[MessageStore, module.LogFeed]:
    store = MessageStore(runtime, config())
    await store.start()
    store.set_topic("T", read_queues=1, write_queues=1, perm=6)
    following = module.LogFeed(
        runtime,
        follower,
        store.log.files,
        lambda: store.max_commit_log_offset,
        name="scripted",
        piece_bytes=piece_bytes,
    )
    store.log.wakers.append(following.wake)
    following.start()
    return store, following


def put(store: MessageStore, first: int, count: int, size: int = 50) -> list[tuple[int, bytes]]:
    placed = []
    for number in range(first, first + count):
        body = b"%d:" % number + b"x" * size
        placed.append((store.put(NewMessage("T", 0, body, b"")).commit_log_offset, body))
    store.write()
    return placed


async def end(store: MessageStore, following: module.LogFeed) -> None:
    await following.stop()
    await store.stop()


async def test_a_follower_gets_everything_in_order_and_in_bounded_pieces() -> None:
    runtime = simulated_runtime(1)
    follower = Scripted()
    follower.most = 7
    store, following = await opened(runtime, follower, piece_bytes=3000)
    sent = put(store, 0, 400)
    await following.catch_up(store.max_commit_log_offset)
    await asyncio.sleep(5)
    assert follower.taken == sent
    assert following.position == store.max_commit_log_offset
    assert all(0 < piece.end - piece.start <= 3000 for piece in follower.pieces)
    assert all(piece.end <= piece.file_end for piece in follower.pieces)
    await end(store, following)


async def test_the_pace() -> None:
    runtime = simulated_runtime(1)
    follower = Scripted()
    store, following = await opened(runtime, follower)
    begin = runtime.clock.monotonic()
    for number in range(500):
        put(store, number, 1)
        await asyncio.sleep(0.0002)
    await asyncio.sleep(0.3)
    assert len(follower.taken) == 500
    spent = runtime.clock.monotonic() - begin
    assert len(follower.pieces) <= spent / module.PAUSE_SECONDS + 1
    await end(store, following)


async def test_a_follower_without_a_new_message_does_not_run() -> None:
    runtime = simulated_runtime(1)
    follower = Scripted()
    store, following = await opened(runtime, follower)
    sent = put(store, 0, 10)
    await asyncio.sleep(1)
    await store.stop()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    before = loop.iterations
    await asyncio.sleep(3600)
    assert loop.iterations - before < 10
    assert follower.taken == sent
    await following.stop()


async def test_a_disk_that_refuses_and_a_mistake_are_tried_again() -> None:
    def refuse(piece: LogPiece) -> None:
        raise OSError(28, "full")

    def mistake(piece: LogPiece) -> None:
        raise ZeroDivisionError

    runtime = simulated_runtime(1)
    follower = Scripted()
    follower.script = [refuse, mistake]
    store, following = await opened(runtime, follower)
    sent = put(store, 0, 10)
    await asyncio.sleep(1)
    assert (follower.taken, len(follower.pieces)) == ([], 1)
    await asyncio.sleep(10)
    assert (follower.taken, len(follower.pieces)) == ([], 2)
    await asyncio.sleep(10)
    assert follower.taken == sent
    await end(store, following)


async def test_damage_costs_the_rest_of_its_file() -> None:
    def damaged(piece: LogPiece) -> None:
        raise LogDamagedError("no record begins here")

    runtime = simulated_runtime(1)
    follower = Scripted()
    store, following = await opened(runtime, follower)
    follower.script = [damaged]
    sent = put(store, 0, 200)
    assert store.max_commit_log_offset > 16 * 1024
    await asyncio.sleep(1)
    assert follower.taken == [one for one in sent if one[0] >= 16 * 1024]
    await end(store, following)


def test_nothing_is_left_out_and_nothing_comes_that_was_truncated() -> None:
    async def life(seed: int) -> None:
        source = random.Random(seed)
        runtime = simulated_runtime(seed)
        follower = Scripted()
        store, following = await opened(runtime, follower)
        sent: list[tuple[int, bytes]] = []
        number = 0
        for _ in range(10):
            count = source.randrange(1, 80)
            sent += put(store, number, count, source.randrange(200))
            number += count
            await asyncio.sleep(source.choice((0, 0.01, 6)))
            if source.random() < 0.5:
                to = source.choice(sent)[0]
                await following.truncate(to)
                await store.truncate(to)
                following.truncated()
                sent = [one for one in sent if one[0] < to]
                sent += put(store, number, 3)
                number += 3
            await asyncio.sleep(source.choice((0, 0.01, 6)))
        await asyncio.sleep(1)
        assert follower.taken == sent
        await end(store, following)

    for seed in seeds(20):
        try:
            run(life(seed), seed=seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
