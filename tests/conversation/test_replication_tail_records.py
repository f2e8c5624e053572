"""The place where a slave's log and its master's differ: equal bytes in different logs prove nothing."""

from __future__ import annotations

import random

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, log_of, online, same_end, shown, store

from orbitmq import Message
from orbitmq.broker.role import Role
from orbitmq.message.record import iter_records
from orbitmq.testing import World
from orbitmq.testing.machine.memory_files import Keep

LOSES = {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"}
FILE_BYTES = 4 << 20
# More bytes of a record than are compared, which do not compress.
SIZE = 20_000
EQUAL = random.Random(1).randbytes(SIZE)

pytestmark = pytest.mark.orbitmq(replicas=2, settings={**LOSES, "mappedFileSizeCommitLog": str(FILE_BYTES)})


def aside(world: World, name: str = SLAVE) -> dict[str, bytes]:
    files = world.machines[name].disk
    folder = f"/store/{name}/aside"
    return {file: files.read_bytes(f"{folder}/{file}") for file in files.list_dir(folder)}


async def send(world: World, sent: list[bytes]) -> None:
    async with world.producer(compress_from_bytes=1 << 22) as producer:
        for body in sent:
            await producer.send(Message("t", body))


def others(seed: int, count: int, size: int = SIZE) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(size) for _ in range(count)]


def bodies(world: World, name: str) -> set[bytes]:
    log = log_of(world, name)
    files = [log[start : start + FILE_BYTES] for start in range(0, len(log), FILE_BYTES)]
    return {record.body for file in files for record in iter_records(file)}


async def lose_the_tail(world: World, kept: list[bytes], lost: list[bytes]) -> bytes:
    """Cut the power of both, the slave's after the last messages and the master's before them; the master
    returns alone.

    Returns:
        The bytes that only the slave has.
    """
    await send(world, kept)
    await world.until(lambda: same_end(world), 60)
    await store(world, MASTER).flush()
    end = store(world, MASTER).max_commit_log_offset
    await send(world, lost)
    await world.until(lambda: same_end(world), 60)
    await store(world, SLAVE).flush()
    log = log_of(world, SLAVE)
    world.crash(SLAVE)
    world.crash(MASTER, Keep.NOTHING)
    await world.start_broker(MASTER)
    assert store(world, MASTER).max_commit_log_offset == end
    return log[end:]


@pytest.mark.behaviour("HL-15")
@pytest.mark.parametrize("size", [SIZE, 2 * SIZE])
async def test_blanks_at_a_border_are_equal_in_logs_that_differ_before(
    orbitmq_world: World, size: int
) -> None:
    """Otherwise a slave that is in sync keeps other messages than its master, or cannot follow it any
    more.
    """
    world = orbitmq_world
    tail = await lose_the_tail(world, others(1, 200), others(2, 41))
    since = others(3, 50, size)
    await send(world, since)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world), 60)
    assert list(aside(world).values()) == [tail]
    assert log_of(world, SLAVE) == log_of(world, MASTER)
    assert bodies(world, SLAVE) >= set(since)
    last = others(4, 3)
    await send(world, last)
    await world.until(lambda: bodies(world, SLAVE) >= set(last))


@pytest.mark.behaviour("HL-15")
async def test_middles_of_equal_bodies_are_equal_in_logs_that_differ_before(orbitmq_world: World) -> None:
    """The whole log must not be set aside because the common offset found is inside a record."""
    world = orbitmq_world
    tail = await lose_the_tail(world, [EQUAL] * 200, [EQUAL] * 41)
    await send(world, [EQUAL] * 50)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world), 60)
    assert list(aside(world).values()) == [tail]
    assert log_of(world, SLAVE) == log_of(world, MASTER)


@pytest.mark.behaviour("HL-15")
async def test_a_log_that_ends_at_a_border_of_files_is_gone_on_with(orbitmq_world: World) -> None:
    """The master has begun its next file, which has no record yet."""
    world = orbitmq_world
    await send(world, others(1, 3))
    store(world, MASTER).log.roll()
    await world.until(lambda: same_end(world), 60)
    assert store(world, SLAVE).max_commit_log_offset == FILE_BYTES
    await store(world, SLAVE).flush()
    world.crash(SLAVE)
    await world.start_broker(SLAVE)
    await send(world, others(2, 3))
    await world.until(lambda: same_end(world), 60)
    assert aside(world) == {}
    assert log_of(world, SLAVE) == log_of(world, MASTER)


@pytest.mark.behaviour("PO-25")
@pytest.mark.parametrize("border", [False, True])
@pytest.mark.orbitmq(
    replicas=2,
    settings={**ACTING, **LOSES, "totalReplicas": "2", "mappedFileSizeCommitLog": str(FILE_BYTES)},
)
async def test_what_only_the_slave_has_behind_a_large_record_comes_back(
    orbitmq_world: World, border: bool
) -> None:
    """The master sees that its log is the beginning of its slave's, also if it ends with a file."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        kept, lost = others(1, 3), others(2, 3)
        await send(world, kept)
        if border:
            store(world, MASTER).log.roll()
        await store(world, MASTER).flush()
        end = store(world, MASTER).max_commit_log_offset
        assert (end % FILE_BYTES == 0) is border
        await send(world, lost)
        await world.until(lambda: same_end(world))
        await store(world, SLAVE).flush()
        world.crash(MASTER, Keep.NOTHING)
        world.crash(SLAVE)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        assert store(world, MASTER).max_commit_log_offset == end
        await world.start_broker(SLAVE)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        await world.until(lambda: bodies(world, MASTER) >= {*kept, *lost})
        assert aside(world) == {}
