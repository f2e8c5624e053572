"""Statistics, time spans, consume queue entries and cleaning, as mqadmin requests them, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.events import SettingsChanged
from orbitmq.message.model import MessageQueue
from orbitmq.message.tags import java_hash
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from orbitmq.wire.bodies.ha import HARuntimeInfo
from orbitmq.wire.bodies.stats import (
    BrokerStatsData,
    ConsumeStats,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicStatsTable,
)
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Language


class Operator(BrokerPeer):
    """A client that sends and reads a few messages and makes the requests of mqadmin."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.runtime)
        self.broker = broker

    async def put(self, count: int = 1, *, topic: str = "T", queue_id: int = 0, size: int = 5) -> None:
        for _ in range(count):
            await self.sent(b"x" * size, topic=topic, queue_id=queue_id, default_topic_queue_nums=2,
                            properties={"TAGS": "a"})  # fmt: skip

    async def read(self, offset: int, *, group: str = "cg", topic: str = "T", count: int = 32) -> Command:
        return await self.pull(
            offset, consumer_group=group, topic=topic, max_msg_nums=count, suspend_timeout_millis=0
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
        assert (await self.ask(command)).code == ResponseCode.SUCCESS


@pytest.fixture
def operator(broker: Broker, orbitmq_loop: SimulatedLoop) -> Operator:
    return orbitmq_loop.enter(Operator(broker))


async def test_a_number_is_known_from_the_first_message_on(operator: Operator) -> None:
    """As in RocketMQ, the number is shown at once and not only after the next sample."""
    await asyncio.sleep(13)
    numbers = (("TOPIC_PUT_NUMS", "T"), ("BROKER_PUT_NUMS", "DefaultCluster"))
    for sent in range(1, 4):
        await operator.put(1)
        for name, key in numbers:
            answer = await operator.ok(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            assert BrokerStatsData.decode(answer.body).stats_day.sum == sent
    unread = await operator.call(
        RequestCode.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="T@cg"
    )
    assert unread.code == ResponseCode.SYSTEM_ERROR
    await operator.read(0, count=1)
    for name, key in (("GROUP_GET_NUMS", "T@cg"), ("BROKER_GET_NUMS", "DefaultCluster")):
        answer = await operator.ok(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        assert BrokerStatsData.decode(answer.body).stats_minute.sum == 1
    await asyncio.sleep(40)
    for name, key in numbers:
        answer = await operator.ok(RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        data = BrokerStatsData.decode(answer.body)
        assert data.stats_minute.sum == data.stats_hour.sum == 3
        assert 0.05 <= data.stats_minute.tps <= 0.3


async def test_statistics_of_a_topic_and_of_a_group(operator: Operator) -> None:
    missing = await operator.call(
        RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T"
    )
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert missing.remark == "The stats <TOPIC_PUT_NUMS> <T> not exist"
    await operator.put(1)
    await operator.read(0, count=1)
    await asyncio.sleep(10)
    await operator.put(30)
    await operator.read(0)
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


async def test_runtime_information_knows_the_morning_and_the_oldest_message(
    broker: Broker, operator: Operator
) -> None:
    before = broker.runtime.clock.now_ms()
    await operator.put(3)
    broker.services.stats._day = date(2000, 1, 1)
    await asyncio.sleep(11)
    await operator.put(2)
    table = KVTable.decode((await operator.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    assert table["msgPutTotalTodayMorning"] == "3"
    assert table["msgPutTotalTodayNow"] == "5"
    assert table["msgPutTotalYesterdayMorning"] == "0"
    assert table["putMessageTimesTotal"] == "5"
    assert table["putMessageSizeTotal"] == table["commitLogMaxOffset"]
    assert float(table["putMessageAverageSize"]) == int(table["commitLogMaxOffset"]) / 5
    assert before <= int(table["earliestMessageTimeStamp"]) < before + 5000


async def runtime_table(operator: Operator) -> dict[str, str]:
    return KVTable.decode((await operator.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table


@pytest.mark.parametrize("fast", [True, False])
async def test_rates_and_times_are_measured_at_both_doors(
    broker: Broker, operator: Operator, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    await operator.put(1)
    await operator.read(0, count=1)
    if not fast:
        broker.doors.fast_path = None
        get, clock = broker.services.store.get, broker.runtime.clock

        def get_slowly(*arguments: Any, **more: Any) -> Any:
            clock.advance(0.0075)
            return get(*arguments, **more)

        monkeypatch.setattr(broker.services.store, "get", get_slowly)
    await asyncio.sleep(30)
    assert (await runtime_table(operator))["getTotalTps"].split()[0] == "0.0"
    sync = broker.runtime.threads.sync

    def slowly(segments: Any, done: Any) -> None:
        loop = asyncio.get_running_loop()
        sync(segments, lambda error: loop.call_later(0.3, done, error))

    with monkeypatch.context() as patched:
        patched.setattr(broker.runtime.threads, "sync", slowly)
        await operator.put(20)
    for _ in range(9):
        await operator.read(0)
    await operator.read(21)  # queue 21 is empty
    await asyncio.sleep(10)
    found = await runtime_table(operator)
    tps = {name: float(found[name].split()[0]) for name in found if name.endswith("Tps")}
    assert tps["putTps"] == pytest.approx(2.0, abs=0.1)
    assert tps["getFoundTps"] == pytest.approx(0.9, abs=0.05)
    assert tps["getMissTps"] == pytest.approx(0.1, abs=0.05)
    assert tps["getTotalTps"] == pytest.approx(1.0, abs=0.05)
    assert tps["getTransferredTps"] > tps["getFoundTps"]
    assert 300 <= int(found["putMessageEntireTimeMax"]) <= 320
    assert found["putMessageFailedTimes"] == "0"
    assert found["getMessageEntireTimeMax"] == ("0" if fast else "7")
    await asyncio.sleep(60)
    found = await runtime_table(operator)
    assert "[200~500ms]:20 " in found["putMessageDistributeTime"]
    assert 250 <= float(found["putLatency99"]) <= 350
    broker.services.store.refuse("the disk of the test is full")
    assert (await operator.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await runtime_table(operator))["putMessageFailedTimes"] == "1"


async def test_the_progress_of_delay_levels_is_told(operator: Operator) -> None:
    await operator.put(1)
    assert (await operator.send(properties={"DELAY": "3"})).code == ResponseCode.SUCCESS
    for waited, told in ((1, "0,1"), (30, "1,1")):
        await asyncio.sleep(waited)
        table = await runtime_table(operator)
        levels = {name: value for name, value in table.items() if name.startswith("scheduleMessageOffset")}
        assert levels == {"scheduleMessageOffset_3": told}


async def test_totals_of_messages_begin_with_the_broker_not_with_its_log(runtime: SimulatedRuntime) -> None:
    for sent in (3, 2):
        async with Broker(runtime, broker_config()) as broker:
            operator = Operator(broker)
            before = broker.services.store.max_commit_log_offset
            await operator.put(sent)
            body = (await operator.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body
            table = KVTable.decode(body).table
            assert table["putMessageTimesTotal"] == str(sent)
            assert int(table["putMessageSizeTotal"]) == int(table["commitLogMaxOffset"]) - before
            await operator.client.close()


async def test_the_time_span_of_a_group(broker: Broker, operator: Operator) -> None:
    begin = broker.runtime.clock.now_ms()
    for _ in range(3):
        await operator.put()
        await asyncio.sleep(10)
    await operator.commit(1)
    answer = await operator.ok(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="cg")
    first, second = QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
    assert first.message_queue == MessageQueue("T", "broker-a", 0)
    times = [first.min_time_stamp, first.consume_time_stamp, first.max_time_stamp]
    assert [round((time - begin) / 1000) for time in times] == [0, 0, 20]
    assert round(first.delay_time / 1000) == 20
    assert (second.min_time_stamp, second.max_time_stamp, second.delay_time) == (-1, -1, 0)
    unknown = await operator.call(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="Nope", group="cg")
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_entries_of_a_consume_queue(operator: Operator) -> None:
    await operator.put(4)
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
    wrong = await operator.call(RequestCode.QUERY_CONSUME_QUEUE, topic="T", queueId=7, index=0, count=1)
    assert (wrong.code, wrong.remark) == (ResponseCode.SYSTEM_ERROR, "7@T is not exist!")


async def test_the_smallest_offset_of_all_groups(operator: Operator) -> None:
    await operator.put(9)
    for group, offset in (("g1", 5), ("g2", 3), ("g3", 1)):
        await operator.commit(offset, group=group)

    async def corrected(compare: str) -> dict[int, int]:
        answer = await operator.ok(
            RequestCode.QUERY_CORRECTION_OFFSET, topic="T", compareGroup=compare, filterGroups="g3"
        )
        return QueryCorrectionOffsetBody.decode(answer.body).correction_offsets

    assert await corrected("g1") == {0: 3}
    assert await corrected("g3") == {0: 2**63 - 1}


async def test_a_lone_master_says_how_it_replicates(broker: Broker, operator: Operator) -> None:
    await operator.put(3)
    status = HARuntimeInfo.decode((await operator.ok(RequestCode.GET_BROKER_HA_STATUS)).body)
    end = broker.services.store.max_commit_log_offset
    assert end > 0
    assert (status.master, status.master_commit_log_max_offset) == (True, end)
    assert (status.in_sync_slave_nums, status.ha_connection_info) == (0, [])


@pytest.mark.broker(delete_when="23")
async def test_expired_files_are_deleted_when_asked_for_at_any_hour(
    broker: Broker, operator: Operator
) -> None:
    await operator.put(40, size=10_000)
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


async def test_queues_of_no_topic_are_deleted_when_asked_for(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config()) as broker:
        operator = Operator(broker)
        await operator.put(2)
        await operator.put(2, topic="Kept")
        await operator.client.close()
        table = "/store/config/topics.json"
        await broker.services.persistence.fold()
    content = runtime.files.read_bytes(table).replace(b'"T"', b'"Other"')
    runtime.files.write_atomic(table, content)
    async with Broker(runtime, broker_config()) as broker:
        operator = Operator(broker)
        assert runtime.files.list_dir("/store/consumequeue/T")
        await operator.ok(RequestCode.CLEAN_UNUSED_TOPIC)
        assert "T" not in runtime.files.list_dir("/store/consumequeue")
        assert "Kept" in runtime.files.list_dir("/store/consumequeue")
        await operator.client.close()


@pytest.mark.broker(server_side_reset_offset=False)
async def test_consumers_are_told_to_move_when_the_broker_shall_not_do_it(operator: Operator) -> None:
    await operator.put(9)
    question: dict[str, str | int] = {"topic": "T", "group": "cg", "timestamp": 0, "isForce": "true"}
    nobody = await operator.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    await operator.commit(7)
    await operator.commit(0, queue_id=1)
    offline = await operator.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
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

    # Without force, offsets only move forward.
    question |= {"timestamp": -1, "isForce": "false"}
    answer = await operator.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
    assert ResetOffsetBody.decode(answer.body).offset_table[MessageQueue("T", "broker-a", 0)] == 7

    await operator.join(language=Language.CPP)
    await operator.ok(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **question)
    await asyncio.sleep(0.1)
    listed = ResetOffsetBodyForC.decode(operator.notices[-1].body).offset_table
    assert [(entry.queue_id, entry.offset) for entry in listed] == [(0, 7), (1, 0)]
