"""Check points in the revive topic are a broker's own or a Java broker's, as its table says, also after a
kill.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import Restarts, ack, pop, without_own_table
from tests.conversation.test_broker_pop_moved import done, kill, send

from orbitmq.broker.change_feed import POPS
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.pop.in_flight import PopDelivery
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.message.properties import encode_properties
from orbitmq.message.tags import tags_code
from orbitmq.store import NewMessage
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.codes import ResponseCode

FOLD_S = 10.0


def deliveries(world: Restarts) -> list[PopDelivery]:
    queues = world.broker.part(PopRevive).state.in_flight
    return [delivery for queue in queues for delivery in queue.deliveries.values()]


def left(world: Restarts) -> set[int]:
    return {offset for delivery in deliveries(world) for offset in delivery.left}


async def leave_as_java(world: Restarts, peer: BrokerPeer, count: int) -> str:
    """Store the check point of a Java broker that delivered this many messages; returns the start of their
    receipts.
    """
    services, taken_ms = world.broker.services, peer.now()
    point = bodies.PopCheckPoint(
        start_offset=0,
        pop_time=taken_ms,
        invisible_time=60_000,
        num=count,
        topic="T",
        cid="cg",
        queue_offset_diff=list(range(count)),
        broker_name="broker-a",
    )
    properties = {"TAGS": "ck"}
    topic = f"rmq_sys_REVIVE_LOG_{services.config.broker_cluster_name}"
    message = NewMessage(topic, 3, point.encode(), encode_properties(properties), tags_code=tags_code("ck"))
    services.append.put(message, properties)
    services.groups.find("cg")
    services.offsets.commit("cg", "T", 0, count)
    await asyncio.sleep(2)
    return f"0 {taken_ms} 60000 3 0 broker-a 0 "


@pytest.mark.behaviour("PP-02")
async def test_what_is_acknowledged_after_a_restart_does_not_come_again_after_a_kill(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    """The stop writes check points although nothing else of the table has changed since its file was
    written.
    """
    world = Restarts(orbitmq_runtime, flush_disk_type="SYNC_FLUSH")
    async with world as peer:
        await send(peer, 4)
        popped = await pop(peer, invisible_time=60_000)
        await asyncio.sleep(FOLD_S)
    peer = await world.__aenter__()
    assert not any(delivery.foreign for delivery in deliveries(world)), "PP-01: they would come 2 s later"
    await done(peer, popped, 1, 2)
    await kill(world)
    async with world as peer:
        assert left(world) == {0, 3}
        await asyncio.sleep(70)
        assert sorted((await pop(peer)).bodies + (await pop(peer)).bodies) == [b"0", b"3"]


@pytest.mark.behaviour("PP-01", "PP-02")
async def test_a_broker_that_is_killed_while_it_stops_knows_its_own_check_points(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(self: Persistence) -> None:
        self._journal.rotate()

    world = Restarts(orbitmq_runtime)
    peer = await world.__aenter__()
    await send(peer, 4)
    popped = await pop(peer, invisible_time=60_000)
    await asyncio.sleep(FOLD_S)
    await done(peer, popped, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Persistence, "close", killed)
        await world.__aexit__()
    for _ in range(2):
        await world.__aenter__()
        assert left(world) == {0, 1, 3}
        assert not any(delivery.foreign for delivery in deliveries(world))
        await kill(world)


@pytest.mark.behaviour("PP-02", "PP-10")
async def test_what_is_acknowledged_after_a_java_broker_does_not_come_again_after_a_kill(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    world = Restarts(orbitmq_runtime, flush_disk_type="SYNC_FLUSH")
    async with world as peer:
        await send(peer, 4)
        receipt = await leave_as_java(world, peer, 4)
    without_own_table(orbitmq_runtime)
    peer = await world.__aenter__()
    assert (await ack(peer, (0, 1, receipt + "1"))).code == ResponseCode.SUCCESS
    await kill(world)
    async with world as peer:
        assert left(world) == {0, 2, 3}
        assert (await ack(peer, (0, 2, receipt + "2"))).code == ResponseCode.SUCCESS
        assert left(world) == {0, 3}


@pytest.mark.behaviour("PP-03", "PP-10")
async def test_check_points_of_a_java_broker_count_as_read_when_they_are_in_the_table_on_disk(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two table files that are written one after the other, a kill may leave only the first."""
    world = Restarts(orbitmq_runtime)
    async with world as peer:
        await send(peer, 4)
        await leave_as_java(world, peer, 4)
    without_own_table(orbitmq_runtime)
    replace = Persistence._replace

    async def never(self: Persistence, stored: object, sequence: int) -> None:
        if getattr(stored, "name", "") == POPS:
            await asyncio.Event().wait()
        await replace(self, stored, sequence)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Persistence, "_replace", never)
        await world.__aenter__()
        await asyncio.sleep(FOLD_S)
        await kill(world)
    async with world:
        assert left(world) == {0, 1, 2, 3}
