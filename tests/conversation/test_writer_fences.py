"""Writers that take over from each other: bound connections, fences, and the record of them."""

from __future__ import annotations

import errno

import pytest
from tests.conversation.broker_peer import BrokerPeer

from orbitmq.broker.broker import Broker
from orbitmq.broker.role import Role
from orbitmq.broker.writers import fences
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


async def bind(
    peer: BrokerPeer, run: int, part: int = 0, turn: int = 1, *, fence: bool = False, writer: str = "query"
) -> Command:
    return await peer.call(
        RequestCode.BIND_WRITER, writer=writer, run=run, part=part, turn=turn, fence=str(fence).lower()
    )


@pytest.mark.behaviour("WF-01", "WF-02")
async def test_a_fence_closes_the_connections_of_earlier_attempts(broker: Broker) -> None:
    broker.services.topics.create_if_absent("T", 4)
    epochs = [(1, 0, 1), (2, 0, 1), (2, 1, 1), (2, 0, 2), (3, 7, 1)]
    peers = [BrokerPeer(broker.runtime) for _ in (*epochs, None, None)]
    *bound, stranger, taker = peers
    try:
        for peer, epoch in zip(bound, epochs, strict=True):
            assert (await bind(peer, *epoch)).code == ResponseCode.SUCCESS
        other = await bind(stranger, 1, writer="other")
        assert other.code == ResponseCode.SUCCESS
        connections = set(broker.part(fences.Writers)._bound)
        assert (await bind(taker, 2, 0, 2, fence=True)).code == ResponseCode.SUCCESS
        gone = [connection.closed for connection in connections]
        assert sum(gone) == 2, "the earlier run, and the earlier turn of the same part"
        for peer in (*bound[2:], stranger):
            await peer.sent(b"x")
        assert len(broker.part(fences.Writers)._bound) == 4
        for epoch in epochs[:2]:
            refused = await bind(taker, *epoch)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert f"run {epoch[0]}, part 0, turn 1 was ended by run 2, turn 2" in (refused.remark or "")
        assert (await bind(taker, 1, fence=True)).code == ResponseCode.ILLEGAL_OPERATION
        assert (await bind(taker, 2, 0, 2)).code == ResponseCode.SUCCESS
    finally:
        for peer in peers:
            await peer.client.close()


@pytest.mark.behaviour("WF-03")
@pytest.mark.parametrize("crash", [False, True])
async def test_fences_outlive_the_broker(orbitmq_world: World, crash: bool) -> None:
    world = orbitmq_world
    broker = world.brokers["broker-a"]
    async with BrokerPeer(world.runtime, broker.address) as peer:
        assert (await bind(peer, 5, 2, 9, fence=True)).code == ResponseCode.SUCCESS
    if crash:
        world.crash("broker-a", keep=Keep.NOTHING)
    else:
        await world.stop_broker("broker-a")
    await world.start_broker("broker-a")
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        assert (await bind(peer, 4, 3)).code == ResponseCode.ILLEGAL_OPERATION
        assert (await bind(peer, 5, 2, 8)).code == ResponseCode.ILLEGAL_OPERATION
        assert (await bind(peer, 5, 3, 8)).code == ResponseCode.SUCCESS


@pytest.mark.behaviour("WF-03")
@pytest.mark.orbitmq(replicas=2)
async def test_replicas_know_the_fences(orbitmq_world: World) -> None:
    world = orbitmq_world

    def leads() -> bool:
        return world.brokers["broker-a"].services.role.role is Role.MASTER

    await world.until(leads)
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        for run, part in ((5, 0), (6, 0), (6, 1)):
            assert (await bind(peer, run, part, fence=True)).code == ResponseCode.SUCCESS
    slave = world.brokers["broker-a-1"].part(fences.Writers)
    raised = {"query": fences.WriterFence(6, {0: 1, 1: 1})}
    await world.until(lambda: slave._fences == raised, 30)
    async with BrokerPeer(world.runtime, world.brokers["broker-a-1"].address) as peer:
        answer = await bind(peer, 7, fence=True)
        assert (answer.code, slave._fences) == (ResponseCode.SERVICE_NOT_AVAILABLE, raised)


async def test_a_fence_that_cannot_be_written_down_is_not_promised(
    peer: BrokerPeer, broker: Broker, orbitmq_runtime: SimulatedRuntime
) -> None:
    orbitmq_runtime.files.fail("*", "tables.journal", error=errno.ENOSPC, times=-1)
    answer = await bind(peer, 2, fence=True)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    orbitmq_runtime.files.heal()
    assert (await bind(peer, 2, fence=True)).code == ResponseCode.SUCCESS


async def test_names_and_their_number_have_limits(
    peer: BrokerPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", "x" * 256):
        answer = await bind(peer, 1, writer=name)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "expected 1 to 255" in (answer.remark or "")
    monkeypatch.setattr(fences, "MAX_PARTS", 2)
    codes = [(await bind(peer, 1, part, fence=True)).code for part in (0, 1, 2, 1)]
    assert codes == [0, 0, ResponseCode.INVALID_PARAMETER, 0]
    monkeypatch.setattr(fences, "MAX_FENCES", 3)
    for number in range(5):
        assert (await bind(peer, 1, writer=f"w{number}", fence=True)).code == ResponseCode.SUCCESS
    assert sorted(broker.part(fences.Writers)._fences) == ["w2", "w3", "w4"]
