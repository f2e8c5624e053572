"""Messages whose properties just fit into a record, in cases where the broker adds properties to them.

A record holds 32,767 bytes of properties; a producer's may take that less the bytes that the broker adds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, records, send_request
from tests.conversation.test_broker_pop import Popped, Restarts, ack, pop
from tests.conversation.test_broker_transactions import COMMIT, HALF, end_request, prepared

from orbitmq.broker.broker import Broker
from orbitmq.broker.messaging.stored import record_of
from orbitmq.message.batch import item_parts
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import Record, iter_records
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.send import SendMessageResponse

LIMIT = 32_767
# The longest value that a producer can send: the property's name, the unique id and the broker's own
# properties need the rest.
LONGEST = 32_660
RETRY, DEAD = "%RETRY%cg_T", "%DLQ%cg"


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    return list(iter_records(broker.services.store.get(topic, queue_id, 0, 1000).body))


async def send_items(peer: BrokerPeer, *items: tuple[bytes, bytes], topic: str = "T") -> None:
    """Send a batch of bodies with properties; the broker adds no properties to the items of a batch."""
    body = b"".join(b"".join(item_parts(0, each, properties)) for each, properties in items)
    answer = await peer.ask(send_request(topic, batch=True).command(body))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def send_back(peer: BrokerPeer, record: Record, level: int = 0) -> Command:
    return await peer.call(
        RequestCode.CONSUMER_SEND_MSG_BACK, group="cg", offset=record.physical_offset, delayLevel=level
    )


async def first_pulled(peer: BrokerPeer) -> Record:
    return records(await peer.pull(0))[0]


async def drained(peer: BrokerPeer, seconds: int = 60) -> list[Popped]:
    """The non-empty answers to pops during this time; each message is acknowledged at once."""
    found: list[Popped] = []
    end = peer.now() + seconds * 1000
    while peer.now() < end:
        popped = await pop(peer, poll_time=5000, invisible_time=5000)
        assert popped.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), popped.remark
        if popped.records:
            found.append(popped)
        for index, record in enumerate(popped.records):
            info = decode_properties(record.properties).get("POP_CK")
            again = (record.queue_id, record.queue_offset, info or "")
            done = ack(peer, again, topic=RETRY) if info else ack(peer, popped.receipt(index))
            assert (await done).code == ResponseCode.SUCCESS
    return found


def bodies(answers: Sequence[Popped]) -> list[bytes]:
    return sorted(body for popped in answers for body in popped.bodies)


async def die(world: Restarts, how: str) -> None:
    await world.peer.leave()
    await world.broker._lifecycle.kill()
    if how == "power":
        world.runtime.files.crash(keep=Keep.NOTHING)
    else:
        world.runtime.files.end_process()
    await world.broker.doors.close()


# -- redelivery ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PP-13")
@pytest.mark.parametrize("how", ["power", "kill"])
async def test_a_long_message_that_came_again_harms_nothing_behind_it(
    orbitmq_runtime: SimulatedRuntime, how: str
) -> None:
    world = Restarts(orbitmq_runtime, flush_disk_type="SYNC_FLUSH")
    peer = await world.__aenter__()
    await peer.create("U")
    await peer.sent(b"big", properties={"a": "x" * LONGEST})
    assert (await pop(peer, invisible_time=1_000)).bodies == [b"big"]
    while not world.broker.services.store.max_offset(RETRY, 0):
        await asyncio.sleep(0.005)
    for number in range(5):
        await peer.sent(b"later %d" % number, topic="U")
    await die(world, how)
    async with world as peer:
        assert len(stored(world.broker, "U")) == 5
        again = await drained(peer)
        assert bodies(again) == [b"big"]
        [record] = again[0].records
        assert (record.topic, record.reconsume_times) == ("T", 1)
        assert decode_properties(record.properties)["a"] == "x" * LONGEST


@pytest.mark.behaviour("PP-13")
@pytest.mark.orbitmq(replicas=2, settings={"flushDiskType": "SYNC_FLUSH"})
async def test_a_slave_copies_what_is_behind_a_long_message_that_came_again(orbitmq_world: World) -> None:
    world = orbitmq_world
    broker, slave = world.brokers["broker-a"], world.brokers["broker-a-1"]
    peer = BrokerPeer(world.runtime, broker.address)
    await peer.create("U")
    await peer.sent(b"big", properties={"a": "x" * LONGEST})
    await pop(peer, invisible_time=1_000)
    await world.sleep(5)
    await peer.sent(b"later", topic="U")
    await world.sleep(5)
    assert [len(stored(each, RETRY)) for each in (broker, slave)] == [1, 1]
    assert slave.services.store.max_offset("U", 0) == 1


@pytest.mark.behaviour("PP-13")
@pytest.mark.parametrize("length", [32_500, 32_593, 32_620, 32_640, LONGEST])
async def test_a_long_message_and_its_neighbours_come_again(
    broker: Broker, peer: BrokerPeer, length: int
) -> None:
    await peer.sent(b"big", properties={"a": "x" * length})
    for number in range(4):
        await peer.sent(b"%d" % number)
    assert len((await pop(peer, invisible_time=1_000)).bodies) == 5
    assert bodies(await drained(peer)) == [b"0", b"1", b"2", b"3", b"big"]
    assert not stored(broker, DEAD)


@pytest.mark.behaviour("PP-13")
@pytest.mark.parametrize("block", [b"a\x01" + b"x" * 32_760 + b"\x02", b"a\x01" + b"\xff" * 20_000 + b"\x02"])
async def test_a_message_without_room_for_a_receipt_is_a_dead_letter(
    broker: Broker, peer: BrokerPeer, caplog: pytest.LogCaptureFixture, block: bytes
) -> None:
    """In the second block each byte is invalid UTF-8 and becomes three when the properties are
    encoded again.
    """
    await send_items(peer, (b"0", b""), (b"big", block), (b"1", b""))
    assert len((await pop(peer, invisible_time=1_000)).bodies) == 3
    with caplog.at_level(logging.ERROR):
        assert bodies(await drained(peer)) == [b"0", b"1"]
    [dead] = stored(broker, DEAD)
    assert (dead.body, dead.properties, dead.reconsume_times) == (b"big", block, 1)
    [line] = [each for each in caplog.messages if "no room" in each]
    assert "message" in line
    assert "group cg" in line


@pytest.mark.behaviour("PP-13")
@pytest.mark.parametrize("neighbours", [0, 3])
async def test_a_message_of_a_retry_topic_without_room_for_a_receipt_is_given_up_alone(
    broker: Broker, peer: BrokerPeer, neighbours: int
) -> None:
    """The message is stored as a broker of another make, or an older version, has put it there."""
    services = broker.services
    await peer.sent(b"first")
    await drained(peer, 10)
    services.topics.create_if_absent(RETRY, 1)
    block = b"a\x01" + b"x" * 32_760 + b"\x02"
    many = [NewMessage(RETRY, 0, b"big", block)]
    many += [NewMessage(RETRY, 0, b"%d" % number, b"") for number in range(neighbours)]
    services.append.put_many(many)
    services.append.write()
    assert bodies(await drained(peer)) == [b"%d" % number for number in range(neighbours)]
    assert [(each.body, each.properties) for each in stored(broker, DEAD)] == [(b"big", block)]


@pytest.mark.behaviour("PE-06")
async def test_a_redelivery_that_is_refused_holds_up_no_other(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = broker.services.append
    put_many = append.put_many
    refuses = True

    def refuse(messages: list[NewMessage]) -> Any:
        if refuses and messages[0].body == b"bad" and messages[0].topic == RETRY:
            raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "refused")
        return put_many(messages)

    monkeypatch.setattr(append, "put_many", refuse)
    for body in (b"0", b"bad", b"1"):
        await peer.sent(body)
    assert len((await pop(peer, invisible_time=1_000)).bodies) == 3
    assert bodies(await drained(peer)) == [b"0", b"1"]
    refuses = False
    assert bodies(await drained(peer, 120)) == [b"bad"]


@pytest.mark.behaviour("PP-08")
async def test_a_message_that_was_delivered_as_often_as_a_number_can_say_is_a_dead_letter(
    broker: Broker, peer: BrokerPeer
) -> None:
    await peer.sent(b"old", reconsume_times=0x7FFFFFFF)
    await peer.sent(b"new")
    assert len((await pop(peer, invisible_time=1_000)).bodies) == 2
    assert bodies(await drained(peer)) == [b"new"]
    assert [each.reconsume_times for each in stored(broker, DEAD)] == [0x7FFFFFFF]


@pytest.mark.behaviour("PP-06")
async def test_a_topic_whose_retry_topic_would_have_no_name_is_not_popped(
    broker: Broker, peer: BrokerPeer
) -> None:
    topic = "%DLQ%" + "x" * 250
    await peer.create(topic)
    await peer.sent(b"x", topic=topic)
    refused = await pop(peer, topic=topic)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "265 characters, limit 255" in (refused.remark or "")


# -- sending back --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("DQ-11")
async def test_a_long_dead_letter_harms_nothing_behind_it(orbitmq_runtime: SimulatedRuntime) -> None:
    world = Restarts(orbitmq_runtime, flush_disk_type="SYNC_FLUSH")
    peer = await world.__aenter__()
    await peer.create("U")
    await peer.sent(b"big", properties={"a": "x" * LONGEST})
    answer = await send_back(peer, await first_pulled(peer), -1)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    for number in range(5):
        await peer.sent(b"later %d" % number, topic="U")
    await die(world, "power")
    async with world as peer:
        assert len(stored(world.broker, "U")) == 5
        [dead] = stored(world.broker, DEAD)
        properties = decode_properties(dead.properties)
        assert properties["a"] == "x" * LONGEST
        assert properties["RETRY_TOPIC"] == "T"
        assert properties["UNIQ_KEY"]


@pytest.mark.behaviour("DQ-11")
async def test_a_long_message_that_its_consumer_gives_up_itself_is_a_dead_letter(
    broker: Broker, peer: BrokerPeer
) -> None:
    """The consumer sends the message to the retry topic itself, with properties beyond a producer's limit."""
    await peer.sent(b"x")
    await first_pulled(peer)
    long = {"a": "x" * 32_690, "UNIQ_KEY": "k", "RETRY_TOPIC": "T"}
    await peer.sent(
        b"big",
        topic="%RETRY%cg",
        properties=long,
        reconsume_times=17,
        max_reconsume_times=16,
        unit_mode=False,
    )
    [dead] = stored(broker, DEAD)
    assert decode_properties(dead.properties)["a"] == long["a"]


@pytest.mark.behaviour("SB-18")
@pytest.mark.parametrize(
    ("block", "delay_s"),
    [
        (encode_properties({"a": "x" * (LONGEST - 60)}), 10),
        (b"a\x01" + b"x" * 32_760 + b"\x02", 0),
        (b"a\x01" + b"\xff" * 20_000 + b"\x02", 0),
    ],
)
async def test_a_long_message_that_is_sent_back_comes_again(
    broker: Broker, peer: BrokerPeer, block: bytes, delay_s: int
) -> None:
    """Without space for the property with the end of its delay, it is redelivered at once, with its delivery
    counted.
    """
    await peer.sent(b"0")
    await send_items(peer, (b"big", block))
    record = records(await peer.pull(0))[1]
    start = peer.now()
    assert (await send_back(peer, record)).code == ResponseCode.SUCCESS
    found: list[Record] = []
    while not found:
        await asyncio.sleep(0.1)
        found = stored(broker, "%RETRY%cg")
    assert delay_s * 1000 <= peer.now() - start <= delay_s * 1000 + 1000
    [again] = found
    assert (again.body, again.reconsume_times) == (b"big", 1)
    assert decode_properties(again.properties)["a"] == decode_properties(block)["a"]
    if not delay_s:
        assert again.properties == block
    assert (await send_back(peer, again, -1)).code == ResponseCode.SUCCESS
    assert [each.reconsume_times for each in stored(broker, DEAD)] == [2]


# -- waiting -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("TW-11")
@pytest.mark.broker(recall_message_enable=True)
async def test_a_recall_whose_properties_would_be_too_long_is_refused(
    broker: Broker, peer: BrokerPeer
) -> None:
    sent = await peer.sent(b"later", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "u" * 20_000})
    end = broker.services.store.end
    answer = await peer.call(
        RequestCode.RECALL_MESSAGE, producerGroup="pg", topic="T", recallHandle=sent.recall_handle or ""
    )
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "limit 32767 bytes" in (answer.remark or "")
    assert broker.services.store.end == end
    await asyncio.sleep(11)
    assert [each.body for each in stored(broker, "T")] == [b"later"]


def halves(broker: Broker, length: int, **properties: str) -> Command:
    long = {"UNIQ_KEY": "u", **properties, "a": "x" * length}
    return prepared(broker, "pg", 4, long, topic="T").command(b"half")


@pytest.mark.behaviour("TW-05")
@pytest.mark.parametrize("how", [{"TIMER_DELAY_SEC": "1"}, {"DELAY": "1"}, {}])
async def test_the_longest_half_message_that_is_taken_can_be_committed(
    broker: Broker, peer: BrokerPeer, how: Mapping[str, str]
) -> None:
    await peer.create("T", writeQueueNums=4, readQueueNums=4)
    length = LIMIT
    while (answer := await peer.ask(halves(broker, length, **how))).code == ResponseCode.MESSAGE_ILLEGAL:
        length -= 1 if length < 32_600 else 20
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    half = SendMessageResponse.from_ext(answer.ext)
    [lying] = stored(broker, HALF)
    end = end_request(half.queue_offset, lying.physical_offset, COMMIT)
    answer = await peer.ask(end.command())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await asyncio.sleep(3)
    assert [each.body for each in stored(broker, "T", 2)] == [b"half"]


@pytest.mark.behaviour("DL-11")
async def test_a_message_stored_under_a_higher_limit_comes_under_a_lower_one(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    mib = 1024 * 1024
    files = {"mapped_file_size_commit_log": 20 * mib}
    body = b"x" * (7 * mib)
    world = Restarts(orbitmq_runtime, max_message_size=8 * mib, **files)
    async with world as peer:
        await peer.create("T")
        await peer.sent(b"first")
        assert (await peer.send(body, properties={"DELAY": "2"})).code == ResponseCode.SUCCESS
    async with Restarts(orbitmq_runtime, **files) as peer:
        refused = await peer.send(body)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        await asyncio.sleep(6)
        pulled = records(await peer.pull(1))
        assert [len(each.body) for each in pulled] == [len(body)]


# -- the guard -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("MV-14")
@pytest.mark.parametrize("count", [1, 3])
async def test_no_writer_gets_longer_properties_into_the_log(
    broker: Broker, peer: BrokerPeer, count: int
) -> None:
    services = broker.services
    await peer.sent(b"first")
    end = services.store.end
    many = [NewMessage("T", 0, b"x", b"") for _ in range(count - 1)]
    many.append(NewMessage("T", 0, b"x", b"a" * (LIMIT + 1)))
    with pytest.raises(RemotingError, match=r"properties of 32768 bytes, limit 32767 bytes") as refused:
        services.append.put_many(many)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert services.store.end == end
    services.append.put_many([NewMessage("T", 0, b"longest", b"a" * LIMIT)])
    services.append.write()
    assert [len(each.properties) for each in stored(broker, "T")][1:] == [LIMIT]


@pytest.mark.behaviour("MV-15")
async def test_properties_with_zeros_are_refused(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"first")
    end = broker.services.store.end
    zero = {"a": "1", "colour": "b\0lue"}
    answer = await peer.ask(send_request(properties=zero).command(b"x"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "a property holds the character U+0000" in answer.remark
    items = [(b"x", encode_properties({"a": "1"})), (b"y", encode_properties(zero))]
    body = b"".join(b"".join(item_parts(0, each, properties)) for each, properties in items)
    answer = await peer.ask(send_request(batch=True).command(body))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.services.store.end == end


@pytest.mark.behaviour("MV-14")
async def test_sends_around_the_limit_are_taken_whole_or_refused(orbitmq_runtime: SimulatedRuntime) -> None:
    world = Restarts(orbitmq_runtime, flush_disk_type="SYNC_FLUSH")
    peer = await world.__aenter__()
    lengths = range(LONGEST + 25, LONGEST + 35)
    taken = [
        length
        for length in lengths
        if (await peer.send(properties={"a": "x" * length, "UNIQ_KEY": "u"})).code == ResponseCode.SUCCESS
    ]
    assert 0 < len(taken) < len(lengths)
    await die(world, "kill")
    async with world:
        store = world.broker.services.store
        found = [record_of(store, "T", 0, offset) for offset in range(store.max_offset("T", 0))]
        assert [len(decode_properties(each.properties)["a"]) for each in found if each] == taken
        assert max(len(each.properties) for each in found if each) == LIMIT
