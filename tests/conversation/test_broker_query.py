"""Searches for messages by key: commands and responses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer

from orbitmq.broker.broker import Broker
from orbitmq.message.record import iter_records
from orbitmq.testing import SimulatedLoop
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import QueryMessageRequest, QueryMessageResponse
from orbitmq.wire.headers.send import SendMessageResponse


class Peer(BrokerPeer):
    """A client that sends messages with keys, and searches by them."""

    async def put(self, body: bytes, keys: str = "", topic: str = "T") -> SendMessageResponse:
        properties = {"KEYS": keys} if keys else None
        return await self.sent(body, topic=topic, queue_id=-1, properties=properties)

    async def query(self, key: str, *, unique: bool = False, **values: Any) -> Command:
        header = QueryMessageRequest(
            **{
                "topic": "T",
                "key": key,
                "max_num": 10,
                "begin_timestamp": 0,
                "end_timestamp": 2**63 - 1,
                **values,
            }
        )
        command = header.command()
        if unique:
            command.ext["_UNIQUE_KEY_QUERY"] = "true"
        return await self.ask(command)


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> Peer:
    return orbitmq_loop.enter(Peer(broker.runtime))


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [record.body for record in iter_records(answer.body)]


async def test_messages_are_found_by_each_of_their_keys_at_once(peer: Peer) -> None:
    await peer.put(b"one", "order-1 customer-7")
    await peer.put(b"other", "order-1", topic="Other")
    await peer.put(b"two", "order-2 customer-7")
    assert bodies(await peer.query("customer-7")) == [b"one", b"two"]
    assert bodies(await peer.query("order-1")) == [b"one"]
    assert bodies(await peer.query("order-1", topic="Other")) == [b"other"]
    assert bodies(await peer.query("customer-7", max_num=1)) == [b"two"]
    answer = await peer.query("customer-7")
    last = list(iter_records(answer.body))[-1]
    header = QueryMessageResponse.from_ext(answer.ext)
    assert header.index_last_update_phyoffset == last.physical_offset
    assert header.index_last_update_timestamp == last.store_timestamp


async def test_a_message_is_found_by_its_unique_id(peer: Peer) -> None:
    sent = [await peer.put(b"%d" % number) for number in range(5)]
    for number, answer in enumerate(sent):
        found = await peer.query(answer.transaction_id or "", unique=True, max_num=0)
        assert bodies(found) == [b"%d" % number]


@pytest.mark.behaviour("MV-13")
async def test_the_newest_64_are_found_the_oldest_of_them_first(peer: Peer) -> None:
    for number in range(70):
        await peer.put(b"%d" % number, "k")
    assert bodies(await peer.query("k", max_num=1000)) == [b"%d" % number for number in range(6, 70)]
    # A search by unique id returns at most 32, whatever number is requested; keys are in the same index.
    assert bodies(await peer.query("k", unique=True, max_num=1)) == [b"%d" % n for n in range(38, 70)]
    assert (await peer.query("other")).code == 22


@pytest.mark.broker(max_msgs_num_batch=6, default_query_max_num=2)
async def test_the_numbers_of_the_settings_bound_the_answer(peer: Peer) -> None:
    for number in range(9):
        await peer.put(b"%d" % number, "k")
    assert bodies(await peer.query("k", max_num=1000)) == [b"%d" % number for number in range(3, 9)]
    assert bodies(await peer.query("k", unique=True)) == [b"7", b"8"]
    assert (await peer.query("k", max_num=0)).code == ResponseCode.QUERY_NOT_FOUND
    assert (await peer.query("k", max_num=-1)).code == ResponseCode.QUERY_NOT_FOUND


async def test_only_what_was_stored_in_the_range_is_found(peer: Peer) -> None:
    await peer.put(b"one", "k")
    await peer.runtime.clock.sleep(5)
    middle = peer.runtime.clock.now_ms()
    await peer.runtime.clock.sleep(5)
    await peer.put(b"two", "k")
    assert bodies(await peer.query("k", end_timestamp=middle)) == [b"one"]
    assert bodies(await peer.query("k", begin_timestamp=middle)) == [b"two"]
    answer = await peer.query("k", begin_timestamp=middle, end_timestamp=middle + 10)
    assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")


@pytest.mark.broker(message_index_enable=False)
async def test_without_an_index_the_answer_names_the_setting(peer: Peer) -> None:
    await peer.put(b"one", "k")
    answer = await peer.query("k")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "messageIndexEnable" in (answer.remark or "")
