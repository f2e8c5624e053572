"""Commands in, commands out: sending to a broker and pulling from it, on the simulated machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records, send_request

from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.message import property_names
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties, properties_text
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.frame import decode_frame, encode_frame, frame_end
from orbitmq.wire.headers.send import SendBatchMessageRequest, SendMessageRequest, SendMessageResponse

FORBIDDEN_TOPICS = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
]


# -- sending -----------------------------------------------------------------------------------------------


async def test_a_single_send_is_stored_with_what_the_broker_adds(peer: BrokerPeer) -> None:
    answer = await peer.send(b"body", properties={"TAGS": "a", "k": "v", "POP_CK": "x"})
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext["MSG_REGION"] == "DefaultRegion"
    assert answer.ext["TRACE_ON"] == "true"
    sent = SendMessageResponse.from_ext(answer.ext)
    assert (sent.queue_id, sent.queue_offset) == (0, 0)
    assert len(sent.msg_id) == 32

    [record] = records(await peer.pull())
    properties = decode_properties(record.properties)
    unique = properties.pop(property_names.UNIQ_KEY)
    assert sent.transaction_id == unique
    assert properties == {
        "TAGS": "a",
        "k": "v",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (record.body, record.flag, record.born_timestamp) == (b"body", 9, 5)
    assert record.store_host == ("127.0.0.1", 10911)


async def test_the_first_form_of_send_and_a_key_given_by_the_client(peer: BrokerPeer) -> None:
    header = SendMessageRequest(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        properties=properties_text({"UNIQ_KEY": "ABC"}),
    )
    sent = SendMessageResponse.from_ext((await peer.ask(header.command(b"x"))).ext)
    assert sent.transaction_id == "ABC"
    assert 0 <= sent.queue_id < 4


@pytest.mark.behaviour("BA-04")
@pytest.mark.behaviour("BA-06")
@pytest.mark.behaviour("BA-07")
async def test_a_batch_becomes_consecutive_messages_with_nothing_added(peer: BrokerPeer) -> None:
    await peer.send()
    items = [Message("T", b"one", tags="a"), Message("T", b"two", tags="b"), Message("T", b"three")]
    header = send_request(batch=True)
    request = SendBatchMessageRequest.from_ext(header.to_ext()).command(encode_batch(items))
    answer = SendMessageResponse.from_ext((await peer.ask(request)).ext)
    assert answer.queue_offset == 1
    assert len(answer.msg_id.split(",")) == 3

    stored = records(await peer.pull(1))
    assert [record.body for record in stored] == [b"one", b"two", b"three"]
    assert [record.queue_offset for record in stored] == [1, 2, 3]
    assert decode_properties(stored[0].properties) == {"TAGS": "a"}
    [tagged] = records(await peer.pull(1, subscription="b"))
    assert tagged.body == b"two"


@pytest.mark.parametrize(
    ("body", "values", "code", "words"),
    [
        (b"", {}, ResponseCode.MESSAGE_ILLEGAL, ["empty"]),
        (b"x" * 1001, {}, ResponseCode.MESSAGE_ILLEGAL, ["1001", "1000", "maxMessageSize"]),
        (b"x", {"properties": {"k": "v" * 32767}}, ResponseCode.MESSAGE_ILLEGAL, ["properties", "32767"]),
        (b"x", {"topic": "t" * 128}, ResponseCode.INVALID_PARAMETER, ["128", "127"]),
        (b"x", {"topic": " "}, ResponseCode.INVALID_PARAMETER, ["blank"]),
        (b"x", {"topic": "a/b"}, ResponseCode.INVALID_PARAMETER, ["a/b", "illegal characters"]),
        (b"x", {"queue_id": 8}, ResponseCode.INVALID_PARAMETER, ["queueId 8", "0 to 3"]),
        *((b"x", {"topic": topic}, ResponseCode.NO_PERMISSION, [topic]) for topic in FORBIDDEN_TOPICS),
        (b"x", {"properties": {"DELAY": "x3"}}, ResponseCode.MESSAGE_ILLEGAL, ["DELAY=x3"]),
        (b"x", {"properties": {"TIMER_DELAY_SEC": "x3"}}, ResponseCode.MESSAGE_ILLEGAL, ["TIMER_DELAY_SEC"]),
        (b"x", {"default_topic": "none", "topic": "New"}, ResponseCode.TOPIC_NOT_EXIST, ["New"]),
        (b"x", {"batch": True}, ResponseCode.MESSAGE_ILLEGAL, ["batch body"]),
    ],
)
@pytest.mark.behaviour("MV-03")
@pytest.mark.behaviour("MV-05")
@pytest.mark.broker(max_message_size=1000)
async def test_a_send_that_is_refused_says_field_and_limit(
    peer: BrokerPeer, body: bytes, values: dict[str, Any], code: int, words: list[str]
) -> None:
    await peer.send()
    answer = await peer.send(body, **values)
    assert answer.code == code, answer.remark
    for word in words:
        assert word in (answer.remark or "")
    assert (await peer.send(b"still served")).code == ResponseCode.SUCCESS


async def test_a_batch_of_tiny_messages_that_grows_over_the_limit_is_illegal_at_once(
    peer: BrokerPeer,
) -> None:
    body = encode_batch([Message("T", b"x") for _ in range(5000)])
    answer = await peer.ask(SendBatchMessageRequest.from_ext(send_request(batch=True).to_ext()).command(body))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("missing", ["a", "b", "e"])
async def test_a_missing_field_is_named(peer: BrokerPeer, missing: str) -> None:
    ext = send_request().to_ext()
    del ext[missing]
    answer = await peer.ask(Command(RequestCode.SEND_MESSAGE_V2, ext, b"x"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"'{missing}'" in (answer.remark or "")


async def test_a_field_of_the_wrong_type_and_an_unknown_code(peer: BrokerPeer) -> None:
    ext = send_request().to_ext() | {"e": "first"}
    answer = await peer.ask(Command(RequestCode.SEND_MESSAGE_V2, ext, b"x"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "first" in (answer.remark or "")
    answer = await peer.ask(Command(9999))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 9999 not supported"


# -- automatic creation --------------------------------------------------------------------------------------


@pytest.mark.behaviour("RT-06")
@pytest.mark.behaviour("RT-07")
@pytest.mark.parametrize(("asked", "made"), [(4, 4), (20, 8), (-3, 0)])
async def test_an_unknown_topic_is_made_from_the_template(
    broker: Broker, peer: BrokerPeer, asked: int, made: int
) -> None:
    template = broker.services.topics.get("TBW102")
    assert template is not None
    assert (template.perm, template.write_queue_nums) == (7, 8)
    answer = await peer.send(topic="New", default_topic_queue_nums=asked)
    expected = ResponseCode.SUCCESS if made else ResponseCode.INVALID_PARAMETER
    assert answer.code == expected
    topic = broker.services.topics.get("New")
    assert topic is not None
    assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums) == (6, made, made)


@pytest.mark.behaviour("RT-09")
@pytest.mark.broker(auto_create_topic_enable=False)
async def test_without_automatic_creation_an_unknown_topic_is_refused(peer: BrokerPeer) -> None:
    answer = await peer.send(topic="New")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "topic[New] not exist" in (answer.remark or "")


@pytest.mark.behaviour("RT-10")
async def test_one_message_makes_the_topic_on_one_broker_only(runtime: SimulatedRuntime) -> None:
    first = Broker(runtime, broker_config(broker_name="a", store_path_root_dir="/a"))
    second = Broker(runtime, broker_config(broker_name="b", store_path_root_dir="/b", listen_port=10921))
    async with first, second:
        peer = BrokerPeer(runtime)
        await peer.send(topic="New")
        assert "New" in first.services.topics
        assert "New" not in second.services.topics
        peer.address = second.address
        await peer.send(topic="New")
        assert "New" in second.services.topics
        await peer.client.close()


# -- pulling -------------------------------------------------------------------------------------------------


async def test_what_a_pull_answers(peer: BrokerPeer) -> None:
    for number in range(3):
        await peer.send(b"%d" % number, properties={"TAGS": "odd" if number % 2 else "even"})
    found = await peer.pull(1)
    assert found.code == ResponseCode.SUCCESS
    assert found.ext["nextBeginOffset"] == "3"
    assert (found.ext["minOffset"], found.ext["maxOffset"]) == ("0", "3")
    assert found.ext["suggestWhichBrokerId"] == "0"
    assert [record.body for record in records(found)] == [b"1", b"2"]
    assert [record.body for record in records(await peer.pull(0, max_msg_nums=1))] == [b"0"]
    assert [r.body for r in records(await peer.pull(0, subscription="odd || none"))] == [b"1"]

    no_match = await peer.pull(0, subscription="none")
    assert no_match.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert no_match.ext["nextBeginOffset"] == "3"
    nothing_new = await peer.pull(3)
    assert nothing_new.code == ResponseCode.PULL_NOT_FOUND
    too_far = await peer.pull(99)
    assert too_far.code == ResponseCode.PULL_OFFSET_MOVED
    assert too_far.ext["nextBeginOffset"] == "3"
    empty = await peer.pull(0, queue_id=1)
    assert empty.code == ResponseCode.PULL_NOT_FOUND
    moved = await peer.pull(7, queue_id=1)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize(
    ("values", "code", "word"),
    [
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "readQueueNums:[4]"),
        ({"topic": "Other"}, ResponseCode.TOPIC_NOT_EXIST, "Other"),
        ({"consumer_group": "no/group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no/group"),
        ({"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "group info not exist"),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no tag"),
        ({"expression_type": "XPATH", "subscription": "a > 1"}, ResponseCode.SYSTEM_ERROR, "XPATH"),
    ],
)
async def test_a_pull_that_is_refused_says_why(
    peer: BrokerPeer, values: dict[str, Any], code: int, word: str
) -> None:
    await peer.send()
    answer = await peer.pull(**values)
    assert answer.code == code
    assert word in (answer.remark or "")


async def test_a_topic_without_read_permission_and_a_forbidden_group(
    broker: Broker, peer: BrokerPeer
) -> None:
    await peer.send()
    topic = broker.services.topics.get("T")
    assert topic is not None
    topic.perm = 2
    assert (await peer.pull()).code == ResponseCode.NO_PERMISSION
    topic.perm = 6
    group = broker.services.groups.find("cg")
    assert group is not None
    group.consume_enable = False
    assert (await peer.pull()).code == ResponseCode.NO_PERMISSION


async def test_a_waiting_pull_is_answered_when_a_message_comes(broker: Broker, peer: BrokerPeer) -> None:
    await peer.send()
    loop = asyncio.get_running_loop()
    began = loop.time()
    waiting = asyncio.ensure_future(peer.pull(1, sys_flag=2 | 4))
    await asyncio.sleep(3)
    assert not waiting.done()
    assert broker.services.long_polling.waiting("T", 0) == 1
    await peer.send(b"news")
    [record] = records(await waiting)
    assert record.body == b"news"
    assert 3 <= loop.time() - began < 3.5
    assert len(broker.services.long_polling) == 0


async def test_a_waiting_pull_runs_out_and_says_how_far_its_filter_got(peer: BrokerPeer) -> None:
    await peer.send(properties={"TAGS": "a"})
    loop = asyncio.get_running_loop()
    began = loop.time()
    nothing = await peer.pull(1, sys_flag=2 | 4)
    assert nothing.code == ResponseCode.PULL_NOT_FOUND
    assert 15 <= loop.time() - began < 16
    waiting = asyncio.ensure_future(peer.pull(1, sys_flag=2 | 4, subscription="b"))
    await asyncio.sleep(1)
    await peer.send(properties={"TAGS": "a"})
    await asyncio.sleep(1)
    assert not waiting.done()
    answer = await waiting
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "2"


@pytest.mark.broker(pull_queue_capacity=2)
async def test_more_waiting_pulls_than_the_limit_are_told_so(peer: BrokerPeer) -> None:
    await peer.send()
    waiting = [asyncio.ensure_future(peer.pull(1, sys_flag=2 | 4)) for _ in range(2)]
    await asyncio.sleep(1)
    answer = await peer.pull(1, sys_flag=2 | 4)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "pullThreadPoolQueueCapacity 2" in (answer.remark or "")
    await peer.send()
    assert all(a.code == ResponseCode.SUCCESS for a in await asyncio.gather(*waiting))


async def test_a_pull_by_the_subscription_of_the_heartbeat(peer: BrokerPeer) -> None:
    await peer.send(properties={"TAGS": "a"})
    await peer.send(b"wanted", properties={"TAGS": "b"})
    subscription = SubscriptionData("T", "b", {"b"}, {98}, sub_version=7)
    beat = HeartbeatData(
        "client", consumer_data_set=[ConsumerData("cg", subscription_data_set=[subscription])]
    )
    await peer.ask(Command(RequestCode.HEART_BEAT, body=beat.encode()))
    [record] = records(await peer.pull(sys_flag=0, sub_version=7))
    assert record.body == b"wanted"
    newer = await peer.pull(sys_flag=0, sub_version=8)
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


# -- the broker as a whole -----------------------------------------------------------------------------------


async def test_messages_topics_and_offsets_survive_a_stop(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config()) as broker:
        peer = BrokerPeer(runtime)
        await peer.send(b"kept", topic="New")
        await peer.pull(topic="New", sys_flag=1 | 4, commit_offset=1)
        await peer.client.close()
    async with Broker(runtime, broker_config()) as broker:
        assert broker.services.offsets.query("cg", "New", 0) == 1
        peer = BrokerPeer(runtime)
        [record] = records(await peer.pull(topic="New"))
        assert record.body == b"kept"
        await peer.client.close()


async def test_an_acknowledged_message_and_its_topic_survive_a_crash(runtime: SimulatedRuntime) -> None:
    broker = Broker(runtime, broker_config(listen_port=10911))
    await broker.start()
    peer = BrokerPeer(runtime)
    assert (await peer.send(b"kept", topic="New")).code == ResponseCode.SUCCESS
    runtime.files.crash()
    again = Broker(runtime, broker_config(listen_port=10921))
    async with again:
        peer.address = again.address
        [record] = records(await peer.pull(topic="New"))
        assert record.body == b"kept"
    await peer.client.close()


async def test_a_port_in_use_and_a_folder_in_use_are_one_line(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config()):
        with pytest.raises(StartError, match=r"cannot listen on 0\.0\.0\.0:10911"):
            await Broker(runtime, broker_config(store_path_root_dir="/other")).start()
        with pytest.raises(StartError, match="/store"):
            await Broker(runtime, broker_config(listen_port=10921)).start()


async def test_the_vip_port_serves_too(peer: BrokerPeer) -> None:
    peer.address = "127.0.0.1:10909"
    assert (await peer.send()).code == ResponseCode.SUCCESS


async def test_a_request_that_is_not_built_yet_is_named(peer: BrokerPeer) -> None:
    answer = await peer.ask(Command(RequestCode.CLEAN_BROKER_DATA))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "CLEAN_BROKER_DATA" in (answer.remark or "")


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_stop_under_load_loses_nothing_that_was_acknowledged(
    orbitmq_loop: SimulatedLoop, flush: str
) -> None:
    runtime = simulated_runtime(7)
    broker = Broker(runtime, broker_config(flush_disk_type=flush))
    await broker.start()
    peers = [BrokerPeer(runtime) for _ in range(4)]
    await peers[0].send(b"first")
    acknowledged: list[bytes] = []
    refused: list[int] = []

    async def sender(peer: BrokerPeer, name: int) -> None:
        try:
            for number in range(10_000):
                body = b"%d-%d" % (name, number)
                # Every third message carries a property that the fast path leaves to the handler.
                properties = {} if number % 3 else {"POP_CK": "x"}
                answer = await peer.send(body, properties=properties)
                if answer.code != ResponseCode.SUCCESS:
                    refused.append(answer.code)
                    return
                acknowledged.append(body)
                await asyncio.sleep(0.001)
        except TransportError:
            return

    senders = [asyncio.ensure_future(sender(peer, name)) for name, peer in enumerate(peers)]
    await asyncio.sleep(0.2)
    await broker.stop()
    await asyncio.gather(*senders)
    assert len(acknowledged) > 40
    assert set(refused) <= {ResponseCode.SERVICE_NOT_AVAILABLE}
    async with Broker(runtime, broker_config(flush_disk_type=flush, listen_port=10921)) as again:
        peers[0].address = again.address
        stored: list[bytes] = []
        while True:
            batch = records(await peers[0].pull(len(stored), max_msg_nums=1000))
            if not batch:
                break
            stored += [record.body for record in batch]
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    for peer in peers:
        await peer.client.close()


async def test_a_full_disk_refuses_sends_with_the_reason_and_still_serves_pulls(
    broker: Broker, peer: BrokerPeer
) -> None:
    await peer.send(b"before")
    broker.services.store.refuse("the disk of /store is 91% full, the limit is 90%")
    answer = await peer.send(b"after")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "91% full" in (answer.remark or "")
    [record] = records(await peer.pull())
    assert record.body == b"before"


class Frames(asyncio.Protocol):
    """A connection that keeps every byte it receives."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def answers(self) -> dict[int, int]:
        """The response codes by request number."""
        found, at = {}, 0
        while at < len(self.data):
            end = frame_end(self.data, at, len(self.data))
            answer = decode_frame(self.data, at, end)
            found[answer.opaque] = answer.code
            at = end
        return found


@pytest.mark.behaviour("AS-11")
async def test_a_one_way_request_that_cannot_be_served_is_dropped_in_silence(broker: Broker) -> None:
    """The requests have an unknown code, lack their header's fields, or name a topic that takes no
    messages.
    """
    frames = Frames()
    transport, _ = await broker.runtime.network.connect(lambda: frames, "127.0.0.1", 10911)
    for flag, first in ((FLAG_ONEWAY, 0), (0, 10)):
        requests = (
            Command(99_999),
            Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}),
            send_request(topic="SCHEDULE_TOPIC_XXXX").command(b"x"),
        )
        for number, command in enumerate(requests, first):
            command.opaque, command.flag = number, command.flag | flag
            transport.write(encode_frame(command))
    await broker.runtime.clock.sleep(5)
    answers = frames.answers()
    assert sorted(answers) == [10, 11, 12]
    assert ResponseCode.SUCCESS not in answers.values()
    assert not frames.lost
    transport.close()
