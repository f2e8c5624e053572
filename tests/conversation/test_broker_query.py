"""Looking for messages by key, commands in, commands out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.properties import properties_text
from orbitmq.message.record import iter_records
from orbitmq.runtime.simulated import SimulatedRuntime, run, simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import (
    QueryMessageRequest,
    QueryMessageResponse,
    SendMessageResponse,
    SendMessageV2Request,
)


class Peer:
    """A client of the broker."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.runtime = runtime
        self.client = RemotingClient(runtime)

    async def ask(self, command: Command) -> Command:
        return await self.client.request("127.0.0.1:10911", command, 60_000)

    async def send(self, body: bytes, keys: str = "", topic: str = "T") -> SendMessageResponse:
        header = SendMessageV2Request(
            producer_group="pg",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=-1,
            sys_flag=0,
            born_timestamp=5,
            flag=0,
            properties=properties_text({"KEYS": keys}) if keys else "",
        )
        answer = await self.ask(header.command(body))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return SendMessageResponse.from_ext(answer.ext)

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


Talk = Callable[[Broker, Peer], Awaitable[None]]


def with_broker(talk: Talk, **changes: Any) -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        config = BrokerConfig(
            **{
                "listen_port": 10911,
                "store_path_root_dir": "/store",
                "mapped_file_size_commit_log": 1 << 18,
                "mapped_file_size_consume_queue": 6000,
                **changes,
            }
        )
        async with Broker(runtime, config) as broker:
            peer = Peer(runtime)
            await talk(broker, peer)
            await peer.client.close()

    run(main())


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [record.body for record in iter_records(answer.body)]


def test_messages_are_found_by_each_of_their_keys_at_once() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        await peer.send(b"one", "order-1 customer-7")
        await peer.send(b"other", "order-1", topic="Other")
        await peer.send(b"two", "order-2 customer-7")
        assert bodies(await peer.query("customer-7")) == [b"one", b"two"]
        assert bodies(await peer.query("order-1")) == [b"one"]
        assert bodies(await peer.query("order-1", topic="Other")) == [b"other"]
        assert bodies(await peer.query("customer-7", max_num=1)) == [b"two"]
        answer = await peer.query("customer-7")
        last = list(iter_records(answer.body))[-1]
        header = QueryMessageResponse.from_ext(answer.ext)
        assert header.index_last_update_phyoffset == last.physical_offset
        assert header.index_last_update_timestamp == last.store_timestamp

    with_broker(talk)


def test_a_message_is_found_by_its_unique_id() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        sent = [await peer.send(b"%d" % number) for number in range(5)]
        for number, answer in enumerate(sent):
            found = await peer.query(answer.transaction_id or "", unique=True, max_num=0)
            assert bodies(found) == [b"%d" % number]

    with_broker(talk)


def test_the_numbers_of_the_settings_bound_the_answer() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        for number in range(9):
            await peer.send(b"%d" % number, "k")
        assert bodies(await peer.query("k", max_num=1000)) == [b"%d" % number for number in range(3, 9)]
        assert bodies(await peer.query("k", unique=True)) == [b"7", b"8"]
        assert (await peer.query("k", max_num=0)).code == ResponseCode.QUERY_NOT_FOUND
        assert (await peer.query("k", max_num=-1)).code == ResponseCode.QUERY_NOT_FOUND

    with_broker(talk, max_msgs_num_batch=6, default_query_max_num=2)


def test_only_what_was_stored_in_the_range_is_found() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        await peer.send(b"one", "k")
        await peer.runtime.clock.sleep(5)
        middle = peer.runtime.clock.now_ms()
        await peer.runtime.clock.sleep(5)
        await peer.send(b"two", "k")
        assert bodies(await peer.query("k", end_timestamp=middle)) == [b"one"]
        assert bodies(await peer.query("k", begin_timestamp=middle)) == [b"two"]
        answer = await peer.query("k", begin_timestamp=middle, end_timestamp=middle + 10)
        assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")

    with_broker(talk)


def test_without_an_index_the_answer_names_the_setting() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        await peer.send(b"one", "k")
        answer = await peer.query("k")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert "messageIndexEnable" in (answer.remark or "")

    with_broker(talk, message_index_enable=False)
