"""Pop through the ports that extensions of the broker use: more time, dead letters, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records
from tests.conversation.test_broker_pop import ack, pop

from orbitmq.broker.broker import Broker
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.pop.acknowledging import Acknowledging, MessageReceipt, Taken
from orbitmq.broker.pop.requests import Popped, PopRequest
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.pop.service import Pops
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, iter_records
from orbitmq.testing import Keep, SimulatedRuntime
from orbitmq.wire import pop_info
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.errors import RemotingError

DEAD = "%DLQ%cg"


class Caught:
    """An extension that keeps the ports that features offer."""

    pops: Pops
    settling: Acknowledging

    def __call__(self, host: Host) -> Attachment:
        self.pops, self.settling = host.offered(Pops), host.offered(Acknowledging)
        with pytest.raises(LookupError, match="offers a Caught"):
            host.offered(Caught)
        return Attachment()


class Answered:
    """The client that waits for a pop."""

    def __init__(self) -> None:
        self.gone = False
        self.popped: Popped | None = None

    def answer(self, popped: Popped) -> None:
        self.popped = popped

    def is_of(self, user: str) -> bool:
        return False

    def recheck(self) -> bool:
        return True

    def refuse(self, error: RemotingError) -> None:
        raise error


def request(*, invisible_ms: int = 10_000, ordered: bool = False, group: str = "cg") -> PopRequest:
    return PopRequest(group, "T", -1, 32, invisible_ms, ordered=ordered)


class Stage:
    """A broker that can be killed and started again, and its ports."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.runtime = runtime
        self.ports = Caught()

    async def start(self) -> None:
        self.broker = Broker(self.runtime, broker_config(), extensions=[self.ports])
        await self.broker.start()

    async def kill(self) -> None:
        """Lose power: all data that is not on disk is gone."""
        await self.broker._lifecycle.kill()
        self.runtime.files.crash(keep=Keep.NOTHING)
        await self.broker.doors.close()

    def take(self, **values: bool | int) -> tuple[list[Record], Popped]:
        popped = self.ports.pops.pop(request(**values), 0, Answered())  # type: ignore[arg-type]
        assert popped is not None
        return [record for body in popped.body for record in iter_records(body)], popped

    def settled(self, record: Record, popped: Popped, invisible_ms: int = 10_000) -> MessageReceipt:
        info = pop_info.ExtraInfo(
            popped.starts["0", str(record.queue_id)],
            popped.pop_time_ms,
            invisible_ms,
            popped.revive_queue,
            "0",
            "broker-a",
            record.queue_id,
            record.queue_offset,
        )
        return MessageReceipt("cg", "T", record.queue_id, record.queue_offset, info.encode())

    def taken(self, record: Record, popped: Popped, *, in_order: bool = False) -> Taken:
        start = popped.starts["0", str(record.queue_id)]
        return Taken("T", "cg", record.queue_id, start, popped.pop_time_ms, in_order)

    async def give_up(
        self, settled: MessageReceipt, reason: str = "no good", client: str = "client-1"
    ) -> None:
        outcome = self.ports.settling.give_up(settled, reason, client)
        if isawaitable(outcome):
            await outcome

    async def acknowledge(self, settled: MessageReceipt) -> None:
        outcome = self.ports.settling.acknowledge(settled)
        if isawaitable(outcome):
            await outcome

    @property
    def in_flight(self) -> int:
        return len(self.broker.part(PopRevive).state.in_flight)

    def now(self) -> int:
        return self.runtime.clock.now_ms()


@asynccontextmanager
async def staged(
    runtime: SimulatedRuntime, *, ordered: bool = False
) -> AsyncIterator[tuple[Stage, BrokerPeer]]:
    stage = Stage(runtime)
    await stage.start()
    try:
        async with BrokerPeer(runtime) as peer:
            await peer.create("T", readQueueNums=1, writeQueueNums=1)
            if ordered:
                group = b'{"groupName":"cg","consumeMessageOrderly":true}'
                await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
            yield stage, peer
    finally:
        await stage.broker.stop()


# -- longer invisible times ----------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
async def test_more_time_under_the_same_receipt(orbitmq_runtime: SimulatedRuntime, ordered: bool) -> None:
    async with staged(orbitmq_runtime, ordered=ordered) as (stage, peer):
        await peer.sent(b"one")
        await peer.sent(b"two")
        (one, two), popped = stage.take(ordered=ordered)
        for _ in range(5):
            await asyncio.sleep(8)
            assert stage.ports.settling.extend(stage.taken(one, popped, in_order=ordered), 10_000)
            assert stage.take(ordered=ordered)[0] == []
        await stage.acknowledge(stage.settled(one, popped))
        assert stage.ports.settling.extend(stage.taken(one, popped, in_order=ordered), 60_000)
        began = stage.now()
        while not (again := stage.take(ordered=ordered)[0]):
            await asyncio.sleep(0.1)
        assert [record.body for record in again] == [b"two"]
        assert 60_000 <= stage.now() - began <= 61_000
        with pytest.raises(RemotingError):
            await stage.acknowledge(stage.settled(two, popped))
        assert not stage.ports.settling.extend(stage.taken(one, popped, in_order=ordered), 10_000)


@pytest.mark.parametrize("ordered", [False, True])
async def test_less_time_than_before(orbitmq_runtime: SimulatedRuntime, ordered: bool) -> None:
    async with staged(orbitmq_runtime, ordered=ordered) as (stage, peer):
        await peer.sent(b"one")
        (one,), popped = stage.take(invisible_ms=3_600_000, ordered=ordered)
        waiting = asyncio.ensure_future(pop(peer, order=ordered, poll_time=20_000))
        await asyncio.sleep(1)
        began = stage.now()
        assert stage.ports.settling.extend(stage.taken(one, popped, in_order=ordered), 1)
        assert (await waiting).bodies == [b"one"]
        assert stage.now() - began < 1000


async def test_no_more_time_for_what_is_done_or_never_was(orbitmq_runtime: SimulatedRuntime) -> None:
    async with staged(orbitmq_runtime) as (stage, peer):
        await peer.sent(b"one")
        (one,), popped = stage.take()
        assert not stage.ports.settling.extend(Taken("T", "other", 0, 0, popped.pop_time_ms, False), 1000)
        assert not stage.ports.settling.extend(Taken("T", "cg", 0, 0, popped.pop_time_ms, True), 1000)
        await stage.acknowledge(stage.settled(one, popped))
        assert not stage.ports.settling.extend(stage.taken(one, popped), 1000)
        for time_ms in (0, 4 * 86_400_000):
            with pytest.raises(RemotingError, match="invisibleTime"):
                stage.ports.settling.extend(stage.taken(one, popped), time_ms)


async def test_more_time_outlives_a_restart(orbitmq_runtime: SimulatedRuntime) -> None:
    async with staged(orbitmq_runtime) as (stage, peer):
        await peer.sent(b"one")
        (one,), popped = stage.take()
        assert stage.ports.settling.extend(stage.taken(one, popped), 120_000)
        await stage.broker.stop()
        await stage.start()
        await asyncio.sleep(100)
        assert stage.take()[0] == []
        await stage.acknowledge(stage.settled(one, popped))
        assert stage.in_flight == 0


# -- dead letters --------------------------------------------------------------------------------------


async def dead_letters(peer: BrokerPeer) -> list[Record]:
    answer = await peer.pull(topic=DEAD)
    return records(answer) if answer.body else []


@pytest.mark.behaviour("GW-28")
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_that_is_given_up_is_one_dead_letter(
    orbitmq_runtime: SimulatedRuntime, ordered: bool
) -> None:
    async with staged(orbitmq_runtime, ordered=ordered) as (stage, peer):
        await peer.sent(b"poison", properties={"UNIQ_KEY": "id-1"})
        await peer.sent(b"good")
        (poison, good), popped = stage.take(ordered=ordered)
        settled = stage.settled(poison, popped)
        await stage.give_up(settled)
        for again in (stage.give_up, stage.acknowledge):
            with pytest.raises(RemotingError) as caught:
                await again(settled)
            assert caught.value.code == ResponseCode.NO_MESSAGE
        await stage.acknowledge(stage.settled(good, popped))
        await asyncio.sleep(30)
        assert stage.take(ordered=ordered)[0] == []
        assert stage.in_flight == 0
        (dead,) = await dead_letters(peer)
        assert dead.body == b"poison"
        properties = decode_properties(dead.properties)
        assert properties["UNIQ_KEY"] == "id-1"
        assert properties["DLQ_ORIGIN_TOPIC"] == "T"
        assert properties["DLQ_ORIGIN_MESSAGE_ID"] == poison.message_id
        assert (properties["DLQ_REASON"], properties["DLQ_CLIENT"]) == ("no good", "client-1")


@pytest.mark.behaviour("GW-28")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("step", range(12))
async def test_a_crash_leaves_one_dead_letter_or_one_message_and_never_both(
    orbitmq_runtime: SimulatedRuntime, ordered: bool, step: int
) -> None:
    """Power is lost after each step of the way to the dead letter."""
    async with staged(orbitmq_runtime, ordered=ordered) as (stage, peer):
        await peer.sent(b"poison")
        await asyncio.sleep(6)
        (poison,), popped = stage.take(ordered=ordered, invisible_ms=30_000)
        await asyncio.sleep(6)
        giving_up = asyncio.ensure_future(stage.give_up(stage.settled(poison, popped, 30_000)))
        await asyncio.sleep(step * 0.002)
        answered = giving_up.done()
        await stage.kill()
        giving_up.cancel()
        await asyncio.gather(giving_up, return_exceptions=True)
        await stage.start()
        again = []
        for _ in range(50):
            await asyncio.sleep(1)
            again += stage.take(ordered=ordered)[0]
        dead = await dead_letters(peer)
        assert len(dead) + bool(again) == 1, (dead, again)
        assert dead or not answered, "it was answered, so it is a dead letter"


# -- waiting -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-23")
async def test_a_pop_leaves_when_its_client_does(orbitmq_runtime: SimulatedRuntime) -> None:
    async with staged(orbitmq_runtime) as (stage, peer):
        pops = stage.ports.pops
        first, second = Answered(), Answered()
        for client in (first, second):
            assert pops.pop(request(), 20_000, client) is None
        assert pops.waiting("cg", "T", -1) == 2
        pops.leave(request(), first)
        assert pops.waiting("cg", "T", -1) == 1
        pops.leave(request(), first)
        await peer.sent(b"one")
        await asyncio.sleep(0.1)
        assert first.popped is None
        assert second.popped is not None
        assert second.popped.count == 1


async def test_a_receipt_made_of_a_port_is_one_of_the_wire(orbitmq_runtime: SimulatedRuntime) -> None:
    async with staged(orbitmq_runtime) as (stage, peer):
        await peer.sent(b"one")
        (one,), popped = stage.take()
        settled = stage.settled(one, popped)
        answer = await ack(peer, (settled.queue_id, settled.offset, settled.receipt))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
