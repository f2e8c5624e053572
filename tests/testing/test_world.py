"""The memory cluster of ``orbitmq_world``: its machines fail as real ones do, and time is free."""

from __future__ import annotations

import pytest

from orbitmq import Message, SendError
from orbitmq.testing import Keep, World


async def bodies(world: World) -> list[bytes]:
    async with world.reader("t") as reader:
        return [message.body async for message in reader]


async def test_an_hour_of_virtual_time_is_not_waited_for(orbitmq_world: World) -> None:
    async with orbitmq_world.admin() as admin:
        await orbitmq_world.sleep(3600)
        assert [broker.name for broker in await admin.brokers.list()] == ["broker-a"]
    assert orbitmq_world.clock.monotonic() > 3600


@pytest.mark.parametrize("keep", list(Keep))
@pytest.mark.parametrize("orbitmq_seed", range(2))
async def test_what_was_acknowledged_outlives_a_power_loss(orbitmq_world: World, keep: Keep) -> None:
    world = orbitmq_world
    async with world.producer(retries=0) as producer:
        queue = (await producer.send(Message("t", b"first"))).queue
        sent = [b"first"]
        for number in range(50):
            sent.append(b"%d" % number)
            await producer.send(Message("t", sent[-1]), queue=queue)
        world.crash("broker-a", keep)
        with pytest.raises(SendError):
            await producer.send(Message("t", b"lost"), queue=queue)
        await world.start_broker("broker-a")
        assert await bodies(world) == sent


@pytest.mark.orbitmq(settings={"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"})
async def test_what_was_not_synced_is_lost_and_the_dead_broker_acts_no_more(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer, world.admin() as admin:
        await producer.send(Message("t", b"in the page cache"))
        world.crash("broker-a")
        before = world.machines["broker-a"].disk.used_bytes()
        await world.until(lambda: not world.brokers)
        await world.sleep(300)
        assert world.machines["broker-a"].disk.used_bytes() == before
        assert await admin.brokers.list() == []
        await world.start_broker("broker-a")
        assert await bodies(world) == []


@pytest.mark.orbitmq(brokers=2)
async def test_a_cut_broker_is_left_out_until_the_network_heals(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer, world.admin() as admin:
        await admin.topics.create("t")
        world.partition("broker-b")
        assert {(await producer.send(Message("t", b"x"))).queue.broker_name for _ in range(8)} == {"broker-a"}
        await world.sleep(150)
        assert [broker.name for broker in await admin.brokers.list()] == ["broker-a"]
        world.heal()
        await world.sleep(60)
        assert len(await admin.brokers.list()) == 2
    with pytest.raises(KeyError, match="broker-z"):
        world.partition("broker-z")


async def test_reset_connections_are_made_again(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with world.producer() as producer:
        await producer.send(Message("t", b"x"))
        world.disconnect("broker-a", "nameserver")
        await producer.send(Message("t", b"y"))


async def test_a_condition_that_never_comes_true_fails_with_its_time(orbitmq_world: World) -> None:
    assert await orbitmq_world.until(lambda: orbitmq_world.clock.monotonic() > 0) < 0.1
    with pytest.raises(AssertionError, match="not true within 3 s"):
        await orbitmq_world.until(lambda: False, 3)


async def test_the_name_server_forgets_and_learns_again(orbitmq_world: World) -> None:
    async with orbitmq_world.admin() as admin:
        await orbitmq_world.stop_name_server()
        await orbitmq_world.sleep(50)
        await orbitmq_world.start_name_server()
        assert len(await admin.brokers.list()) == 1
        await orbitmq_world.stop_broker("broker-a")
        assert await admin.brokers.list() == []
