"""Messages in flight when the broker's role changes: who redelivers them, and where to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import pop

from orbitmq import Message
from orbitmq.broker.broker import Broker
from orbitmq.broker.role import Role
from orbitmq.store import NewMessage, PutStatus
from orbitmq.testing import SimulatedRuntime, World
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


class SentElsewhere:
    """A message on its way to the master of another group (see ``outlet.Handed``)."""

    def __init__(self, message: NewMessage, on_stored: Callable[[], None]) -> None:
        self.message = message
        self.on_stored = on_stored
        self.stored = False

    async def settled(self) -> PutStatus:
        return PutStatus.OK

    def arrive(self) -> None:
        self.stored = True
        self.on_stored()


class Elsewhere:
    """The way to other masters, on which messages stay until :meth:`SentElsewhere.arrive`."""

    def __init__(self) -> None:
        self.sent: list[SentElsewhere] = []

    def hand(
        self, message: NewMessage, properties: Mapping[str, str], on_stored: Callable[[], None]
    ) -> SentElsewhere:
        self.sent.append(SentElsewhere(message, on_stored))
        return self.sent[-1]

    async def settle(self) -> None:
        """Nothing is called back."""


@pytest.mark.behaviour("PE-05", "PE-08")
async def test_an_acting_master_redelivers_through_another_group_and_once(
    broker: Broker, peer: BrokerPeer
) -> None:
    await peer.sent(b"one")
    assert (await pop(peer, invisible_time=5000)).bodies == [b"one"]
    in_flight = broker.services.pop.state.in_flight
    await broker.change_role(Role.SLAVE)
    await asyncio.sleep(30)
    assert len(in_flight) == 1, "a slave redelivers nothing"
    refused = await pop(peer)
    assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert "its master" in (refused.remark or "")
    elsewhere = broker.services.outlet.elsewhere = Elsewhere()
    await broker.change_role(Role.ACTING_MASTER)
    await asyncio.sleep(30)
    [sent] = elsewhere.sent
    assert (sent.message.topic, sent.message.queue_id) == ("%RETRY%cg_T", 0)
    assert (sent.message.body, sent.message.reconsume_times) == (b"one", 1)
    assert len(in_flight) == 1, "until it is stored there"
    sent.arrive()
    await asyncio.sleep(1)
    assert len(in_flight) == 0
    await asyncio.sleep(60)
    assert len(elsewhere.sent) == 1


@pytest.mark.behaviour("PE-06")
async def test_a_redelivery_that_is_refused_is_tried_again_later_and_later(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.sent(b"one")
    first = await pop(peer, invisible_time=1000)
    assert first.header is not None
    times: list[int] = []

    def refuse(*_: object) -> None:
        times.append(peer.now())
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "as a record it is too large")

    monkeypatch.setattr(broker.services.outlet, "hand", refuse)
    await asyncio.sleep(200)
    deadline = first.header.pop_time + 1000
    assert [round((time - deadline) / 1000) for time in times] == [0, 10, 30, 60, 120]
    monkeypatch.undo()
    assert (await pop(peer, poll_time=60_000)).bodies == [b"one"]


async def test_messages_in_flight_travel_to_a_slave(orbitmq_runtime: SimulatedRuntime) -> None:
    async with World(orbitmq_runtime, brokers=1, replicas=2) as world:
        async with world.producer() as producer:
            for number in range(3):
                await producer.send(Message("orders", str(number)))
        async with world.simple_consumer("billing") as consumer:
            consumer.subscribe("orders")
            messages = await consumer.receive(3, invisible_s=60)
            while len(messages) < 3:
                messages += await consumer.receive(3, invisible_s=60)
            master, slave = (
                world._cluster.brokers[name].services.pop.state.in_flight  # type: ignore[attr-defined]
                for name in ("broker-a", "broker-a-1")
            )

            def same() -> bool:
                kept, copied = (
                    {q.key: (q.next, q.floor) for q in each if q.next} for each in (master, slave)
                )
                return kept == copied

            await world.until(lambda: len(slave) == 3 and same())
            await consumer.ack_all(messages)
            await world.until(lambda: len(slave) == 0 and same())
