"""A group that pops is moved by other means: by commits of its members, or by a log that loses its end."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import Popped, Restarts, ack, pop

from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import OFFSETS, FeedEntry
from orbitmq.broker.events import LogCut
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.role import Role
from orbitmq.broker.timers.service import TimerService
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode


async def place(peer: BrokerPeer) -> int:
    """The offset from which the group continues when it pulls."""
    answer = await peer.ok(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0)
    return int(answer.ext["offset"])


async def commit(peer: BrokerPeer, offset: int) -> None:
    """Commit an offset, as a member that pulls does."""
    await peer.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0, commitOffset=offset
    )


async def send(peer: BrokerPeer, count: int, name: bytes = b"") -> None:
    for number in range(count):
        await peer.sent(name + b"%d" % number)


async def done(peer: BrokerPeer, popped: Popped, *indexes: int) -> None:
    for index in indexes or range(len(popped.records)):
        answer = await ack(peer, popped.receipt(index))
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def in_order(peer: BrokerPeer) -> Popped:
    return await pop(peer, queue_id=0, order=True, invisible_time=60_000)


async def kill(world: Restarts) -> None:
    """End the process at once; the writes that it has made remain."""
    await world.peer.leave()
    await world.broker._lifecycle.kill()
    world.runtime.files.end_process()
    await world.broker.doors.close()


# -- commits -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PP-14")
async def test_a_clean_stop_leaves_a_group_that_pulls_where_it_is(orbitmq_runtime: SimulatedRuntime) -> None:
    """A clean stop writes check points of one group and offsets of all groups that have popped."""
    world = Restarts(orbitmq_runtime)
    async with world as peer:
        await send(peer, 3)
        await done(peer, await pop(peer))
        await send(peer, 100)
        await commit(peer, 103)
        assert len((await pop(peer, consumer_group="other", max_msg_nums=1)).records) == 1
    async with world as peer:
        assert await place(peer) == 103


@pytest.mark.behaviour("PP-14")
@pytest.mark.parametrize("revived", [False, True], ids=["acknowledged", "revived"])
@pytest.mark.parametrize("offset", [103, 40, 2], ids=["ahead", "back", "back before it"])
async def test_the_end_of_a_delivery_leaves_a_group_that_pulls_where_it_is(
    broker: Broker, peer: BrokerPeer, revived: bool, offset: int
) -> None:
    await send(peer, 3)
    popped = await pop(peer, invisible_time=60_000)
    await done(peer, popped, 1, 2)
    await send(peer, 100)
    await commit(peer, 80)
    await commit(peer, offset)
    if not revived:
        await done(peer, popped, 0)
    await asyncio.sleep(70)
    assert await place(peer) == offset


@pytest.mark.behaviour("PP-14")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_start_leaves_a_group_that_went_back_where_it_is(
    orbitmq_runtime: SimulatedRuntime, killed: bool
) -> None:
    world = Restarts(orbitmq_runtime)
    peer = await world.__aenter__()
    await send(peer, 32)
    await done(peer, await pop(peer))
    await commit(peer, 30)
    if killed:
        await asyncio.sleep(10)
        await kill(world)
    else:
        await world.__aexit__()
    async with world as peer:
        assert await place(peer) == 30
        assert (await pop(peer)).bodies == [b"30", b"31"]


@pytest.mark.behaviour("PP-14")
@pytest.mark.parametrize("wait_s", [0, 10])
async def test_a_group_that_went_back_pops_from_there(
    broker: Broker, peer: BrokerPeer, wait_s: float
) -> None:
    """Messages in flight behind the committed offset are delivered again with the rest, once each."""
    await send(peer, 4)
    popped = await pop(peer, invisible_time=60_000)
    await done(peer, popped, 2)
    await commit(peer, 1)
    await asyncio.sleep(wait_s)
    again = await pop(peer)
    assert again.bodies == [b"1", b"2", b"3"]
    assert (await ack(peer, popped.receipt(3))).code == ResponseCode.NO_MESSAGE
    await done(peer, again)
    await done(peer, popped, 0)
    await asyncio.sleep(70)
    assert (await pop(peer)).bodies == []
    assert await place(peer) == 4


@pytest.mark.behaviour("PP-14")
async def test_a_group_that_went_back_pops_in_order_from_there(broker: Broker, peer: BrokerPeer) -> None:
    await send(peer, 4)
    popped = await in_order(peer)
    await done(peer, popped, 0, 1)
    await commit(peer, 2)
    assert (await in_order(peer)).bodies == [], "that is where it is already: the rest is out"
    await commit(peer, 1)
    again = await in_order(peer)
    assert again.bodies == [b"1", b"2", b"3"]
    await done(peer, again)
    assert await place(peer) == 4


@pytest.mark.behaviour("PP-02", "PP-14")
async def test_what_is_acknowledged_stays_so_when_a_commit_is_lost(orbitmq_runtime: SimulatedRuntime) -> None:
    """The table of messages in flight drops the group only after the group's offset is on disk."""
    world = Restarts(orbitmq_runtime, flush_disk_type="SYNC_FLUSH")
    async with world as peer:
        await send(peer, 4)
    peer = await world.__aenter__()
    await done(peer, await pop(peer))
    await commit(peer, 4)
    other = await pop(peer, consumer_group="other")
    assert (await ack(peer, other.receipt(), group="other")).code == ResponseCode.SUCCESS, "writes the table"
    await kill(world)
    async with world as peer:
        assert (await pop(peer)).bodies == []


@pytest.mark.behaviour("PP-14")
async def test_a_group_that_pulls_is_forgotten_and_pops_again(broker: Broker, peer: BrokerPeer) -> None:
    """Once the first commit is on disk, further commits cost as little as those of a group that never
    popped.
    """
    in_flight = broker.part(PopRevive).state.in_flight
    await send(peer, 3)
    await done(peer, await pop(peer))
    await commit(peer, 1)
    await asyncio.sleep(10)
    assert in_flight.find("T", "cg", 0) is None
    await commit(peer, 2)
    popped = await pop(peer)
    assert popped.bodies == [b"2"]
    await commit(peer, 3)
    await asyncio.sleep(5)
    assert in_flight.find("T", "cg", 0) is not None, "a message is in flight"
    await done(peer, popped)
    assert await place(peer) == 3


@pytest.mark.behaviour("PO-19", "PP-14")
async def test_what_another_broker_tells_is_not_undone_by_an_old_delivery(
    broker: Broker, peer: BrokerPeer
) -> None:
    await send(peer, 2)
    popped = await pop(peer)
    await send(peer, 8)
    broker.services.feed.apply(FeedEntry(1, 0, OFFSETS, "T@cg@0", 9))
    await done(peer, popped)
    assert await place(peer) == 9
    assert (await pop(peer)).bodies == [b"7"]


# -- a log that lost its end ---------------------------------------------------------------------------


async def just_flushed(world: World, peer: BrokerPeer) -> None:
    """Wait for a flush: the next one is five seconds away, and the tables are written before it."""
    await peer.sent(b"flushed", queue_id=1)
    store = world.brokers["broker-a"].services.store
    await world.until(lambda: store.flushed_offset == store.end)


async def lose_power(world: World) -> None:
    """Lose power when the tables are on disk and the last messages are not."""
    await world.sleep(3)
    store = world.brokers["broker-a"].services.store
    assert store.flushed_offset < store.end
    world.crash("broker-a", keep=Keep.NOTHING)


@pytest.mark.behaviour("PP-03", "PP-04")
@pytest.mark.orbitmq(settings={"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"})
@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("ordered", [False, True])
async def test_messages_in_the_place_of_lost_ones_are_dealt_out(
    orbitmq_world: World, ordered: bool, kept: int
) -> None:
    """Power is lost after the acknowledgements reach the disk and before the messages do."""
    world = orbitmq_world
    peer = BrokerPeer(world.runtime, world.brokers["broker-a"].address)
    await peer.create("T")
    await send(peer, kept, b"kept")
    await just_flushed(world, peer)
    await send(peer, 3, b"lost")
    await done(peer, await pop(peer, queue_id=0, order=ordered, invisible_time=60_000))
    await lose_power(world)
    await world.start_broker("broker-a")
    peer = BrokerPeer(world.runtime, world.brokers["broker-a"].address)
    await send(peer, 2, b"new")
    popped = await pop(peer, queue_id=0, order=ordered)
    assert popped.bodies == [b"new0", b"new1"]
    await done(peer, popped)
    assert (await pop(peer, queue_id=0, order=ordered)).bodies == []


@pytest.mark.behaviour("PP-03", "PP-04")
@pytest.mark.orbitmq(settings={"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "60000"})
@pytest.mark.parametrize("ordered", [False, True])
async def test_what_is_delivered_at_the_start_in_the_place_of_lost_messages_is_dealt_out(
    orbitmq_world: World, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed message that is due at the start is stored before any client can send a message.

    That also happens while slower components start, which read a long log of timers.
    """
    begin = TimerService.start

    async def start(self: TimerService) -> None:
        await asyncio.sleep(1)
        await begin(self)

    monkeypatch.setattr(TimerService, "start", start)
    world = orbitmq_world
    peer = BrokerPeer(world.runtime, world.brokers["broker-a"].address)
    await peer.create("T")
    await peer.sent(b"delayed", properties={"DELAY": "3"})
    await just_flushed(world, peer)
    await send(peer, 1, b"lost")
    await done(peer, await pop(peer, queue_id=0, order=ordered, invisible_time=60_000))
    await lose_power(world)
    await world.sleep(20)
    await world.start_broker("broker-a")
    peer = BrokerPeer(world.runtime, world.brokers["broker-a"].address)
    await world.sleep(1)
    assert (await pop(peer, queue_id=0, order=ordered)).bodies == [b"delayed"]


@pytest.mark.behaviour("PP-03", "PP-04", "PO-28")
@pytest.mark.parametrize("ordered", [False, True])
async def test_messages_in_the_place_of_those_that_were_set_aside_are_dealt_out(
    broker: Broker, peer: BrokerPeer, ordered: bool
) -> None:
    """In a batch of which a part remains, acknowledged messages stay acknowledged."""
    await send(peer, 4, b"old")
    popped = await pop(peer, queue_id=0, order=ordered, invisible_time=600_000)
    await done(peer, popped, 1, 3)
    await broker.change_role(Role.SLAVE)
    store = broker.services.store
    entry = store.entry("T", 0, 2)
    assert entry is not None
    await store.truncate(entry[0])
    broker.services.events.publish(LogCut(entry[0]))
    await broker.change_role(Role.PRE_ONLINE)
    await broker.change_role(Role.MASTER)
    await send(peer, 2, b"new")
    assert (await ack(peer, popped.receipt(2))).code == ResponseCode.NO_MESSAGE
    await done(peer, popped, 0)
    assert (await pop(peer, queue_id=0, order=ordered)).bodies == [b"new0", b"new1"]


# -- in order ------------------------------------------------------------------------------------------


async def later(peer: BrokerPeer, popped: Popped, index: int, invisible_ms: int) -> None:
    """Give a message another invisible time."""
    queue_id, offset, info = popped.receipt(index)
    header = headers.ChangeMessageInvisibletimeRequest(
        consumer_group="cg",
        topic="T",
        queue_id=queue_id,
        extra_info=info,
        offset=offset,
        invisible_time=invisible_ms,
    )
    answer = await peer.ask(header.command())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize(
    ("again", "most"),
    [
        pytest.param([b"1"], 32, marks=[pytest.mark.behaviour("PP-04"), pytest.mark.behaviour("PP-02")]),
        pytest.param(
            [b"1", b"2"],
            32,
            marks=[pytest.mark.broker(pop_order_repeats_done=True), pytest.mark.behaviour("PP-17")],
        ),
        pytest.param(
            [b"1", b"2"],
            1,
            marks=[pytest.mark.broker(pop_order_repeats_done=True), pytest.mark.behaviour("PP-17")],
        ),
    ],
)
async def test_what_is_acknowledged_in_order_behind_a_message_that_comes_again(
    broker: Broker, peer: BrokerPeer, again: list[bytes], most: int
) -> None:
    """The second of three messages gets another invisible time, the third is acknowledged."""
    await send(peer, 3)
    popped = await in_order(peer)
    await done(peer, popped, 0)
    await later(peer, popped, 1, 5000)
    await done(peer, popped, 2)
    assert (await in_order(peer)).bodies == []
    await asyncio.sleep(6)
    bodies: list[bytes] = []
    while (
        popped := await pop(peer, queue_id=0, order=True, invisible_time=60_000, max_msg_nums=most)
    ).bodies:
        bodies += popped.bodies
        await done(peer, popped)
    assert bodies == again
    assert await place(peer) == 3
