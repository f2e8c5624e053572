"""Followers of the log: bounded pieces in order, paces, failures, truncation, and crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from tests.seeds import seeds

from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.store.errors import LogDamagedError
from orbitmq.store.log import following as module
from orbitmq.store.ports import LogPiece
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


class Scripted:
    """Keeps the bodies that it was given, as a file that it flushes, and does what a test tells it to."""

    def __init__(self, runtime: SimulatedRuntime, path: str = "/store/scripted") -> None:
        self._files = runtime.files
        self._path = path
        lines = self._files.read_bytes(path).split(b"\n") if self._files.exists(path) else []
        self.taken = [(int(line.split(b" ")[0]), line.split(b" ")[1]) for line in lines if line]
        self.pieces: list[LogPiece] = []
        self.script: list[Callable[[LogPiece], None]] = []
        self.most = 1000
        self.durable = 0

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

    async def flush(self) -> None:
        self.durable += 1
        text = b"".join(b"%d %s\n" % one for one in self.taken)
        self._files.write_atomic(self._path, text)

    async def truncate(self, to: int) -> int:
        self.taken = [one for one in self.taken if one[0] < to]
        await self.flush()
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
    runtime: SimulatedRuntime, follower: Scripted, **how: bool
) -> tuple[MessageStore, module.Following]:
    store = MessageStore(runtime, config())
    following = store.follow(follower, name="scripted", **how)
    await store.start()
    store.set_topic("T", read_queues=1, write_queues=1, perm=6)
    return store, following


def put(store: MessageStore, first: int, count: int, size: int = 50) -> list[tuple[int, bytes]]:
    placed = []
    for number in range(first, first + count):
        body = b"%d:" % number + b"x" * size
        placed.append((store.put(NewMessage("T", 0, body, b"")).commit_log_offset, body))
    store.write()
    return placed


async def test_a_follower_gets_everything_in_order_and_in_bounded_pieces() -> None:
    runtime = simulated_runtime(1)
    follower = Scripted(runtime)
    follower.most = 7
    store, following = await opened(runtime, follower)
    following._piece_bytes = 3000
    sent = put(store, 0, 400)
    await following.catch_up(store.max_commit_log_offset)
    await asyncio.sleep(5)
    assert follower.taken == sent
    assert following.position == store.max_commit_log_offset
    assert all(0 < piece.end - piece.start <= 3000 for piece in follower.pieces)
    assert all(piece.end <= piece.file_end for piece in follower.pieces)
    await store.stop()


async def test_what_is_flushed_only() -> None:
    runtime = simulated_runtime(1)
    follower = Scripted(runtime)
    store, following = await opened(runtime, follower, flushed=True)
    sent = put(store, 0, 10)
    await following.catch_up(store.max_commit_log_offset)
    assert follower.taken == []
    await store.stored(store.max_commit_log_offset)
    await following.catch_up(store.max_commit_log_offset)
    assert follower.taken == sent
    await store.stop()


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_pace(at_once: bool) -> None:
    runtime = simulated_runtime(1)
    follower = Scripted(runtime)
    store, _ = await opened(runtime, follower, at_once=at_once)
    begin = runtime.clock.monotonic()
    for number in range(500):
        put(store, number, 1)
        await asyncio.sleep(0.0002)
    await asyncio.sleep(0.3)
    assert len(follower.taken) == 500
    spent = runtime.clock.monotonic() - begin
    if at_once:
        assert len(follower.pieces) > 400
    else:
        assert len(follower.pieces) <= spent / module.PAUSE_SECONDS + 1
    await store.stop()


async def test_a_disk_that_refuses_and_a_mistake_are_tried_again() -> None:
    def refuse(piece: LogPiece) -> None:
        raise OSError(28, "full")

    def mistake(piece: LogPiece) -> None:
        raise ZeroDivisionError

    runtime = simulated_runtime(1)
    follower = Scripted(runtime)
    follower.script = [refuse, mistake]
    store, _ = await opened(runtime, follower)
    sent = put(store, 0, 10)
    await asyncio.sleep(1)
    assert (follower.taken, len(follower.pieces)) == ([], 1)
    await asyncio.sleep(10)
    assert (follower.taken, len(follower.pieces)) == ([], 2)
    await asyncio.sleep(10)
    assert follower.taken == sent
    await store.stop()


async def test_damage_costs_the_rest_of_its_file() -> None:
    def damaged(piece: LogPiece) -> None:
        raise LogDamagedError("no record begins here")

    runtime = simulated_runtime(1)
    follower = Scripted(runtime)
    store, _ = await opened(runtime, follower)
    follower.script = [damaged]
    sent = put(store, 0, 200)
    assert store.max_commit_log_offset > 16 * 1024
    await asyncio.sleep(1)
    assert follower.taken == [one for one in sent if one[0] >= 16 * 1024]
    await store.stop()


def test_names_are_files() -> None:
    runtime = simulated_runtime(1)
    store = MessageStore(runtime, config())
    store.follow(Scripted(runtime), name="one")
    for name in ("one", "", "a/b", ".."):
        with pytest.raises(ValueError, match="no follower can be called"):
            store.follow(Scripted(runtime), name=name)


@pytest.mark.parametrize("keep", list(Keep))
def test_nothing_is_left_out_and_nothing_comes_that_was_truncated(keep: Keep) -> None:
    async def life(seed: int) -> None:
        source = random.Random(seed)
        runtime = simulated_runtime(seed)
        sent: list[tuple[int, bytes]] = []
        number = 0
        for _ in range(6):
            follower = Scripted(runtime)
            store, following = await opened(runtime, follower, flushed=True)
            sent = [one for one in sent if one[0] < store.max_commit_log_offset]
            count = source.randrange(1, 80)
            sent += put(store, number, count, source.randrange(200))
            number += count
            await asyncio.sleep(source.choice((0, 0.01, 6)))
            if source.random() < 0.4:
                to = source.choice(sent)[0]
                await store.truncate(to)
                sent = [one for one in sent if one[0] < to]
                sent += put(store, number, 3)
                number += 3
            await asyncio.sleep(source.choice((0, 0.01, 6)))
            if source.random() < 0.5:
                for task in [one for one in asyncio.all_tasks() if one.get_name().startswith("store-")]:
                    task.cancel()
                runtime.files.crash(keep=keep)
            else:
                await store.stop()
        follower = Scripted(runtime)
        store, following = await opened(runtime, follower, flushed=True)
        sent = [one for one in sent if one[0] < store.max_commit_log_offset]
        await following.catch_up(store.max_commit_log_offset)
        await asyncio.sleep(1)
        assert follower.taken == sent
        await store.stop()

    for seed in seeds(20):
        try:
            run(life(seed), seed=seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
