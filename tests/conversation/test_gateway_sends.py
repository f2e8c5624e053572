"""SendMessage: the stored records, and the responses to senders."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from tests.conversation.broker_peer import BrokerPeer, hang, records
from tests.conversation.grpc_rpc import BODY_LIMIT, RpcClient, message

from orbitmq.broker.broker import Broker
from orbitmq.gateway.messages import timestamp
from orbitmq.gateway.schema import Encoding, MessageType
from orbitmq.gateway.status import Code
from orbitmq.message.compression import compress
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, to_received
from orbitmq.message.sysflag import CompressionType, with_compression
from orbitmq.store import NewMessage
from orbitmq.testing import SimulatedRuntime

MIB = 1024 * 1024


async def queues(peer: BrokerPeer, topic: str = "T", count: int = 8) -> list[list[Record]]:
    """The records in each queue."""
    found = []
    for queue_id in range(count):
        answer = await peer.pull(topic=topic, queue_id=queue_id)
        found.append(records(answer) if answer.body else [])
    return found


@pytest.mark.behaviour("GW-20")
async def test_messages_of_a_request_are_stored_one_by_one_in_their_order(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    answer = await rpc.send(
        *(message(b"%d" % number, id=f"id-{number}", message_group="g") for number in range(5))
    )
    assert answer.status.code == Code.OK
    assert [entry.message_id for entry in answer.entries] == [f"id-{number}" for number in range(5)]
    assert [entry.offset for entry in answer.entries] == [0, 1, 2, 3, 4]
    async with BrokerPeer(grpc_broker.runtime) as peer:
        (stored,) = [each for each in await queues(peer) if each]
    assert [record.body for record in stored] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.behaviour("GW-18")
async def test_a_message_alone_is_stored_and_answered_as_one_among_others(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    values = {
        "properties": {"color": "red", "size": "é"},
        "message_group": "g",
        "tag": "T1",
        "keys": ["k1", "k2"],
        "born_host": "host",
        "trace_context": "trace",
    }
    # A message without a birth time gets its time of arrival.
    born = timestamp(1_700_000_000_123)
    plain = message(b"alone", id="id", born_timestamp=born)
    full = message(b"full", id="id", born_timestamp=born, **values)
    await rpc.sent(b"makes the topic")
    for each in (plain, full):
        alone = await rpc.send(each)
        several = await rpc.send(each, each)
        assert alone.status == several.entries[0].status
        assert alone.entries[0].message_id == several.entries[1].message_id == "id"
    found = [each for queue in await queues_of(grpc_broker) for each in queue]
    for body in (b"alone", b"full"):
        same = [each for each in found if each.body == body]
        assert len(same) == 3
        shown = {(each.properties, each.sys_flag, each.born_host, each.flag) for each in same}
        assert len(shown) == 1, shown


async def queues_of(broker: Broker) -> list[list[Record]]:
    async with BrokerPeer(broker.runtime) as peer:
        return await queues(peer)


@pytest.mark.behaviour("GW-20")
async def test_each_message_has_a_result_of_its_own(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.send(message(b"one"), message(b""), message(b"three"), message(b"x", topic="a b"))
    assert answer.status.code == Code.MULTIPLE_RESULTS
    codes = [Code(entry.status.code).name for entry in answer.entries]
    assert codes == ["OK", "MESSAGE_BODY_EMPTY", "OK", "ILLEGAL_TOPIC"]
    assert (answer.entries[1].message_id, answer.entries[1].offset) == ("", 0)
    assert sorted((await rpc.receive()).bodies) == [b"one", b"three"]
    alone = await rpc.send(message(b""))
    assert alone.status.code == Code.MESSAGE_BODY_EMPTY
    assert alone.status.message == alone.entries[0].status.message == "the message body is empty"
    nothing = await rpc.send()
    assert nothing.status.code == Code.MESSAGE_CORRUPTED


@pytest.mark.behaviour("GW-20")
async def test_an_answer_says_that_the_message_is_on_disk(
    grpc_broker: Broker, rpc: RpcClient, orbitmq_runtime: SimulatedRuntime
) -> None:
    await rpc.sent(b"first")
    hang(orbitmq_runtime)
    store = grpc_broker.services.store
    sending = asyncio.ensure_future(rpc.send(message(b"second")))
    await asyncio.sleep(2)
    assert not sending.done()
    assert store.flushed_offset < store.max_commit_log_offset
    answer = await sending
    assert answer.status.code == Code.MASTER_PERSISTENCE_TIMEOUT, "syncFlushTimeout is 5 s"
    assert answer.entries[0].message_id == ""


@pytest.mark.behaviour("GW-17")
async def test_messages_of_a_group_lie_in_one_queue(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    for number in range(12):
        await rpc.sent(b"%d" % number, message_group=f"g-{number % 3}")
    async with BrokerPeer(grpc_broker.runtime) as peer:
        filled = [[record.body for record in each] for each in await queues(peer) if each]
    groups = [{int(body) % 3 for body in bodies} for bodies in filled]
    assert sorted(len(bodies) for bodies in filled) == [4 * len(each) for each in sorted(groups, key=len)]
    for bodies in filled:
        assert bodies == sorted(bodies, key=int)


@pytest.mark.behaviour("GW-17")
async def test_other_messages_are_spread_over_the_queues(grpc_broker: Broker, rpc: RpcClient) -> None:
    for number in range(60):
        await rpc.sent(b"%d" % number)
    async with BrokerPeer(grpc_broker.runtime) as peer:
        assert sum(bool(each) for each in await queues(peer)) >= 6


@pytest.mark.behaviour("GW-18")
async def test_a_remoting_consumer_gets_the_same_message(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.send(
        message(
            b"body",
            id="01AABB",
            properties={"colour": "red"},
            tag="tag",
            keys=["k1", "k2"],
            born_timestamp=timestamp(1_700_000_000_123),
            born_host="client.example",
            message_type=MessageType.NORMAL,
        )
    )
    assert answer.entries[0].message_id == "01AABB"
    async with BrokerPeer(grpc_broker.runtime) as peer:
        (stored,) = [record for each in await queues(peer) for record in each]
    got = to_received(stored, "broker-a")
    assert (got.body, got.tags, got.keys, got.message_id) == (b"body", "tag", ["k1", "k2"], "01AABB")
    properties = decode_properties(stored.properties)
    assert properties["colour"] == "red"
    assert properties["__BORNHOST"] == "client.example"
    assert properties["PGROUP"] == "T"
    assert (stored.born_timestamp, stored.born_host[0]) == (1_700_000_000_123, "127.0.0.1")
    (again,) = (await rpc.receive()).messages
    system = again.system_properties
    assert (again.body, system.tag, list(system.keys)) == (b"body", "tag", ["k1", "k2"])
    assert dict(again.user_properties) == {"colour": "red"}
    assert (system.message_id, system.born_host) == ("01AABB", "client.example")


@pytest.mark.behaviour("GW-18")
async def test_a_message_of_a_remoting_producer_is_the_same(grpc_broker: Broker, rpc: RpcClient) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T")
        properties = {"UNIQ_KEY": "0A0B", "TAGS": "tag", "KEYS": "k1 k2", "colour": "red"}
        await peer.sent(b"body", properties=properties, queue_id=1)
    (got,) = (await rpc.receive()).messages
    system = got.system_properties
    assert (got.topic.name, got.body, dict(got.user_properties)) == ("T", b"body", {"colour": "red"})
    assert (system.message_id, system.tag, list(system.keys)) == ("0A0B", "tag", ["k1", "k2"])
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (1, 0, 1)
    assert system.message_type == MessageType.NORMAL
    assert system.born_host.startswith("127.0.0.1:")
    assert system.store_host == "127.0.0.1:10911"


@pytest.mark.behaviour("GW-19")
async def test_what_is_called_gzip_reaches_consumers_of_both_protocols(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    body = b"flight " * 500
    for packed in (gzip.compress(body), zlib.compress(body)):
        await rpc.sent(packed, body_encoding=Encoding.GZIP)
    async with BrokerPeer(grpc_broker.runtime) as peer:
        stored = [record for each in await queues(peer) for record in each]
    assert [to_received(record, "broker-a").body for record in stored] == [body, body]
    messages = [*(await rpc.receive()).messages, *(await rpc.receive()).messages]
    assert [each.body for each in messages] == [body, body]
    assert {each.system_properties.body_encoding for each in messages} == {Encoding.IDENTITY}


@pytest.mark.behaviour("GW-22")
@pytest.mark.parametrize("kind", [0, *CompressionType])
async def test_packed_bodies_of_remoting_producers_go_out_unpacked(
    grpc_broker: Broker, rpc: RpcClient, kind: int
) -> None:
    body = b"flight " * 500
    flag = with_compression(0, CompressionType(kind)) if kind else 1
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T")
        await peer.sent(compress(body, kind), sys_flag=flag)
    (got,) = (await rpc.receive()).messages
    assert got.body == body
    assert got.system_properties.body_encoding == Encoding.IDENTITY


@pytest.mark.behaviour("GW-30")
async def test_a_delayed_message_comes_at_its_time(grpc_broker: Broker, rpc: RpcClient) -> None:
    now = grpc_broker.runtime.clock.now_ms()
    at_ms = now + 5000
    answer = await rpc.send(message(b"later", delivery_timestamp=timestamp(at_ms)))
    assert answer.status.code == Code.OK
    assert answer.entries[0].recall_handle
    got = await rpc.receive(wait_ms=20_000)
    assert got.bodies == [b"later"]
    came = grpc_broker.runtime.clock.now_ms()
    assert at_ms <= came <= at_ms + 2500
    system = got.messages[0].system_properties
    assert system.message_type == MessageType.DELAY
    assert system.delivery_timestamp.seconds == at_ms // 1000


@pytest.mark.behaviour("GW-30")
async def test_a_time_that_is_past_is_at_once(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.sent(b"now", delivery_timestamp=timestamp(1000))
    assert (await rpc.receive()).bodies == [b"now"]


@pytest.mark.behaviour("GW-29")
async def test_a_message_of_another_type_than_its_topics_is_refused(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("orders", attributes="+message.type=FIFO")
        answer = await rpc.send(message(topic="orders"))
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert "orbitmq topic create orders --attribute message.type=NORMAL" in answer.status.message
        assert (await rpc.send(message(topic="orders", message_group="g"))).status.code == Code.OK


@pytest.mark.behaviour("GW-27")
async def test_a_topic_that_takes_no_messages_is_forbidden(grpc_broker: Broker, rpc: RpcClient) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("readable", perm=4)
    assert (await rpc.send(message(topic="readable"))).status.code == Code.FORBIDDEN


@pytest.mark.behaviour("GW-27")
@pytest.mark.broker(mapped_file_size_commit_log=16 * MIB)
async def test_the_largest_body_is_stored_and_one_byte_more_is_not(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    answer = await rpc.send(message(bytes(BODY_LIMIT)))
    assert answer.status.code == Code.OK, answer.status
    answer = await rpc.send(message(bytes(BODY_LIMIT + 1)))
    assert answer.status.code == Code.MESSAGE_BODY_TOO_LARGE
    got = await rpc.receive()
    assert [len(body) for body in got.bodies] == [BODY_LIMIT]


@pytest.mark.behaviour("GW-22")
async def test_a_body_that_nobody_can_unpack_is_a_dead_letter(grpc_broker: Broker, rpc: RpcClient) -> None:
    """Otherwise consumers would get it again and again."""
    store = grpc_broker.services.store
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T")
        await peer.sent(b"x" * 50, sys_flag=1)
        await peer.sent(b"good")
        answer = await rpc.receive()
        assert (answer.code, answer.bodies) == (Code.OK, [b"good"])
        await asyncio.sleep(2)
        assert store.max_offset("%DLQ%cg", 0) == 1
        (dead,) = records(await peer.pull(topic="%DLQ%cg"))
    assert "zlib" in decode_properties(dead.properties)["DLQ_REASON"]


async def test_a_store_that_is_closed_is_an_error_of_the_server(
    grpc_broker: Broker, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbitmq.store import StoreClosedError

    def closed(_messages: list[NewMessage]) -> object:
        raise StoreClosedError("the disk is full")

    await rpc.sent(b"one")
    monkeypatch.setattr(grpc_broker.services.store, "put_many", closed)
    answer = await rpc.send(message(b"two"))
    assert answer.status.code in (Code.INTERNAL_SERVER_ERROR, Code.MESSAGE_CORRUPTED)
    assert "the disk is full" in answer.status.message
