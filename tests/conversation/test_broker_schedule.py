"""Delayed messages, commands in, commands out, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.properties import decode_properties, properties_text
from orbitmq.message.record import Record, iter_records
from orbitmq.runtime.simulated import SimulatedRuntime, run, simulated_runtime
from orbitmq.store import NewMessage
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import PullMessageRequest, SendMessageResponse, SendMessageV2Request

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS_S = [1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]


def settings(**changes: Any) -> BrokerConfig:
    values: dict[str, Any] = {
        "listen_port": 10911,
        "store_path_root_dir": "/store",
        "mapped_file_size_commit_log": 1 << 18,
        "mapped_file_size_consume_queue": 6000,
    }
    return BrokerConfig(**{**values, **changes})


class Peer:
    """A client of the broker."""

    def __init__(self, runtime: SimulatedRuntime, port: int = 10911) -> None:
        self.runtime = runtime
        self.address = f"127.0.0.1:{port}"
        self.client = RemotingClient(runtime)

    async def ask(self, command: Command) -> Command:
        return await self.client.request(self.address, command, 60_000)

    async def send(
        self, body: bytes, properties: dict[str, str], topic: str = "T", queue_id: int = 1
    ) -> SendMessageResponse:
        header = SendMessageV2Request(
            producer_group="pg",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=5,
            flag=9,
            properties=properties_text(properties),
        )
        answer = await self.ask(header.command(body))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return SendMessageResponse.from_ext(answer.ext)

    async def pull(
        self, offset: int, topic: str = "T", queue_id: int = 1, *, wait_ms: int = 0, tags: str = "*"
    ) -> list[Record]:
        header = PullMessageRequest(
            consumer_group="cg",
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=6 if wait_ms else 4,
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            sub_version=0,
            subscription=tags,
            expression_type="TAG",
        )
        return list(iter_records((await self.ask(header.command())).body))

    def now(self) -> int:
        return self.runtime.clock.now_ms()


Talk = Callable[[Broker, Peer], Awaitable[None]]


def with_broker(talk: Talk, **changes: Any) -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        async with Broker(runtime, settings(**changes)) as broker:
            peer = Peer(runtime)
            await talk(broker, peer)
            await peer.client.close()

    run(main())


@pytest.mark.behaviour("DL-01")
@pytest.mark.behaviour("DL-02")
@pytest.mark.behaviour("DL-04")
@pytest.mark.behaviour("DL-06")
@pytest.mark.behaviour("DL-07")
def test_each_level_delivers_after_its_delay() -> None:
    async def talk(broker: Broker, peer: Peer) -> None:
        await peer.send(b"first", {})
        start = peer.now()
        for level in range(18, 0, -1):
            sent = await peer.send(b"%d" % level, {"DELAY": str(level), "TAGS": "a", "k": "v"})
            assert (sent.queue_id, sent.queue_offset) == (1, 0)
            [waiting] = await peer.pull(0, SCHEDULE, level - 1)
            properties = decode_properties(waiting.properties)
            assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
        sent_by = peer.now()
        for level, delay_s in enumerate(LEVELS_S, start=1):
            while not (found := await peer.pull(level, wait_ms=15_000)):
                pass
            [record] = found
            assert record.body == b"%d" % level
            assert start + delay_s * 1000 <= record.store_timestamp <= sent_by + delay_s * 1000 + 100
            assert (record.flag, record.born_timestamp, record.topic) == (9, 5, "T")
            properties = decode_properties(record.properties)
            assert properties["DELAY"] == str(level)
            assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
            assert (properties["TAGS"], properties["k"]) == ("a", "v")
        assert [record.body for record in await peer.pull(1, tags="a")][:2] == [b"1", b"2"]
        await peer.runtime.clock.sleep(0.5)
        assert [broker.services.schedule.progress(level) for level in range(1, 19)] == [1] * 18

    with_broker(talk)


@pytest.mark.behaviour("DL-02")
def test_a_level_above_the_highest_is_the_highest_and_one_below_one_is_none() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        await peer.send(b"far", {"DELAY": "99"})
        [record] = await peer.pull(0, SCHEDULE, 1)
        assert decode_properties(record.properties)["DELAY"] == "2"
        await peer.send(b"now", {"DELAY": "0"})
        await peer.send(b"now too", {"DELAY": "-1"})
        assert [record.body for record in await peer.pull(0)] == [b"now", b"now too"]

    with_broker(talk, message_delay_level="1s 1d")


def test_more_levels_than_rocketmq_has_get_their_queues() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        await peer.send(b"x", {"DELAY": "20"})
        assert [record.body for record in await peer.pull(0, wait_ms=15_000)] == [b"x"]

    with_broker(talk, message_delay_level=" ".join(["1h"] * 19 + ["3s"]))


@pytest.mark.behaviour("DL-03")
def test_the_queue_entry_holds_the_time_of_delivery_also_after_a_rebuild() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        peer = Peer(runtime)
        entries = []
        for crash in (False, True):
            broker = Broker(runtime, settings())
            await broker.start()
            if not crash:
                await peer.send(b"x", {"DELAY": "5", "TAGS": "a"})
            [record] = await peer.pull(0, SCHEDULE, 4)
            entry = broker.services.store.entry(SCHEDULE, 4, 0)
            assert entry is not None
            assert entry[2] == record.store_timestamp + 60_000
            entries.append(entry)
            await broker.stop()
            runtime.files.write_atomic("/store/abort", b"")
            runtime.files.remove_tree("/store/consumequeue")
            runtime.files.remove("/store/checkpoint")
        assert entries[0] == entries[1]
        await peer.client.close()

    run(main())


@pytest.mark.behaviour("DL-05")
def test_a_delivery_time_beyond_the_delay_is_now() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        peer = Peer(runtime)
        async with Broker(runtime, settings(message_delay_level="2h")):
            await peer.send(b"x", {"DELAY": "1"})
        async with Broker(runtime, settings(message_delay_level="3s")):
            assert [record.body for record in await peer.pull(0, wait_ms=1000)] == [b"x"]
        await peer.client.close()

    run(main())


@pytest.mark.behaviour("DL-09")
def test_progress_survives_a_restart_and_a_message_comes_once() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        peer = Peer(runtime)
        async with Broker(runtime, settings()):
            await peer.send(b"one", {"DELAY": "1"})
            await peer.send(b"two", {"DELAY": "2"})
            await runtime.clock.sleep(2)
            assert [record.body for record in await peer.pull(0)] == [b"one"]
        table = runtime.files.read_bytes("/store/config/delayOffset.json").decode()
        assert '"offsetTable":{\n\t\t1:1,\n\t\t2:0,' in table
        assert json.loads(table.split('"dataVersion":')[1].split("}")[0] + "}")["counter"] == 1
        async with Broker(runtime, settings()):
            await runtime.clock.sleep(10)
            assert [record.body for record in await peer.pull(0)] == [b"one", b"two"]
        await peer.client.close()

    run(main())


@pytest.mark.behaviour("DL-09")
def test_progress_beyond_the_queue_is_brought_back() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        peer = Peer(runtime)
        runtime.files.make_dirs("/store/config")
        runtime.files.write_atomic("/store/config/delayOffset.json", b'{"offsetTable":{1:7,99:1}}')
        async with Broker(runtime, settings()):
            await peer.send(b"one", {"DELAY": "1"})
            assert [record.body for record in await peer.pull(0, wait_ms=5000)] == [b"one"]
        await peer.client.close()

    run(main())


def test_power_fails_and_no_delayed_message_is_lost() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        peer = Peer(runtime)
        broker = Broker(runtime, settings())
        await broker.start()
        for number in range(20):
            await peer.send(b"%d" % number, {"DELAY": "1"})
            await runtime.clock.sleep(0.05)
        await runtime.clock.sleep(0.4)
        runtime.files.crash()
        await peer.client.close()
        # The first broker's machine is off: nothing that it still does reaches the disk.
        peer = Peer(runtime, 10921)
        async with Broker(runtime, settings(listen_port=10921)):
            await runtime.clock.sleep(5)
            got = {record.body for record in await peer.pull(0)}
            assert got == {b"%d" % number for number in range(20)}
        await peer.client.close()

    run(main())


@pytest.mark.behaviour("DL-08")
def test_a_message_that_cannot_be_delivered_does_not_hold_up_the_others() -> None:
    async def talk(broker: Broker, peer: Peer) -> None:
        store, levels = broker.services.store, broker.services.schedule.levels
        await peer.send(b"x", {})
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "Deleted"):
            waiting = levels.delayed(NewMessage("Elsewhere", 0, b"lost", b""), {"DELAY": "1"})
            waiting.properties = waiting.properties.replace(b"Elsewhere", topic.encode())
            store.put(waiting)
        await peer.send(b"after", {"DELAY": "1"})
        assert [record.body for record in await peer.pull(1, wait_ms=5000)] == [b"after"]
        assert await peer.pull(0, "RMQ_SYS_TRANS_HALF_TOPIC", 0) == []

    with_broker(talk)


@pytest.mark.behaviour("DL-10")
def test_a_slave_delivers_nothing() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        peer = Peer(runtime)
        async with Broker(runtime, settings()):
            await peer.send(b"x", {"DELAY": "1"})
        async with Broker(runtime, settings(broker_role="SLAVE", broker_id=1)):
            await runtime.clock.sleep(5)
            assert await peer.pull(0) == []
        async with Broker(runtime, settings()):
            assert len(await peer.pull(0, wait_ms=1000)) == 1
        await peer.client.close()

    run(main())


def test_many_due_at_once_are_delivered_in_order() -> None:
    async def talk(_broker: Broker, peer: Peer) -> None:
        for number in range(600):
            await peer.send(b"%d" % number, {"DELAY": "1"}, queue_id=0)
        await peer.runtime.clock.sleep(1.2)
        got: list[bytes] = []
        while page := await peer.pull(len(got), queue_id=0):
            got += [record.body for record in page]
        assert got == [b"%d" % number for number in range(600)]

    with_broker(talk)
