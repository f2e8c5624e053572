"""Statistics, time spans, consume queue entries and cleaning, as mqadmin asks for them; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import SettingsChanged
from orbitmq.message.model import MessageQueue
from orbitmq.message.tags import java_hash
from orbitmq.runtime.simulated import run, simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies import (
    BrokerStatsData,
    ConsumerData,
    ConsumeStats,
    HARuntimeInfo,
    HeartbeatData,
    KVTable,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionData,
    TopicStatsTable,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Language

KIB = 1024


def settings(**changes: Any) -> BrokerConfig:
    values: dict[str, Any] = {
        "listen_port": 10911,
        "store_path_root_dir": "/store",
        "mapped_file_size_commit_log": 128 * KIB,
        "mapped_file_size_consume_queue": 6000,
    }
    return BrokerConfig(**{**values, **changes})


class Operator:
    """Who asks, sends a little and reads a little."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.notices: list[Command] = []
        self.client = RemotingClient(broker.runtime, handle=self._note)

    def _note(self, _connection: object, command: Command) -> None:
        self.notices.append(command)

    async def ask(self, code: int, body: bytes = b"", /, **ext: str | int) -> Command:
        command = Command(code, {name: str(value) for name, value in ext.items()}, body)
        return await self.client.request(self.broker.address, command, 30_000)

    async def ok(self, code: int, body: bytes = b"", /, **ext: str | int) -> Command:
        answer = await self.ask(code, body, **ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def send(self, count: int = 1, *, topic: str = "T", queue_id: int = 0, size: int = 5) -> None:
        ext: dict[str, str | int] = {
            "a": "pg",
            "b": topic,
            "c": "TBW102",
            "d": 2,
            "e": queue_id,
            "f": 0,
            "g": 5,
            "h": 0,
        }
        for _ in range(count):
            await self.ok(RequestCode.SEND_MESSAGE_V2, b"x" * size, i="TAGS\x01a\x02", **ext)

    async def pull(self, offset: int, *, group: str = "cg", topic: str = "T", count: int = 32) -> Command:
        return await self.ask(
            RequestCode.PULL_MESSAGE,
            consumerGroup=group,
            topic=topic,
            queueId=0,
            queueOffset=offset,
            maxMsgNums=count,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=0,
            subscription="*",
            expressionType="TAG",
        )

    async def commit(self, offset: int, *, group: str = "cg", queue_id: int = 0) -> None:
        self.broker.services.groups.find(group)
        await self.ok(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic="T",
            queueId=queue_id,
            commitOffset=offset,
        )

    async def join(self, group: str = "cg", language: int = Language.JAVA) -> None:
        data = ConsumerData(group, subscription_data_set=[SubscriptionData("T", sub_version=1)])
        command = Command(RequestCode.HEART_BEAT, body=HeartbeatData("c", [], [data]).encode())
        command.language = language
        answer = await self.client.request(self.broker.address, command, 30_000)
        assert answer.code == ResponseCode.SUCCESS


Talk = Callable[[Broker, Operator], Awaitable[None]]


def with_broker(talk: Talk, **changes: Any) -> None:
    async def main() -> None:
        async with Broker(simulated_runtime(), settings(**changes)) as broker:
            operator = Operator(broker)
            await talk(broker, operator)
            await operator.client.close()

    run(main())


def test_statistics_of_a_topic_and_of_a_group() -> None:
    async def talk(_broker: Broker, operator: Operator) -> None:
        missing = await operator.ask(
            RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T"
        )
        assert missing.code == ResponseCode.SYSTEM_ERROR
        assert missing.remark == "The stats <TOPIC_PUT_NUMS> <T> not exist"
        await operator.send(1)
        await operator.pull(0, count=1)
        await asyncio.sleep(10)
        await operator.send(30)
        await operator.pull(0)
        await asyncio.sleep(20)

        async def stats(name: str, key: str) -> BrokerStatsData:
            answer = await operator.ok(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            return BrokerStatsData.decode(answer.body)

        put = await stats("TOPIC_PUT_NUMS", "T")
        assert put.stats_minute.sum == put.stats_hour.sum == put.stats_day.sum == 31
        assert put.stats_minute.tps > 0
        got = await stats("GROUP_GET_NUMS", "T@cg")
        assert got.stats_day.sum == 31
        assert (await stats("BROKER_PUT_NUMS", "DefaultCluster")).stats_day.sum == 31
        table = TopicStatsTable.decode((await operator.ok(RequestCode.GET_TOPIC_STATS_INFO, topic="T")).body)
        assert table.topic_put_tps == put.stats_minute.tps
        await operator.commit(5)
        answer = await operator.ok(RequestCode.GET_CONSUME_STATS, consumerGroup="cg")
        assert ConsumeStats.decode(answer.body).consume_tps == got.stats_minute.tps
        await asyncio.sleep(120)
        assert (await stats("TOPIC_PUT_NUMS", "T")).stats_minute.sum == 0
        assert (await stats("TOPIC_PUT_NUMS", "T")).stats_day.sum == 31

    with_broker(talk)


def test_runtime_information_knows_the_morning_and_the_oldest_message() -> None:
    async def talk(broker: Broker, operator: Operator) -> None:
        before = broker.runtime.clock.now_ms()
        await operator.send(3)
        broker.services.stats._day = date(2000, 1, 1)
        await asyncio.sleep(11)
        await operator.send(2)
        table = KVTable.decode((await operator.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert table["msgPutTotalTodayMorning"] == "3"
        assert table["msgPutTotalTodayNow"] == "5"
        assert table["msgPutTotalYesterdayMorning"] == "0"
        assert table["putMessageTimesTotal"] == "5"
        assert table["putMessageSizeTotal"] == table["commitLogMaxOffset"]
        assert float(table["putMessageAverageSize"]) == int(table["commitLogMaxOffset"]) / 5
        assert before <= int(table["earliestMessageTimeStamp"]) < before + 5000

    with_broker(talk)


def test_totals_of_messages_begin_with_the_broker_not_with_its_log() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        for sent in (3, 2):
            async with Broker(runtime, settings()) as broker:
                operator = Operator(broker)
                before = broker.services.store.max_commit_log_offset
                await operator.send(sent)
                body = (await operator.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body
                table = KVTable.decode(body).table
                assert table["putMessageTimesTotal"] == str(sent)
                assert int(table["putMessageSizeTotal"]) == int(table["commitLogMaxOffset"]) - before
                await operator.client.close()

    run(main())


def test_the_time_span_of_a_group() -> None:
    async def talk(broker: Broker, operator: Operator) -> None:
        begin = broker.runtime.clock.now_ms()
        for _ in range(3):
            await operator.send()
            await asyncio.sleep(10)
        await operator.commit(1)
        answer = await operator.ok(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="cg")
        first, second = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
        assert first.message_queue == MessageQueue("T", "broker-a", 0)
        times = [first.min_time_stamp, first.consume_time_stamp, first.max_time_stamp]
        assert [round((time - begin) / 1000) for time in times] == [0, 0, 20]
        assert round(first.delay_time / 1000) == 20
        assert (second.min_time_stamp, second.max_time_stamp, second.delay_time) == (-1, -1, 0)
        unknown = await operator.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="Nope", group="cg")
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST

    with_broker(talk)


def test_entries_of_a_consume_queue() -> None:
    async def talk(_broker: Broker, operator: Operator) -> None:
        await operator.send(4)
        answer = await operator.ok(
            RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=1, count=2, consumerGroup="cg"
        )
        body = QueryConsumeQueueResponseBody.decode(answer.body)
        assert (body.min_queue_index, body.max_queue_index) == (0, 4)
        one, two = body.queue_data
        assert one.tags_code == java_hash("a")
        assert two.physic_offset == one.physic_offset + one.physic_size
        assert body.filter_data == "cg@T is not online!"
        late = await operator.ok(RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=0, index=9, count=2)
        assert late.remark == "Index 9 of 0@T is not exist!"
        wrong = await operator.ask(RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=7, index=0, count=1)
        assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "7@T is not exist!")

    with_broker(talk)


def test_the_smallest_offset_of_all_groups() -> None:
    async def talk(_broker: Broker, operator: Operator) -> None:
        await operator.send(9)
        for group, offset in (("g1", 5), ("g2", 3), ("g3", 1)):
            await operator.commit(offset, group=group)

        async def corrected(compare: str) -> dict[int, int]:
            answer = await operator.ok(
                RequestCode.QUERY_CORRECTION_OFFSET, topic="T", compareGroup=compare, filterGroups="g3"
            )
            return QueryCorrectionOffsetBody.decode(answer.body).correction_offsets

        assert await corrected("g1") == {0: 3}
        assert await corrected("g3") == {0: 2**63 - 1}

    with_broker(talk)


def test_a_lone_master_says_how_it_replicates() -> None:
    async def talk(broker: Broker, operator: Operator) -> None:
        await operator.send(3)
        status = HARuntimeInfo.decode((await operator.ok(RequestCode.GET_BROKER_HA_STATUS)).body)
        end = broker.services.store.max_commit_log_offset
        assert end > 0
        assert (status.master, status.master_commit_log_max_offset) == (True, end)
        assert (status.in_sync_slave_nums, status.ha_connection_info) == (0, [])

    with_broker(talk)


def test_expired_files_are_deleted_when_asked_for_at_any_hour() -> None:
    async def talk(broker: Broker, operator: Operator) -> None:
        await operator.send(40, size=10_000)
        store = broker.services.store
        assert store.min_commit_log_offset == 0
        await operator.ok(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert store.min_commit_log_offset == 0
        broker.config.file_reserved_time_hours = 0
        broker.services.events.publish(SettingsChanged(frozenset(["fileReservedTime"])))
        await asyncio.sleep(1)
        await operator.ok(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert store.min_commit_log_offset > 0
        assert store.min_offset("T", 0) > 0

    with_broker(talk, delete_when="23")


def test_queues_of_no_topic_are_deleted_when_asked_for() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        async with Broker(runtime, settings()) as broker:
            operator = Operator(broker)
            await operator.send(2)
            await operator.send(2, topic="Kept")
            await operator.client.close()
            table = "/store/config/topics.json"
            await broker.services.persistence.fold()
        content = runtime.files.read_bytes(table).replace(b'"T"', b'"Other"')
        runtime.files.write_atomic(table, content)
        async with Broker(runtime, settings()) as broker:
            operator = Operator(broker)
            assert runtime.files.list_dir("/store/consumequeue/T")
            await operator.ok(RequestCode.CLEAN_UNUSED_TOPIC)
            assert "T" not in runtime.files.list_dir("/store/consumequeue")
            assert "Kept" in runtime.files.list_dir("/store/consumequeue")
            await operator.client.close()

    run(main())


def test_consumers_are_told_to_move_when_the_broker_shall_not_do_it() -> None:
    async def talk(_broker: Broker, operator: Operator) -> None:
        await operator.send(9)
        question: dict[str, str | int] = {"topic": "T", "group": "cg", "timestamp": 0, "isForce": "true"}
        nobody = await operator.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
        assert nobody.code == ResponseCode.SYSTEM_ERROR
        await operator.commit(7)
        await operator.commit(0, queue_id=1)
        offline = await operator.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        await operator.join()
        answer = await operator.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
        await asyncio.sleep(0.1)
        notice = operator.notices[-1]
        assert notice.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        assert notice.is_oneway
        assert (notice.ext["group"], notice.ext["topic"]) == ("cg", "T")
        expected = {MessageQueue("T", "broker-a", 0): 0, MessageQueue("T", "broker-a", 1): 0}
        assert ResetOffsetBody.decode(notice.body).offset_table == expected
        assert ResetOffsetBody.decode(answer.body).offset_table == expected

        # Forward only when it is forced.
        question |= {"timestamp": -1, "isForce": "false"}
        answer = await operator.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
        assert ResetOffsetBody.decode(answer.body).offset_table[MessageQueue("T", "broker-a", 0)] == 7

        await operator.join(language=Language.CPP)
        await operator.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
        await asyncio.sleep(0.1)
        listed = ResetOffsetBodyForC.decode(operator.notices[-1].body).offset_table
        assert [(entry.queue_id, entry.offset) for entry in listed] == [(0, 7), (1, 0)]

    with_broker(talk, server_side_reset_offset=False)
