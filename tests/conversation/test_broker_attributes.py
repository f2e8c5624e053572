"""Attributes that the broker does not implement are refused: in requests, in files and from a master."""

from __future__ import annotations

import json
import logging

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.replication.state.codes import TableCodes
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import (
    CreateTopicListRequestBody,
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

REFUSED = [
    ("cleanup.policy", "COMPACTION", "not compacted here"),
    ("queue.type", "BatchCQ", "not built here"),
    ("reserve.time", "86400000", "fileReservedTime"),
    ("reserve.time", "0", "fileReservedTime"),
]
TAKEN = [
    ("cleanup.policy", "DELETE"),
    ("queue.type", "SimpleCQ"),
    ("reserve.time", "-1"),
    *(
        ("message.type", value)
        for value in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")
    ),
]
IDLE = [("message.type", "PRIORITY"), ("message.type", "LITE"), ("lite.topic.expiration", "60")]
IDLE_OF_GROUPS = [
    ("priority.factor", "50"),
    ("lite.bind.topic", "orders"),
    ("lite.sub.model", "Exclusive"),
    ("lite.sub.reset.offset.exclusive", "true"),
    ("lite.sub.reset.offset.unsubscribe", "false"),
    ("lite.sub.client.quota", "-1"),
    ("lite.sub.client.max.event.cnt", "400"),
    ("lite.sub.wildcard", "a*"),
]
WRONG_OF_GROUPS = [
    ("priority.factor", "101"),
    ("lite.sub.model", "shared"),
    ("lite.sub.reset.offset.exclusive", "yes"),
    ("lite.sub.client.max.event.cnt", "9"),
    ("lite.sub.client.quota", "²"),
    ("nonsense", "1"),
]


async def create(peer: BrokerPeer, attributes: str, topic: str = "T") -> Command:
    header = UpdateAndCreateTopicRequest(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=2,
        write_queue_nums=2,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=attributes,
    )
    return await peer.ask(header.command())


async def update_group(peer: BrokerPeer, *groups: SubscriptionGroupConfig) -> Command:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return await peer.call(code, groups[0].encode())


@pytest.mark.behaviour("ST-19")
@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
async def test_one_that_would_not_be_obeyed_is_refused(
    broker: Broker, peer: BrokerPeer, key: str, value: str, words: str
) -> None:
    answer = await create(peer, f"+{key}={value}")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert f"{key}={value}: " in (answer.remark or "")
    assert words in (answer.remark or "")
    assert "T" not in broker.services.topics
    # A change of the topic is refused, too, and so is a list with one refused attribute.
    assert (await create(peer, "")).code == ResponseCode.SUCCESS
    assert (await create(peer, f"+{key}={value}")).code == ResponseCode.INVALID_PARAMETER
    several = CreateTopicListRequestBody(
        [TopicConfig("A", 1, 1), TopicConfig("B", 1, 1, attributes={f"+{key}": value})]
    )
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, several.encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "A" not in broker.services.topics
    assert "B" not in broker.services.topics


async def test_the_refusal_of_an_unknown_attribute_names_the_known_ones(peer: BrokerPeer) -> None:
    answer = await create(peer, "+message.typ=FIFO")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (
        "attribute message.typ: unsupported key; there are queue.type, cleanup.policy, message.type"
        in str(answer.remark)
    )


@pytest.mark.behaviour("ST-19")
@pytest.mark.parametrize(("key", "value"), TAKEN)
async def test_what_is_obeyed_or_asks_for_nothing_is_taken(
    broker: Broker, peer: BrokerPeer, key: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await create(peer, f"+{key}={value}")).code == ResponseCode.SUCCESS
    config = broker.services.topics.get("T")
    assert config is not None
    assert config.attributes == {key: value}
    assert "not acted on" not in caplog.text


@pytest.mark.behaviour("ST-20")
@pytest.mark.parametrize(("key", "value"), IDLE)
async def test_one_of_later_releases_is_kept_and_told_to_change_nothing(
    broker: Broker, peer: BrokerPeer, key: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await create(peer, f"+{key}={value}")).code == ResponseCode.SUCCESS
    config = broker.services.topics.get("T")
    assert config is not None
    assert config.attributes == {key: value}
    assert f"topic T: {key}={value} is kept, and not acted on here" in caplog.text


@pytest.mark.behaviour("ST-20")
@pytest.mark.parametrize(("key", "value"), IDLE_OF_GROUPS)
async def test_one_of_a_group_is_kept_and_told_to_change_nothing(
    broker: Broker, peer: BrokerPeer, key: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await update_group(peer, SubscriptionGroupConfig("g", attributes={f"+{key}": value}))
    assert answer.code == ResponseCode.SUCCESS
    config = broker.services.groups.get("g")
    assert config is not None
    assert config.attributes == {key: value}
    assert f"group g: {key}={value} is kept, and not acted on here" in caplog.text


@pytest.mark.parametrize(("key", "value"), WRONG_OF_GROUPS)
async def test_a_wrong_value_of_a_group_is_refused(
    broker: Broker, peer: BrokerPeer, key: str, value: str
) -> None:
    answer = await update_group(peer, SubscriptionGroupConfig("g", attributes={f"+{key}": value}))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert key in (answer.remark or "")
    assert broker.services.groups.get("g") is None


def java_table(attributes: dict[str, str]) -> dict[str, TopicConfig]:
    return {"plain": TopicConfig("plain", 2, 2), "T": TopicConfig("T", 2, 2, attributes=attributes)}


def java_folder(attributes: dict[str, str]) -> SimulatedRuntime:
    runtime = simulated_runtime(1)
    topics = {name: config.to_plain() for name, config in java_table(attributes).items()}
    content = {"dataVersion": DataVersion(0, 1, 1).to_plain(), "topicConfigTable": topics}
    folder = f"{broker_config().store_path_root_dir}/config"
    runtime.files.write_atomic(f"{folder}/topics.json", json.dumps(content).encode())
    return runtime


@pytest.mark.behaviour("ST-19")
@pytest.mark.usefixtures("orbitmq_loop")
@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
async def test_a_folder_with_such_a_topic_is_refused(key: str, value: str, words: str) -> None:
    broker = Broker(java_folder({key: value}), broker_config())
    with pytest.raises(StartError) as failure:
        await broker.start()
    assert f"config/topics.json: topic T has the attribute {key}={value}: " in str(failure.value)
    assert words in str(failure.value)


@pytest.mark.behaviour("ST-20")
@pytest.mark.usefixtures("orbitmq_loop")
async def test_a_folder_with_one_of_later_releases_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    async with Broker(java_folder({"message.type": "LITE"}), broker_config()) as broker:
        config = broker.services.topics.get("T")
        assert config is not None
        assert config.attributes == {"message.type": "LITE"}
    assert "topic T: message.type=LITE is kept, and not acted on here" in caplog.text


@pytest.mark.behaviour("ST-19")
@pytest.mark.parametrize(("key", "value", "words"), REFUSED)
async def test_a_slave_takes_no_such_topic_of_its_master(
    broker: Broker, peer: BrokerPeer, key: str, value: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=java_table({key: value}), data_version=DataVersion(9, 9, 9)
    )
    master = RemotingServer(broker.runtime, lambda _connection, command: command.reply(body=wrapper.encode()))
    port = await master.start("127.0.0.1", 0)
    services = broker.services
    codes = TableCodes(peer.client, services.feed, services.topics)
    with caplog.at_level(logging.WARNING):
        await codes.topics(f"127.0.0.1:{port}")
    await master.stop()
    assert services.topics.get("plain") is not None
    assert services.topics.get("T") is None
    assert f"topic T has the attribute {key}={value}" in caplog.text
    assert words in caplog.text
