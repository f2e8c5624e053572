"""Timers while a broker changes its role, loses its disk, or reports its state."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.conversation.broker_peer import BrokerPeer, records

from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import TIMERS, FeedEntry
from orbitmq.broker.role import Role
from orbitmq.broker.timers.pending import TOPIC
from orbitmq.broker.timers.progress import TimerProgress, all_of, mark
from orbitmq.broker.timers.service import TimerService
from orbitmq.testing.machine.memory_files import MemoryFiles
from orbitmq.wire.codes import RequestCode, ResponseCode


async def put(peer: BrokerPeer, body: bytes, delay_ms: int) -> int:
    answer = await peer.send(body, properties={"TIMER_DELAY_MS": str(delay_ms), "UNIQ_KEY": body.decode()})
    return answer.code


async def bodies(peer: BrokerPeer) -> list[bytes]:
    return [record.body for record in records(await peer.pull())]


@pytest.mark.behaviour("SS-02")
async def test_timers_wait_for_a_broker_that_leads(broker: Broker, peer: BrokerPeer) -> None:
    await peer.send(b"first")
    for number in range(20):
        assert await put(peer, b"%d" % number, 5000 + number * 1000) == ResponseCode.SUCCESS
    await asyncio.sleep(10.5)
    done = [b"first", *(b"%d" % number for number in range(6))]
    assert await bodies(peer) == done
    await broker.change_role(Role.SLAVE)
    await asyncio.sleep(10)
    store = broker.services.store
    assert store.max_offset("T", 0) == len(done)
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(1)
    assert await bodies(peer) == [b"first", *(b"%d" % number for number in range(17))]
    await asyncio.sleep(10)
    assert await bodies(peer) == [b"first", *(b"%d" % number for number in range(20))]
    # An acting master has no queue to deliver to; as a master again, the broker delivers the remaining
    # messages.
    assert await put(peer, b"last", 3000) == ResponseCode.SUCCESS
    await broker.change_role(Role.SLAVE)
    await broker.change_role(Role.ACTING_MASTER)
    await asyncio.sleep(10)
    assert store.max_offset("T", 0) == 21
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(2)
    assert (await bodies(peer))[20:] == [b"19", b"last"]


@pytest.mark.behaviour("SS-02")
async def test_what_is_in_a_log_that_came_back_is_not_delivered_again(
    broker: Broker, peer: BrokerPeer
) -> None:
    """Seed 17436: a master with an empty log passes on progress that says nothing was due until then."""
    assert await put(peer, b"early", 2000) == ResponseCode.SUCCESS
    await asyncio.sleep(4)
    assert await put(peer, b"late", 60_000) == ResponseCode.SUCCESS
    await asyncio.sleep(1)
    await broker.change_role(Role.FENCED)
    led_until = broker.services.runtime.clock.now_ms()
    broker.part(TimerService).written.write(TimerProgress(all_of(led_until)))
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(100)
    assert await bodies(peer) == [b"early", b"late"]


@pytest.mark.behaviour("TW-18")
async def test_a_slave_whose_log_is_cut_forgets_what_was_behind(broker: Broker, peer: BrokerPeer) -> None:
    await peer.send(b"first")
    for number in range(20):
        assert await put(peer, b"%d" % number, 30_000) == ResponseCode.SUCCESS
    await broker.change_role(Role.SLAVE)
    pending, store = broker.part(TimerService).pending, broker.services.store
    await asyncio.sleep(1)
    assert sum(pending.waiting.values()) == 20
    entry = store.entry(TOPIC, 0, 12)
    assert entry is not None
    await store.truncate(entry[0])
    await asyncio.sleep(1)
    assert (sum(pending.waiting.values()), pending.position) == (12, 12)
    await broker.change_role(Role.MASTER)
    assert await put(peer, b"after", 1000) == ResponseCode.SUCCESS
    await asyncio.sleep(40)
    assert await bodies(peer) == [b"first", b"after", *(b"%d" % number for number in range(12))]


async def put_for_one_second(
    broker: Broker, peer: BrokerPeer, *wanted: tuple[str, bytes], after_ms: int = 10_000
) -> tuple[int, str]:
    """Send messages to these topics, due in the same whole second; returns that time and the last one's
    handle.
    """
    due_ms = broker.runtime.clock.now_ms() // 1000 * 1000 + after_ms
    handle = ""
    for topic, body in wanted:
        properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": body.decode()}
        handle = (await peer.sent(body, topic=topic, properties=properties)).recall_handle or ""
    return due_ms, handle


@pytest.mark.behaviour("TW-18")
async def test_a_slave_keeps_what_its_master_had_not_delivered_of_a_second(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The next slot begins with the last millisecond of this one, so this slot must not be dropped as a whole
    then.
    """
    await peer.send(b"first")
    wanted = [("T", b"%d" % number) for number in range(5)]
    due_ms, _ = await put_for_one_second(broker, peer, *wanted)
    await asyncio.sleep(1)
    await broker.change_role(Role.SLAVE)
    store, written = broker.services.store, broker.part(TimerService).written
    second = store.entry(TOPIC, 0, 1)
    assert second is not None
    told = TimerProgress(mark(due_ms, second[0]), 5, store.end)
    broker.services.feed.apply(FeedEntry(1, 0, TIMERS, "progress", told.plain()))
    assert written.saved == told
    await asyncio.sleep(15)  # the slave drops the messages that its master has delivered
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(1)
    assert await bodies(peer) == [b"first", b"2", b"3", b"4"]


@pytest.mark.behaviour("TW-10")
@pytest.mark.broker(recall_message_enable=True)
async def test_a_recall_counts_while_an_earlier_message_of_its_second_waits(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The progress within the second is saved meanwhile; the recalls of that second have to outlive it."""
    await peer.send(b"first")
    await peer.create("U")
    wanted = [("T", b"delivered"), ("U", b"waits"), ("T", b"recalled")]
    _, handle = await put_for_one_second(broker, peer, *wanted)
    await peer.ok(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle, producerGroup="pg")
    await broker.change_role(Role.SLAVE)
    broker.services.topics.delete("U")  # an acting master's tables may lack the topic for a moment
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(15)
    assert await bodies(peer) == [b"first", b"delivered"]
    await peer.create("U")
    await asyncio.sleep(3)
    assert [record.body for record in records(await peer.pull(topic="U"))] == [b"waits"]
    assert await bodies(peer) == [b"first", b"delivered"]


@pytest.mark.behaviour("TW-10")
@pytest.mark.broker(timer_roll_window_slots=60, recall_message_enable=True)
async def test_a_recall_counts_for_a_message_that_was_stored_again_behind_it(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The last delivered message of that second was also stored again, behind the recall."""
    await peer.send(b"first")
    await peer.create("U")
    wanted = [("T", b"delivered"), ("U", b"waits"), ("T", b"recalled")]
    _, handle = await put_for_one_second(broker, peer, *wanted, after_ms=90_000)
    await peer.ok(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle, producerGroup="pg")
    pending = broker.part(TimerService).pending
    await asyncio.sleep(80)
    assert sum(pending.waiting.values()) == 2  # the recalled message is not counted
    broker.services.topics.delete("U")  # an acting master's tables may lack the topic for a moment
    await broker.change_role(Role.SLAVE)
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(12)
    assert await bodies(peer) == [b"first", b"delivered"]
    await broker.change_role(Role.SLAVE)
    await broker.change_role(Role.MASTER)
    await peer.create("U")
    await asyncio.sleep(3)
    assert [record.body for record in records(await peer.pull(topic="U"))] == [b"waits"]
    assert await bodies(peer) == [b"first", b"delivered"]
    assert sum(pending.waiting.values()) == 0


@pytest.mark.behaviour("TW-10")
@pytest.mark.broker(timer_roll_window_slots=60, recall_message_enable=True)
async def test_a_recall_counts_when_its_message_is_late_for_all_its_waits(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The message was stored again, and is read when its own second is over: the recall has to last until
    then.
    """
    await peer.send(b"first")
    handles = []
    for body in (b"recalled", b"wanted"):
        properties = {"TIMER_DELAY_MS": "90000", "UNIQ_KEY": body.decode()}
        handles.append((await peer.sent(body, properties=properties)).recall_handle or "")
    assert await put(peer, b"later", 95_000) == ResponseCode.SUCCESS
    await peer.ok(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handles[0], producerGroup="pg")
    broker.services.role.may_lead = lambda: False
    await asyncio.sleep(120)
    broker.services.role.may_lead = lambda: True
    await asyncio.sleep(3)
    assert sorted(await bodies(peer)) == [b"first", b"later", b"wanted"]


@pytest.mark.behaviour("TW-11")
@pytest.mark.broker(recall_message_enable=True)
async def test_a_master_without_the_right_to_lead_takes_nothing_back(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The slave may be acting, and may have passed the message to another broker group."""
    await peer.send(b"first")
    _, handle = await put_for_one_second(broker, peer, ("T", b"later"))
    role = broker.services.role
    role.may_lead = lambda: False
    answer = await peer.call(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle)
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert "master and has no right to lead" in (answer.remark or "")
    role.may_lead = lambda: True
    await peer.ok(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle)


@pytest.mark.behaviour("TW-17")
@pytest.mark.broker(timer_roll_window_slots=60)
async def test_a_long_wait_is_cut_at_the_same_place_by_whoever_reads_it(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The timer log is rebuilt after the message was stored again at the end of the log; it is delivered
    once.
    """
    await peer.send(b"first")
    assert await put(peer, b"far", 90_000) == ResponseCode.SUCCESS
    await asyncio.sleep(70)
    timers = broker.part(TimerService)
    assert broker.services.store.max_offset(TOPIC, 0) == 2
    timers.pending.rebuild(timers.written.saved)
    await asyncio.sleep(25)
    assert await bodies(peer) == [b"first", b"far"]


@pytest.mark.behaviour("PO-34")
async def test_a_master_that_serves_does_not_deliver_what_a_slave_that_acted_tells(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The master has to keep the slave's progress instead of delivering these messages and overwriting it.

    The slave's clock is ahead, so its progress reaches the master before the messages are due.
    """
    await peer.send(b"first")
    timers, store = broker.part(TimerService), broker.services.store
    due_ms = broker.runtime.clock.now_ms() + 5000
    for body in (b"delivered there", b"and there", b"not yet"):
        properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": body.decode()}
        assert (await peer.send(body, properties=properties)).code == ResponseCode.SUCCESS
    await asyncio.sleep(1)
    last = store.entry(TOPIC, 0, 1)
    assert last is not None
    told = TimerProgress(mark(due_ms, last[0]), 3, store.end)
    assert await put(peer, b"here", 500) == ResponseCode.SUCCESS
    await asyncio.sleep(1)
    own = timers.written.saved
    broker.services.feed.apply(FeedEntry(1, 0, TIMERS, "progress", told.plain()))
    assert timers.written.saved.covers(own)
    assert await put(peer, b"later", 500) == ResponseCode.SUCCESS
    await asyncio.sleep(1)
    assert await bodies(peer) == [b"first", b"here", b"later"]
    assert not own.covers(timers.written.saved)
    assert timers.written.saved.covers(told), "who goes on here after a crash knows it too"
    await asyncio.sleep(5)
    assert await bodies(peer) == [b"first", b"here", b"later", b"not yet"]


@pytest.mark.behaviour("TW-08")
@pytest.mark.parametrize("operation", ["pwrite", "open_segment", "sync"])
async def test_a_full_disk_delays_and_loses_nothing(broker: Broker, peer: BrokerPeer, operation: str) -> None:
    await peer.send(b"first")
    files = broker.runtime.files
    assert isinstance(files, MemoryFiles)
    accepted = {b"first"}
    for number in range(30):
        if number == 10:
            files.fail(operation, "timerlog" if operation != "pwrite" else "", times=-1)
        if number == 20:
            files.heal()
            await asyncio.sleep(15)
        if await put(peer, b"%d" % number, 1000 + number * 100) == ResponseCode.SUCCESS:
            accepted.add(b"%d" % number)
        await asyncio.sleep(0.3)
    await asyncio.sleep(30)
    found = await bodies(peer)
    assert accepted <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.behaviour("TW-12")
async def test_the_state_of_a_broker_tells_of_timers(broker: Broker, peer: BrokerPeer) -> None:
    for number in range(7):
        await put(peer, b"%d" % number, 60_000)
    await asyncio.sleep(1)
    answer = await peer.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = json.loads(answer.body)["table"]
    assert (table["timerCongestNum"], table["timerOffsetBehind"], table["timerReadBehind"]) == ("7", "0", "0")
