"""Commands and responses: clients, offsets, topics, groups and settings of a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import decode_record
from orbitmq.message.sysflag import PullFlag
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.client import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerData,
    ProducerTableInfo,
    SubscriptionData,
)
from orbitmq.wire.bodies.group import GroupForbidden, SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.wire.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    GetConsumerStatusBody,
    ResetOffsetBody,
    TopicStatsTable,
)
from orbitmq.wire.bodies.topic import GroupList, TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import MAX_FRAME_BYTES


class Peer(BrokerPeer):
    """A client that answers the broker's requests, unless it is ``silent``."""

    silent = False

    def _note(self, _connection: object, command: Command) -> Command | None:
        self.notices.append(command)
        if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            table = {MessageQueue("T", "broker-a", 0): 5}
            return command.reply(body=GetConsumerStatusBody(message_queue_table=table).encode())
        return None if command.is_oneway or self.silent else command.reply(remark="mine", body=command.body)

    async def beat(self, *topics: str, group: str = "cg", **more: Any) -> Command:
        data = ConsumerData(group, subscription_data_set=[SubscriptionData(t, sub_version=1) for t in topics])
        beat = HeartbeatData(self.client_id, [ProducerData("pg")], [data], **more)
        return await self.ok(RequestCode.HEART_BEAT, beat.encode())


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> Peer:
    return orbitmq_loop.enter(Peer(broker.runtime))


# -- clients -----------------------------------------------------------------------------------------------


async def test_members_of_a_group_are_told_when_one_comes_and_goes(broker: Broker, peer: Peer) -> None:
    answer = await peer.beat("T")
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert "%RETRY%cg" in broker.services.topics
    second = Peer(broker.runtime, client_id="other")
    peer.notices.clear()
    await second.beat("T")
    listed = await peer.ok(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="cg")
    assert GetConsumerListByGroupResponseBody.decode(listed.body).consumer_id_list == ["client", "other"]
    assert [notice.code for notice in peer.notices] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert peer.notices[0].ext["consumerGroup"] == "cg"
    await second.beat("T")
    assert len(peer.notices) == 1
    await second.leave()
    assert len(peer.notices) == 2
    await peer.ok(RequestCode.UNREGISTER_CLIENT, clientID="client", consumerGroup="cg", producerGroup="pg")
    gone = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="cg")
    assert gone.code == ResponseCode.SYSTEM_ERROR
    assert gone.remark == "no consumer for this group, cg"


async def test_a_silent_client_is_dropped_after_two_minutes(broker: Broker, peer: Peer) -> None:
    await peer.beat("T")
    await asyncio.sleep(100)
    await peer.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert broker.services.clients.consumers("cg") is not None
    await asyncio.sleep(31)
    assert broker.services.clients.consumers("cg") is None
    assert broker.services.clients.producers("pg") == []


async def test_a_heartbeat_with_a_fingerprint_leaves_subscriptions_out(broker: Broker, peer: Peer) -> None:
    await peer.beat("T", heartbeat_fingerprint=7)
    answer = await peer.beat(heartbeat_fingerprint=7, without_sub=True)
    assert answer.ext["IS_SUB_CHANGE"] == "false"
    assert broker.services.clients.subscription("cg", "T") is not None
    answer = await peer.beat("T", heartbeat_fingerprint=8)
    assert answer.ext["IS_SUB_CHANGE"] == "true"


async def test_who_is_connected(peer: Peer) -> None:
    await peer.beat("T")
    shown = await peer.ok(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="cg")
    consumers = ConsumerConnection.decode(shown.body)
    assert [c.client_id for c in consumers.connection_set] == ["client"]
    assert list(consumers.subscription_table) == ["T"]
    shown = await peer.ok(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
    assert [c.language for c in ProducerConnection.decode(shown.body).connection_set] == ["PYTHON"]
    shown = await peer.ok(RequestCode.GET_ALL_PRODUCER_INFO)
    assert list(ProducerTableInfo.decode(shown.body).data) == ["pg"]
    absent = await peer.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="none")
    assert absent.code == ResponseCode.CONSUMER_NOT_ONLINE
    absent = await peer.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="none")
    assert absent.code == ResponseCode.SYSTEM_ERROR


async def test_queue_locks(peer: Peer) -> None:
    queues = {MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)}
    mine = LockBatchRequestBody("cg", "me", mq_set=queues).encode()
    locked = await peer.ok(RequestCode.LOCK_BATCH_MQ, mine)
    assert LockBatchResponseBody.decode(locked.body).lock_ok_mq_set == queues
    yours = LockBatchRequestBody("cg", "you", mq_set=queues).encode()
    refused = await peer.ok(RequestCode.LOCK_BATCH_MQ, yours)
    assert LockBatchResponseBody.decode(refused.body).lock_ok_mq_set == set()
    await peer.ok(RequestCode.UNLOCK_BATCH_MQ, mine)
    locked = await peer.ok(RequestCode.LOCK_BATCH_MQ, yours)
    assert LockBatchResponseBody.decode(locked.body).lock_ok_mq_set == queues


async def test_a_filter_that_the_broker_does_not_have_is_refused_at_the_start(peer: Peer) -> None:
    tag = CheckClientRequestBody("c", "cg", SubscriptionData("T"))
    await peer.ok(RequestCode.CHECK_CLIENT_CONFIG, tag.encode())
    other = CheckClientRequestBody("c", "cg", SubscriptionData("T", "a > 1", expression_type="XPATH"))
    answer = await peer.call(RequestCode.CHECK_CLIENT_CONFIG, other.encode())
    assert "XPATH" in (answer.remark or "")


async def test_a_body_that_is_not_json_is_refused_and_named(peer: Peer) -> None:
    answer = await peer.call(RequestCode.HEART_BEAT, b"{nonsense")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    answer = await peer.call(RequestCode.HEART_BEAT, b'{"consumerDataSet":[{"groupName":{}}]}')
    assert "groupName" in (answer.remark or "")


async def test_a_heartbeat_without_subscriptions_that_are_not_known_is_told_so(
    broker: Broker, peer: Peer
) -> None:
    answer = await peer.beat(heartbeat_fingerprint=7, without_sub=True)
    assert answer.ext["IS_SUB_CHANGE"] == "true"
    assert broker.services.clients.subscription("cg", "T") is None


async def test_questions_that_a_consumer_answers(broker: Broker, peer: Peer) -> None:
    consumer = Peer(broker.runtime, client_id="worker")
    await consumer.beat("T")
    asked: dict[str, str | int] = {"consumerGroup": "cg", "clientId": "worker"}
    answer = await peer.ok(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert answer.remark == "mine"
    sent = await peer.send(b"look")
    answer = await peer.ok(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=sent.ext["msgId"], **asked)
    assert decode_record(answer.body).body == b"look"
    assert consumer.notices[-1].ext["brokerName"] == "broker-a"
    shown = await peer.ok(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, group="cg", topic="T")
    status = GetConsumerStatusBody.decode(shown.body).consumer_table
    assert status == {"worker": {MessageQueue("T", "broker-a", 0): 5}}
    absent = await peer.call(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="cg", clientId="no")
    assert absent.remark == "The Consumer <cg> <no> not online"
    bad = await peer.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId="xyz", **asked)
    assert bad.code == ResponseCode.INVALID_PARAMETER
    consumer.silent = True
    late = await peer.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **asked)
    assert late.code == ResponseCode.CONSUME_MSG_TIMEOUT
    await consumer.client.close()


# -- offsets -----------------------------------------------------------------------------------------------


async def query(peer: Peer, **ext: str | int) -> Command:
    fields: dict[str, str | int] = {"consumerGroup": "cg", "topic": "T", "queueId": 0}
    return await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, **{**fields, **ext})


async def commit(peer: Peer, offset: int, **ext: str | int) -> Command:
    fields: dict[str, str | int] = {"consumerGroup": "cg", "topic": "T", "queueId": 0, "commitOffset": offset}
    return await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, **{**fields, **ext})


async def test_a_new_group_begins_a_young_queue_at_0_and_an_empty_one_nowhere(peer: Peer) -> None:
    await peer.create()
    assert (await query(peer)).code == ResponseCode.QUERY_NOT_FOUND
    await peer.send()
    assert (await query(peer)).ext["offset"] == "0"
    assert (await query(peer, setZeroIfNotFound="false")).code == ResponseCode.QUERY_NOT_FOUND
    assert (await query(peer, topic="None")).code == ResponseCode.QUERY_NOT_FOUND
    assert (await query(peer, queueId=1)).code == ResponseCode.QUERY_NOT_FOUND


async def test_committing_offsets(peer: Peer) -> None:
    await peer.create()
    assert (await commit(peer, 5)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await peer.beat("T")
    assert (await commit(peer, 5)).code == ResponseCode.SUCCESS
    assert (await query(peer)).ext["offset"] == "5"
    assert (await commit(peer, 3)).code == ResponseCode.SUCCESS
    assert (await query(peer)).ext["offset"] == "3"
    assert (await commit(peer, 5, topic="None")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await commit(peer, -1)).code == ResponseCode.INVALID_PARAMETER
    assert (await commit(peer, 5, queueId=1 << 20)).code == ResponseCode.INVALID_PARAMETER
    table = fastjson.loads((await peer.ok(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
    assert table["offsetTable"] == {"T@cg": {"0": 3}}
    await peer.ok(RequestCode.CLONE_GROUP_OFFSET, srcGroup="cg", destGroup="copy", topic="T")
    assert (await query(peer, consumerGroup="copy")).ext["offset"] == "3"


async def test_bounds_of_a_queue_and_search_by_time(peer: Peer) -> None:
    await peer.create()
    for number in range(3):
        await peer.send(b"%d" % number)
        await asyncio.sleep(10)
    where: dict[str, str | int] = {"topic": "T", "queueId": 0}
    assert (await peer.ok(RequestCode.GET_MAX_OFFSET, **where)).ext["offset"] == "3"
    assert (await peer.ok(RequestCode.GET_MIN_OFFSET, **where)).ext["offset"] == "0"
    first = int((await peer.ok(RequestCode.GET_EARLIEST_MSG_STORETIME, **where)).ext["timestamp"])
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert (await peer.ok(code, timestamp=first + 1, **where)).ext["offset"] == "1"
    upper = await peer.ok(code, timestamp=first + 1, boundaryType="UPPER", **where)
    assert upper.ext["offset"] == "0"
    assert (await peer.ok(code, timestamp=first + 10**6, **where)).ext["offset"] == "3"
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        assert (await peer.call(code, topic="None", queueId=0)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await peer.call(code, topic="T", queueId=2)).code == ResponseCode.INVALID_PARAMETER


async def test_a_reset_reaches_the_consumer_with_its_next_pull(peer: Peer) -> None:
    await peer.create()
    for _ in range(3):
        await peer.send()
    await peer.beat("T")
    await commit(peer, 3)
    target: dict[str, str | int] = {"group": "cg", "topic": "T", "isForce": "true"}
    reset = await peer.ok(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp=-1, queueId=0, offset=1, **target
    )
    assert ResetOffsetBody.decode(reset.body).offset_table == {MessageQueue("T", "broker-a", 0): 1}
    assert (await commit(peer, 3)).remark == "Offset has been previously reset"
    pull: dict[str, str | int] = {"maxMsgNums": 9, "commitOffset": 0, "subVersion": 0, "queueOffset": 3}
    pull |= {"consumerGroup": "cg", "topic": "T", "queueId": 0, "sysFlag": 0, "suspendTimeoutMillis": 0}
    moved = await peer.call(RequestCode.PULL_MESSAGE, **pull)
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    await peer.ok(RequestCode.PULL_MESSAGE, **pull | {"queueOffset": 1})
    assert (await commit(peer, 2)).remark is None
    out = await peer.call(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp=-1, queueId=0, offset=9, **target
    )
    assert "[0-3]" in (out.remark or "")
    everywhere = await peer.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp=0, **target)
    assert set(ResetOffsetBody.decode(everywhere.body).offset_table.values()) == {0}


@pytest.mark.behaviour("MO-16")
async def test_the_pull_that_is_told_of_a_reset_does_not_undo_it(peer: Peer) -> None:
    """The consumer commits an offset from before the reset with this pull; that commit must not undo the
    reset.
    """
    await peer.create()
    for _ in range(3):
        await peer.send()
    await peer.beat("T")
    pull: dict[str, str | int] = {"maxMsgNums": 9, "subVersion": 0, "suspendTimeoutMillis": 0}
    pull |= {"consumerGroup": "cg", "topic": "T", "queueId": 0, "sysFlag": PullFlag.COMMIT_OFFSET}
    where: dict[str, str | int] = {"consumerGroup": "cg", "topic": "T", "queueId": 0}
    target: dict[str, str | int] = {"group": "cg", "topic": "T", "queueId": 0, "isForce": "true"}
    for _ in range(2):  # in the second turn the fast path has taken the earlier pulls
        for _ in range(2):
            await peer.call(RequestCode.PULL_MESSAGE, queueOffset=1, commitOffset=3, **pull)
        assert (await peer.ok(RequestCode.QUERY_CONSUMER_OFFSET, **where)).ext["offset"] == "3"
        await peer.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, timestamp=-1, offset=1, **target)
        moved = await peer.call(RequestCode.PULL_MESSAGE, queueOffset=3, commitOffset=3, **pull)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
        assert (await peer.ok(RequestCode.QUERY_CONSUMER_OFFSET, **where)).ext["offset"] == "1"


async def test_a_reset_reaches_a_pull_that_waits_at_once(peer: Peer) -> None:
    await peer.create()
    await peer.send()
    await peer.beat("T")
    pull: dict[str, str | int] = {"maxMsgNums": 9, "commitOffset": 0, "subVersion": 0, "queueOffset": 1}
    pull |= {"consumerGroup": "cg", "topic": "T", "queueId": 0, "sysFlag": 2}
    waiting = asyncio.ensure_future(peer.call(RequestCode.PULL_MESSAGE, suspendTimeoutMillis=15_000, **pull))
    await asyncio.sleep(1)
    target: dict[str, str | int] = {"group": "cg", "topic": "T", "isForce": "true", "timestamp": 0}
    await peer.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **target)
    await asyncio.sleep(0.1)
    assert waiting.done()
    moved = await waiting
    assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")


async def test_view_by_id(peer: Peer) -> None:
    await peer.send(b"first")
    sent = await peer.send(b"second")
    offset = int(sent.ext["msgId"][16:], 16)
    found = await peer.ok(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
    assert decode_record(found.body).body == b"second"
    absent = await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=10**9)
    assert absent.code == ResponseCode.SYSTEM_ERROR
    assert "1000000000" in (absent.remark or "")


# -- topics ------------------------------------------------------------------------------------------------


async def test_creating_changing_and_deleting_a_topic(broker: Broker, peer: Peer) -> None:
    assert (await peer.create(attributes="+message.type=FIFO")).code == ResponseCode.SUCCESS
    shown = await peer.ok(RequestCode.GET_TOPIC_CONFIG, topic="T")
    config = TopicConfig.decode(shown.body)
    assert (config.read_queue_nums, config.perm) == (2, 6)
    assert config.attributes == {"message.type": "FIFO"}
    await peer.send(queue_id=1)
    await peer.beat("T")
    await commit(peer, 1)
    await peer.create(readQueueNums=3, writeQueueNums=3)
    await peer.send(queue_id=2)
    groups = await peer.ok(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
    assert GroupList.decode(groups.body).group_list == {"cg"}
    topics = await peer.ok(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="cg")
    assert TopicList.decode(topics.body).topic_list == {"T"}
    stats = TopicStatsTable.decode((await peer.ok(RequestCode.GET_TOPIC_STATS_INFO, topic="T")).body)
    assert [stats.offset_table[MessageQueue("T", "broker-a", n)].max_offset for n in range(3)] == [
        0,
        1,
        1,
    ]

    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert "T" not in broker.services.topics
    assert broker.services.offsets.query("cg", "T", 0) is None
    gone = await peer.call(RequestCode.GET_TOPIC_CONFIG, topic="T")
    assert gone.code == ResponseCode.TOPIC_NOT_EXIST
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")


@pytest.mark.parametrize(
    ("ext", "words"),
    [
        ({"topic": "a b"}, ["illegal characters"]),
        ({"topic": "TBW102"}, ["system topic"]),
        ({"topic": "rmq_sys_mine"}, ["system topic"]),
        ({"topic": "DefaultCluster"}, ["system topic"]),
        ({"readQueueNums": -1}, ["readQueueNums -1"]),
        ({"writeQueueNums": 10**6}, ["writeQueueNums 1000000"]),
        ({"perm": 99}, ["perm 99"]),
        ({"topicFilterType": "NO_TAG"}, ["NO_TAG"]),
        ({"attributes": "+nonsense=1"}, ["nonsense", "unsupported"]),
        ({"attributes": "+message.type=ODD"}, ["ODD", "FIFO"]),
    ],
)
async def test_a_topic_that_is_refused(
    broker: Broker, peer: Peer, ext: dict[str, str | int], words: list[str]
) -> None:
    before = len(broker.services.topics)
    answer = await peer.create(**{"topic": "T", **ext})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    for word in words:
        assert word in (answer.remark or "")
    assert len(broker.services.topics) == before


async def test_a_pull_that_waits_learns_that_its_topic_is_deleted(peer: Peer) -> None:
    await peer.create()
    await peer.beat("T")
    pull: dict[str, str | int] = {"maxMsgNums": 9, "commitOffset": 0, "subVersion": 0, "queueOffset": 0}
    pull |= {"consumerGroup": "cg", "topic": "T", "queueId": 0, "sysFlag": 2}
    waiting = asyncio.ensure_future(peer.call(RequestCode.PULL_MESSAGE, suspendTimeoutMillis=15_000, **pull))
    await asyncio.sleep(1)
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_whose_table_cannot_be_written_is_not_promised(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config()) as broker:
        peer = Peer(broker.runtime)
        runtime.files.fail("pwrite", "tables.journal")
        answer = await peer.create()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "change of topics cannot be written" in (answer.remark or "")
        assert (await peer.create()).code == ResponseCode.SUCCESS
        await peer.client.close()


async def test_all_topics_at_once_and_in_pages(broker: Broker, peer: Peer) -> None:
    answer = await peer.ok(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigAndMappingSerializeWrapper.decode(answer.body).topic_config_table
    assert int(answer.ext["totalTopicNum"]) == len(table) == len(broker.services.topics)
    version = broker.services.topics.version.encode().decode()
    names: list[str] = []
    while len(names) < len(table):
        page = await peer.ok(
            RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=len(names), maxTopicNum=5, dataVersion=version
        )
        names += TopicConfigAndMappingSerializeWrapper.decode(page.body).topic_config_table
    assert sorted(names) == sorted(table)
    stale = await peer.ok(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=5, maxTopicNum=5)
    first = TopicConfigAndMappingSerializeWrapper.decode(stale.body).topic_config_table
    assert set(first) == {config.topic_name for config in list(broker.services.topics)[:5]}
    system = await peer.ok(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert "TBW102" in TopicList.decode(system.body).topic_list


# -- groups ------------------------------------------------------------------------------------------------


async def test_creating_showing_and_deleting_a_group(broker: Broker, peer: Peer) -> None:
    config = SubscriptionGroupConfig("mine", retry_max_times=3)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await peer.ok(code, config.encode())
    shown = await peer.ok(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="mine")
    assert SubscriptionGroupConfig.decode(shown.body).retry_max_times == 3
    listed = await peer.ok(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert "mine" in SubscriptionGroupWrapper.decode(listed.body).subscription_group_table
    page = await peer.ok(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groupSeq=0, maxGroupNum=2)
    assert len(SubscriptionGroupWrapper.decode(page.body).subscription_group_table) == 2
    assert int(page.ext["totalGroupNum"]) == len(broker.services.groups)
    bad = await peer.call(code, SubscriptionGroupConfig("g" * 121).encode())
    assert bad.code == ResponseCode.INVALID_PARAMETER
    assert "120" in (bad.remark or "")
    broker.services.offsets.commit("mine", "T", 0, 5)
    await peer.ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="mine", cleanOffset="true")
    assert broker.services.offsets.query("mine", "T", 0) is None
    gone = await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="mine")
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_group_that_must_not_read_a_topic(peer: Peer) -> None:
    await peer.create()
    await peer.beat("T")
    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    answer = await peer.ok(code, group="cg", topic="T", readable="false")
    assert GroupForbidden.decode(answer.body).readable is False
    pull: dict[str, str | int] = {"maxMsgNums": 9, "commitOffset": 0, "subVersion": 0, "queueOffset": 0}
    pull |= {"consumerGroup": "cg", "topic": "T", "queueId": 0, "sysFlag": 0, "suspendTimeoutMillis": 0}
    assert (await peer.call(RequestCode.PULL_MESSAGE, **pull)).code == ResponseCode.NO_PERMISSION
    await peer.ok(code, group="cg", topic="T", readable="true")
    assert (await peer.call(RequestCode.PULL_MESSAGE, **pull)).code == ResponseCode.PULL_NOT_FOUND


async def test_how_far_a_group_is(peer: Peer) -> None:
    await peer.create()
    for _ in range(3):
        await peer.send()
    await peer.beat("T")
    await commit(peer, 2)
    answer = await peer.ok(RequestCode.GET_CONSUME_STATS, consumerGroup="cg")
    progress = ConsumeStats.decode(answer.body).offset_table[MessageQueue("T", "broker-a", 0)]
    assert (progress.broker_offset, progress.consumer_offset) == (3, 2)
    assert progress.last_timestamp > 0
    everyone = await peer.ok(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert ConsumeStatsList.decode(everyone.body).total_diff == 1
    other = await peer.ok(RequestCode.GET_CONSUME_STATS, consumerGroup="cg", topic="Other")
    assert ConsumeStats.decode(other.body).offset_table == {}


async def test_an_answer_beyond_the_frame_limit_says_so_and_the_connection_stays(peer: Peer) -> None:
    group = "TOOLS_CONSUMER"
    for number in range(70):
        topic = f"T{number}".ljust(127, "x")
        await peer.create(topic, readQueueNums=1000)
        assert (await commit(peer, 0, topic=topic, consumerGroup=group)).code == ResponseCode.SUCCESS
    answer = await peer.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"do not fit a frame of {MAX_FRAME_BYTES} bytes" in str(answer.remark)
    assert "one topic or group at a time" in str(answer.remark)
    one = await peer.ok(RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic=topic)
    assert len(ConsumeStats.decode(one.body).offset_table) == 1000
