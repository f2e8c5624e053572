"""Consumers that filter by SQL92 expressions, over RocketMQ's protocol: pulls, held pulls, checks,
retries."""

from __future__ import annotations

import asyncio
import json
from dataclasses import astuple
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, records, send_request

from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.filter_table import FilterTable, bloom_places, murmur3_low
from orbitmq.broker.events import Events
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties
from orbitmq.store import NewMessage
from orbitmq.wire.bodies.client import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SQL = "a > 5 AND b = 'x'"


def heartbeat(*subscriptions: tuple[str, str, str], version: int = 1) -> bytes:
    data = [
        SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)
        for topic, text, kind in subscriptions
    ]
    return HeartbeatData(
        "client", consumer_data_set=[ConsumerData("cg", subscription_data_set=data)]
    ).encode()


async def send_numbers(peer: BrokerPeer, count: int, **values: Any) -> None:
    for number in range(count):
        await peer.sent(b"%d" % number, properties={"a": str(number), "b": "x"}, **values)


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [record.body for record in records(answer)]


@pytest.mark.behaviour("FI-01")
async def test_a_pull_with_its_own_expression_gets_what_matches(peer: BrokerPeer) -> None:
    await send_numbers(peer, 10)
    answer = await peer.pull(subscription=SQL, expression_type="SQL92")
    assert bodies(answer) == [b"6", b"7", b"8", b"9"]
    assert answer.ext["nextBeginOffset"] == "10"
    none = await peer.pull(subscription="a > 50", expression_type="SQL92", sys_flag=4)
    assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert none.ext["nextBeginOffset"] == "10"


@pytest.mark.behaviour("FI-01")
async def test_a_group_gets_what_its_heartbeat_says_from_both_doors(peer: BrokerPeer, broker: Broker) -> None:
    await send_numbers(peer, 10)
    await peer.ok(RequestCode.HEART_BEAT, heartbeat(("T", SQL, "SQL92")))
    for _ in range(3):  # the second and third pull take the fast path
        answer = await peer.pull(sys_flag=0, subscription=None, expression_type="SQL92", sub_version=1)
        assert bodies(answer) == [b"6", b"7", b"8", b"9"]
    fast_path = broker.doors.fast_path
    assert fast_path is not None
    assert fast_path.pulls_found == 2
    await peer.ok(RequestCode.HEART_BEAT, heartbeat(("T", "a < 2", "SQL92"), ("U", "*", "TAG"), version=2))
    answer = await peer.pull(sys_flag=0, subscription=None, expression_type="SQL92", sub_version=2)
    assert bodies(answer) == [b"0", b"1"]


@pytest.mark.behaviour("FI-06")
async def test_a_held_pull_waits_for_what_matches(peer: BrokerPeer) -> None:
    await peer.sent(properties={"a": "1"})
    await peer.ok(RequestCode.HEART_BEAT, heartbeat(("T", SQL, "SQL92")))
    waiting = asyncio.create_task(peer.pull(1, sys_flag=2, sub_version=1, expression_type="SQL92"))
    await asyncio.sleep(1)
    await peer.sent(b"no", properties={"a": "5", "b": "x"})
    await asyncio.sleep(1)
    assert not waiting.done()
    await peer.sent(b"yes", properties={"a": "6", "b": "x"})
    assert bodies(await waiting) == [b"yes"]


async def test_items_of_a_batch_are_filtered_one_by_one(peer: BrokerPeer) -> None:
    items = [Message("T", b"%d" % number, properties={"a": str(number)}) for number in range(6)]
    header = send_request(batch=True)
    answer = await peer.ask(header.command(encode_batch(items)))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert bodies(await peer.pull(subscription="a BETWEEN 2 AND 3", expression_type="SQL92")) == [b"2", b"3"]


@pytest.mark.behaviour("FI-05")
@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("", "empty"),
        ("a >", "column 4"),
        ("a = 1 AN b = 2", "column 7"),
        ("x" * 100 * 1024, "the limit is 32768"),
        ("(" * 5000 + "a = 1" + ")" * 5000, "nested deeper"),
    ],
)
async def test_a_broken_expression_is_refused_at_start_and_in_pulls(
    peer: BrokerPeer, expression: str, word: str
) -> None:
    await send_numbers(peer, 1)
    check = CheckClientRequestBody("c", "cg", SubscriptionData("T", expression, expression_type="SQL92"))
    answers = [await peer.call(RequestCode.CHECK_CLIENT_CONFIG, check.encode())]
    if len(expression) < 32_000:  # longer ones do not fit into a header
        answers.append(await peer.pull(subscription=expression, expression_type="SQL92"))
    await peer.ok(RequestCode.HEART_BEAT, heartbeat(("T", expression, "SQL92")))
    answers.append(await peer.pull(sys_flag=0, sub_version=1, expression_type="SQL92"))
    for answer in answers:
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert word in (answer.remark or "")
        assert "topic T" in (answer.remark or "")
    # Other groups are still served.
    assert bodies(await peer.pull(consumer_group="other")) == [b"0"]


@pytest.mark.behaviour("FI-07")
@pytest.mark.broker(enable_property_filter=False)
async def test_a_broker_that_must_not_filter_says_so(peer: BrokerPeer) -> None:
    await send_numbers(peer, 1)
    check = CheckClientRequestBody("c", "cg", SubscriptionData("T", SQL, expression_type="SQL92"))
    answer = await peer.call(RequestCode.CHECK_CLIENT_CONFIG, check.encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "does not support consumer to filter message by SQL92" in (answer.remark or "")
    assert (await peer.pull(subscription=SQL, expression_type="SQL92")).code == ResponseCode.SYSTEM_ERROR


async def retried(peer: BrokerPeer) -> list[dict[str, str]]:
    """The properties of the messages in the retry topic after messages 4 and 6 were sent back."""
    await send_numbers(peer, 7)
    subscriptions = heartbeat(("T", "a > 5", "SQL92"), ("%RETRY%cg", "*", "TAG"))
    await peer.ok(RequestCode.HEART_BEAT, subscriptions)
    for record in [record for record in records(await peer.pull()) if record.body in (b"4", b"6")]:
        await peer.ok(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=record.physical_offset, group="cg", delayLevel=1,
            originMsgId="", originTopic="T", unitMode="false", maxReconsumeTimes=16,
        )  # fmt: skip
    await asyncio.sleep(3)
    answer = await peer.pull(topic="%RETRY%cg", sys_flag=0, sub_version=1)
    return [decode_properties(record.properties) for record in records(answer)]


@pytest.mark.behaviour("FI-08")
async def test_retries_are_not_filtered_again(peer: BrokerPeer) -> None:
    assert [found["a"] for found in await retried(peer)] == ["4", "6"]


@pytest.mark.behaviour("FI-08")
@pytest.mark.broker(filter_support_retry=True)
async def test_retries_pass_the_expression_of_their_topic(peer: BrokerPeer) -> None:
    assert [found["a"] for found in await retried(peer)] == ["6"]


async def test_one_pull_looks_into_so_many_messages_only(peer: BrokerPeer, broker: Broker) -> None:
    broker.services.topics.create_if_absent("T", 1)
    messages = [NewMessage("T", 0, b"%d" % n, b"a\x01%d\x02" % n) for n in range(3000)]
    for at in range(0, 3000, 100):
        await broker.services.append.stored(broker.services.append.put_many(messages[at : at + 100]))
    at, pulls = 0, 0
    while True:
        answer = await peer.pull(at, subscription="a = 2900", expression_type="SQL92")
        pulls += 1
        if answer.code == ResponseCode.SUCCESS:
            break
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert int(answer.ext["nextBeginOffset"]) > at
        at = int(answer.ext["nextBeginOffset"])
    assert bodies(answer) == [b"2900"]
    assert pulls >= 2


async def test_skipping_over_the_border_of_a_queue_file_finds_what_lies_behind(peer: BrokerPeer) -> None:
    await send_numbers(peer, 1300)  # a queue file has 300 entries, and memory holds the newest 512
    answer = await peer.pull(subscription="a = 650", expression_type="SQL92", max_msg_nums=1)
    assert bodies(answer) == [b"650"]
    assert answer.ext["nextBeginOffset"] == "651"


def of(client: str, *subscriptions: tuple[str, str, str]) -> bytes:
    data = HeartbeatData.decode(heartbeat(*subscriptions))
    data.client_id = client
    return data.encode()


async def connections(peer: BrokerPeer) -> ConsumerConnection:
    answer = await peer.ok(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="cg")
    return ConsumerConnection.decode(answer.body)


@pytest.mark.behaviour("SH-01")
async def test_contradicting_members_are_shown_with_both_names(peer: BrokerPeer) -> None:
    await peer.ok(RequestCode.HEART_BEAT, of("one", ("T", "a > 1", "SQL92")))
    assert (await connections(peer)).conflicts is None
    async with BrokerPeer(peer.runtime) as other:
        await other.ok(RequestCode.HEART_BEAT, of("two", ("T", "a > 2", "SQL92"), ("U", "*", "TAG")))
        shown = await connections(peer)
        assert sorted(astuple(conflict) for conflict in shown.conflicts or ()) == [
            ("T", "one", "a > 1", "two", "a > 2"),
            ("U", "one", None, "two", "*"),
        ]
        assert shown.conflict_count == 1

    await asyncio.sleep(1)
    shown = await connections(peer)
    assert (shown.conflicts, shown.conflict_count) == (None, 1)


@pytest.mark.behaviour("SH-01")
@pytest.mark.broker(strict_subscription=True)
async def test_a_strict_broker_refuses_the_second(peer: BrokerPeer) -> None:
    await peer.ok(RequestCode.HEART_BEAT, of("one", ("T", "a > 1", "SQL92")))
    async with BrokerPeer(peer.runtime) as other:
        data = HeartbeatData.decode(of("two", ("T", "a > 2", "SQL92")))
        fine = ConsumerData("fine", subscription_data_set=[SubscriptionData("U")])
        data.consumer_data_set.append(fine)
        answer = await other.call(RequestCode.HEART_BEAT, data.encode())
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "client two wants 'a > 2', client one wants 'a > 1'" in (answer.remark or "")
        await other.ok(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="fine")
        assert [one.client_id for one in (await connections(peer)).connection_set] == ["one"]
        assert (await connections(peer)).conflict_count == 1
        await other.ok(RequestCode.HEART_BEAT, of("two", ("T", "a > 1", "SQL92")))
        assert len((await connections(peer)).connection_set) == 2


def test_the_hash_is_the_one_of_java() -> None:
    # Seed 0 of MurmurHash3 x64 128: the first half of the published digests.
    assert murmur3_low(b"") == 0
    assert murmur3_low(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_low(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    assert all(0 <= place < 112 for place in bloom_places("cg#T"))


@pytest.mark.behaviour("FI-09")
async def test_expressions_are_in_the_file_that_java_brokers_read(peer: BrokerPeer, broker: Broker) -> None:
    await peer.ok(RequestCode.HEART_BEAT, heartbeat(("T", SQL, "SQL92"), ("U", "*", "TAG")))
    await broker.services.persistence.fold()
    content = json.loads(broker.runtime.files.read_bytes("/store/config/consumerFilter.json"))
    entry = content["filterDataByTopic"]["T"]["groupFilterData"]["cg"]
    assert entry["bloomFilterData"] == {"bitNum": 112, "bitPos": bloom_places("cg#T")}
    assert (entry["expression"], entry["expressionType"], entry["deadTime"]) == (SQL, "SQL92", 0)
    assert set(content["filterDataByTopic"]) == {"T"}
    table = broker.part(FilterTable)
    restored = FilterTable(broker.runtime.clock, Events(), ChangeFeed())
    restored.restore(content)
    found = restored.get("T", "cg")
    assert found is not None
    assert (found["expression"], found["dead"]) == (SQL, True)
    await peer.ok(RequestCode.HEART_BEAT, heartbeat(("T", "*", "TAG"), ("U", "*", "TAG"), version=2))
    await peer.ok(RequestCode.UNREGISTER_CLIENT, clientID="client", consumerGroup="cg")
    gone = table.get("T", "cg")
    assert gone is not None
    assert gone["dead"]
    entry["deadTime"] = peer.now() - 25 * 3600 * 1000
    restored.restore(content)
    assert list(restored.file_text()) == ["{", '\n\t"filterDataByTopic":{', "}", "\n}"]
