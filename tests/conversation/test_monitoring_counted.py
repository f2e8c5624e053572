"""Figures in a scrape that are counted at each event."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from prometheus_client import Metric
from tests.conversation.broker_peer import BrokerPeer, pull_request, send_request
from tests.conversation.http_peer import ON, ask, get
from tests.conversation.test_broker_pop import pop
from tests.conversation.test_broker_transactions import COMMIT, ROLLBACK, TransactionPeer
from tests.metrics_text import COUNTED, families, value

from orbitmq.broker.broker import Broker
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import ConsumerSendMsgBackRequest

COMMON = {"cluster", "node_type", "node_id"}


@pytest.fixture
def producer(broker: Broker, orbitmq_loop: SimulatedLoop) -> TransactionPeer:
    return orbitmq_loop.enter(TransactionPeer(broker))


async def scrape(broker: Broker) -> dict[str, Metric]:
    answer = await ask(cast("SimulatedRuntime", broker.runtime), get("/metrics"))
    assert answer.status == 200
    return families(answer.body)


def shown(found: dict[str, Metric], name: str, topic: str) -> dict[str, float]:
    """The values of a metric for a topic, by message type."""
    return {s.labels["message_type"]: s.value for s in found[name].samples if s.labels["topic"] == topic}


def stored_bytes(broker: Broker, topic: str) -> int:
    """The bytes of all records in a topic's two queues."""
    store = broker.services.store
    entries = [
        store.entry(topic, queue, offset)
        for queue in range(2)
        for offset in range(store.max_offset(topic, queue))
    ]
    return sum(entry[1] for entry in entries if entry is not None)


def part(found: dict[str, Metric], name: str, suffix: str, **labels: str) -> float:
    """The sum, the count or one bucket of a histogram."""
    samples = [s for s in found[name].samples if s.name == f"{name}_{suffix}"]
    [sample] = [s for s in samples if labels.items() <= s.labels.items()]
    return cast("float", sample.value)


@pytest.mark.behaviour("MX-10")
@pytest.mark.broker(**ON)
async def test_transactions_are_counted_by_topic(broker: Broker, producer: TransactionPeer) -> None:
    await producer.create("Orders", readQueueNums=4, writeQueueNums=4)
    halves = [await producer.prepare() for _ in range(6)]
    await broker.runtime.clock.sleep(2)
    assert value(await scrape(broker), "rocketmq_half_messages", topic="Orders") == 6
    await broker.runtime.clock.sleep(8)
    for half, state in zip(halves, [COMMIT, COMMIT, COMMIT, ROLLBACK, ROLLBACK], strict=False):
        assert (await producer.end(half, state)).code == ResponseCode.SUCCESS
    # A transaction that has ended is not counted again.
    assert (await producer.end(halves[0], ROLLBACK)).code != ResponseCode.SUCCESS
    found = await scrape(broker)
    assert value(found, "rocketmq_half_messages", topic="Orders") == 1
    assert value(found, "rocketmq_commit_messages_total", topic="Orders") == 3
    assert value(found, "rocketmq_rollback_messages_total", topic="Orders") == 2
    latency = "rocketmq_finish_message_latency_milliseconds"
    assert part(found, latency, "count", topic="Orders") == 3
    assert part(found, latency, "bucket", topic="Orders", le="5.0") == 0
    assert part(found, latency, "bucket", topic="Orders", le="60.0") == 3
    await producer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    found = await scrape(broker)
    for name in ("rocketmq_commit_messages_total", "rocketmq_rollback_messages_total", latency):
        assert found[name].samples == [], name


@pytest.mark.behaviour("MX-10")
@pytest.mark.broker(**ON)
async def test_dead_letters_are_counted_by_group_and_topic(broker: Broker, peer: BrokerPeer) -> None:
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    group = SubscriptionGroupConfig(group_name="cg")
    await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode())
    await peer.sent(topic="T")
    entry = broker.services.store.entry("T", 0, 0)
    assert entry is not None
    for level in (1, -1):
        back = ConsumerSendMsgBackRequest(offset=entry[0], group="cg", delay_level=level)
        assert (await peer.ask(back.command())).code == ResponseCode.SUCCESS
    again = send_request(
        "%RETRY%cg", 0, default_topic_queue_nums=1, properties={"RETRY_TOPIC": "T"}, reconsume_times=17
    )
    assert (await peer.ask(again.command(b"again"))).code == ResponseCode.SUCCESS
    found = await scrape(broker)
    labels = {"consumer_group": "cg", "topic": "T", "is_system": "false"}
    assert value(found, "rocketmq_send_to_dlq_messages_total", **labels) == 2
    await peer.ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="cg", cleanOffset="true")
    assert (await scrape(broker))["rocketmq_send_to_dlq_messages_total"].samples == []


@pytest.mark.behaviour("MX-10")
@pytest.mark.broker(**ON)
async def test_timers_are_counted_by_topic(broker: Broker, peer: BrokerPeer) -> None:
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    for seconds in (5, 5, 600):
        await peer.sent(topic="T", born_timestamp=peer.now(), properties={"TIMER_DELAY_SEC": str(seconds)})
    await broker.runtime.clock.sleep(20)
    found = await scrape(broker)
    assert value(found, "rocketmq_timer_enqueue_total", topic="T") == 3
    assert value(found, "rocketmq_timer_dequeue_total", topic="T") == 2
    assert value(found, "rocketmq_timing_messages", topic="T") == 1
    assert value(found, "rocketmq_timer_enqueue_latency_milliseconds") == 0
    waits = "rocketmq_delay_message_latency_seconds"
    assert part(found, waits, "count", topic="T") == 3
    assert part(found, waits, "bucket", topic="T", le="60.0") == 2
    assert 600 <= part(found, waits, "sum", topic="T") - 10 <= 601
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert (await scrape(broker))[waits].samples == []


@pytest.mark.behaviour("MX-21")
@pytest.mark.broker(**ON)
async def test_waiting_timers_are_shown_by_their_times(broker: Broker, peer: BrokerPeer) -> None:
    """The buckets are 5 s, 1, 5, 15 minutes, 1, 4, 8 hours and a day; later timers are in none of them."""
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    for seconds in (30, 30, 200, 800, 801, 3000, 10_000, 20_000, 80_000, 100_000):
        await peer.sent(topic="T", properties={"TIMER_DELAY_SEC": str(seconds)})
    await broker.runtime.clock.sleep(3)
    name = "rocketmq_timer_message_snapshot"

    async def shown() -> list[float]:
        found = await scrape(broker)
        bounds = ("5", "60", "300", "900", "3600", "14400", "28800", "86400")
        return [value(found, name, timer_bound_s=bound) for bound in bounds]

    assert await shown() == [0, 2, 1, 2, 1, 1, 1, 1]
    await broker.runtime.clock.sleep(26)
    assert await shown() == [2, 0, 1, 2, 1, 1, 1, 1]
    assert value(await scrape(broker), "rocketmq_timer_dequeue_lag") == 0
    await broker.runtime.clock.sleep(10)
    assert await shown() == [0, 0, 1, 2, 1, 1, 1, 1]


@pytest.mark.behaviour("MX-21")
@pytest.mark.broker(**ON)
async def test_popped_messages_that_come_again_are_counted(broker: Broker, peer: BrokerPeer) -> None:
    for _ in range(3):
        await peer.sent(topic="T")
    assert len((await pop(peer)).records) == 3
    found = await scrape(broker)
    assert value(found, "rocketmq_pop_checkpoint_buffer_size") == 1
    assert found["rocketmq_pop_revive_retry_messages_total"].samples == []
    await broker.runtime.clock.sleep(15)
    found = await scrape(broker)
    labels = {"consumer_group": "cg", "topic": "T", "put_status": "PUT_OK"}
    assert value(found, "rocketmq_pop_revive_retry_messages_total", **labels) == 3
    assert value(found, "rocketmq_pop_checkpoint_buffer_size") == 0
    assert value(found, "rocketmq_throughput_out_total", consumer_group="cg", topic="T") > 0


@pytest.mark.behaviour("MX-10")
@pytest.mark.broker(**ON)
async def test_creations_are_timed(broker: Broker, peer: BrokerPeer) -> None:
    name = "rocketmq_topic_create_execution_time_milliseconds"
    for topic in ("T", "U"):
        await peer.create(topic)
    refused = await peer.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic="T U", defaultTopic="TBW102", readQueueNums=1, writeQueueNums=1, perm=6,
        topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
    )  # fmt: skip
    assert refused.code != ResponseCode.SUCCESS
    await peer.ok(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, SubscriptionGroupConfig(group_name="cg").encode()
    )
    found = await scrape(broker)
    assert part(found, name, "count", invocation_status="success", is_system="false") == 2
    assert part(found, name, "count", invocation_status="failure") == 1
    group = "rocketmq_consumer_group_create_execution_time_milliseconds"
    assert part(found, group, "count", invocation_status="success") == 1


@pytest.mark.behaviour("MX-10")
@pytest.mark.broker(**ON)
async def test_requests_that_fail_are_counted_by_their_codes(broker: Broker, peer: BrokerPeer) -> None:
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    name = "orbitmq_requests_failed_total"
    for _ in range(3):
        assert (await peer.pull(topic="nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await peer.pull(topic="T", sys_flag=4)).code == ResponseCode.PULL_NOT_FOUND
    for code in range(100_000, 100_020):
        assert (await peer.ask(Command(code))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    found = await scrape(broker)
    assert {(s.labels["request_code"], s.labels["response_code"]): s.value for s in found[name].samples} == {
        ("pull_message", "topic_not_exist"): 3,
        ("other", "request_code_not_supported"): 20,
    }


@pytest.mark.behaviour("MX-04")
@pytest.mark.broker(**ON)
async def test_names_types_and_labels_are_those_of_rocketmq(
    broker: Broker, producer: TransactionPeer
) -> None:
    await producer.create("Orders", readQueueNums=4, writeQueueNums=4)
    for state in (COMMIT, ROLLBACK):
        await producer.end(await producer.prepare(), state)
    await producer.prepare()
    for seconds in (1, 600):
        await producer.sent(topic="Orders", properties={"TIMER_DELAY_SEC": str(seconds)})
    group = SubscriptionGroupConfig(group_name="cg")
    await producer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode())
    await producer.ask(send_request("%RETRY%cg", 0, reconsume_times=17).command(b"x"))
    assert (await pop(producer, topic="Orders")).records
    await broker.runtime.clock.sleep(15)
    found = await scrape(broker)
    for name, (kind, labels) in COUNTED.items():
        assert found[name].type == kind, name
        assert found[name].samples, name
        for sample in found[name].samples:
            assert set(sample.labels) - {"le"} == labels | COMMON, name


@pytest.mark.behaviour("MX-17")
@pytest.mark.broker(**ON, mapped_file_size_commit_log=8 << 20)
@pytest.mark.parametrize("message_type", ["normal", "fifo"])
async def test_messages_bytes_and_sizes_are_those_of_the_records_on_both_paths(
    broker: Broker, peer: BrokerPeer, message_type: str
) -> None:
    """The same messages go through the fast path, and through the handlers as messages of a unit."""
    properties = {"__SHARDINGKEY": "k"} if message_type == "fifo" else {"a": "b"}
    for topic in ("fast", "handled"):
        await peer.create(topic, readQueueNums=2, writeQueueNums=2)
    found = await scrape(broker)
    for topic in ("fast", "handled"):
        assert shown(found, "rocketmq_messages_in_total", topic) == {"normal": 0}
    fast_before = broker.services.counters.fast_in
    bodies = [10, 10, 900, 2000, 300_000, 700_000]
    for number, size in enumerate(bodies):
        await peer.sent(bytes(size), topic="fast", queue_id=number % 2, properties=properties)
    batch = encode_batch(Message("T", bytes(size), properties=properties) for size in (10, 900))

    async def send_batch(topic: str, **values: bool) -> None:
        command = send_request(topic, 1, batch=True, **values).command(batch)
        command.code = RequestCode.SEND_BATCH_MESSAGE
        assert (await peer.ask(command)).code == ResponseCode.SUCCESS

    await send_batch("fast")
    assert broker.services.counters.fast_in == fast_before + len(bodies) + 2
    for number, size in enumerate(bodies):
        await peer.sent(
            bytes(size), topic="handled", queue_id=number % 2, properties=properties, unit_mode=True
        )
    await send_batch("handled", unit_mode=True)
    assert broker.services.counters.fast_in == fast_before + len(bodies) + 2
    found = await scrape(broker)
    for topic in ("fast", "handled"):
        stored = stored_bytes(broker, topic)
        assert stored > sum(bodies)
        labels = {"topic": topic, "message_type": message_type, "is_system": "false"}
        assert value(found, "rocketmq_messages_in_total", **labels) == len(bodies) + 2
        assert value(found, "rocketmq_throughput_in_total", **labels) == stored
        name = "rocketmq_message_size"
        bounds = ("1024.0", "4096.0", "524288.0", "1048576.0", "+Inf")
        assert [part(found, name, "bucket", le=bound, **labels) for bound in bounds] == [4, 6, 7, 8, 8]
        assert part(found, name, "count", **labels) == len(bodies) + 2
        assert part(found, name, "sum", **labels) == stored
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="fast")
    await peer.create("fast", readQueueNums=2, writeQueueNums=2)
    assert shown(await scrape(broker), "rocketmq_throughput_in_total", "fast") == {"normal": 0}


@pytest.mark.behaviour("MX-26")
@pytest.mark.broker(**ON)
async def test_messages_are_counted_by_their_type(broker: Broker, producer: TransactionPeer) -> None:
    """A half or delayed message counts for the topic where it waits, and for its own when it gets there."""
    await producer.create("Orders", readQueueNums=4, writeQueueNums=4)
    for _ in range(2):
        await producer.end(await producer.prepare(), COMMIT)
    await producer.end(await producer.prepare(), ROLLBACK)
    for properties in (
        {"__SHARDINGKEY": "k"},
        {"__SHARDINGKEY": "k", "DELAY": "1"},
        {"__STARTDELIVERTIME": "1"},
        {"DELAY": "1"},
        {"TIMER_DELAY_SEC": "2"},
        {"TIMER_DELAY_MS": "1500"},
        {"TIMER_DELIVER_MS": str(producer.now() + 3000)},
        {"TIMER_OUT": "1", "MY_DELAY": "1"},
    ):
        await producer.sent(topic="Orders", properties=properties)
    await broker.runtime.clock.sleep(20)
    found = await scrape(broker)
    name = "rocketmq_messages_in_total"
    assert shown(found, name, "Orders") == {"normal": 1, "fifo": 2, "delay": 5, "transaction": 2}
    assert shown(found, name, "RMQ_SYS_TRANS_HALF_TOPIC") == {"normal": 0, "transaction": 3}
    assert shown(found, name, "SCHEDULE_TOPIC_XXXX") == {"normal": 0, "fifo": 1, "delay": 1}
    assert shown(found, name, "rmq_sys_wheel_timer") == {"normal": 0, "delay": 3}
    kinds = {"normal": 1, "fifo": 2, "delay": 5, "transaction": 2}
    assert {kind: part(found, "rocketmq_message_size", "count", topic="Orders", message_type=kind)
            for kind in kinds} == kinds  # fmt: skip


@pytest.mark.behaviour("MX-26")
@pytest.mark.broker(**ON, metrics_series=300)
async def test_the_limit_cuts_the_sizes_of_messages_first(broker: Broker, peer: BrokerPeer) -> None:
    topics = [f"topic-{number}" for number in range(40)]
    for topic in topics:
        await peer.create(topic, readQueueNums=1, writeQueueNums=1)
        await peer.sent(topic=topic)
    found = await scrape(broker)
    # A histogram is shown as a whole or not at all.
    shown_sizes = len(found["rocketmq_message_size"].samples)
    assert shown_sizes % 9 == 0
    assert value(found, "orbitmq_metrics_series_cut") == 9 * len(topics) - shown_sizes
    assert 300 - 9 < sum(len(one.samples) for one in found.values()) <= 300
    assert {s.labels["topic"] for s in found["rocketmq_messages_in_total"].samples} >= set(topics)


@pytest.mark.behaviour("MX-22")
@pytest.mark.broker(**ON)
async def test_bytes_to_groups_are_those_of_the_answers_on_both_paths(
    broker: Broker, peer: BrokerPeer
) -> None:
    """A group's first pull goes to the handlers; later ones take the fast path."""
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    for size in (10, 900, 2000):
        await peer.sent(bytes(size), topic="T")
    size = 0
    for offset in (0, 0, 1, 2):
        size += len((await peer.ask(pull_request(offset))).body)
    assert broker.services.counters.fast_out >= 3
    labels = {"consumer_group": "cg", "topic": "T", "is_retry": "false", "is_system": "false"}
    assert value(await scrape(broker), "rocketmq_throughput_out_total", **labels) == size
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert (await scrape(broker))["rocketmq_throughput_out_total"].samples == []


@pytest.mark.behaviour("MX-23")
@pytest.mark.broker(**ON)
async def test_requests_are_timed_on_both_paths(broker: Broker, peer: BrokerPeer) -> None:
    name = "rocketmq_rpc_latency_milliseconds"
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    for unit_mode in (False, False, True):
        await peer.sent(topic="T", unit_mode=unit_mode)
    assert broker.services.counters.fast_in == 2
    for offset in (0, 0, 1):
        await peer.ask(pull_request(offset))
    assert (await peer.pull(topic="nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
    # One-way requests and waiting pulls are not timed.
    one_way = send_request("T", 0)
    await peer.client.oneway(broker.address, one_way.command(b"x"), 5000)
    await broker.runtime.clock.sleep(1)
    found = await scrape(broker)
    fixed = {"protocol_type": "remoting", "is_long_polling": "false", "result": "success"}

    def number(request: str, response: str = "success") -> float:
        return part(found, name, "count", request_code=request, response_code=response, **fixed)

    assert number("send_message_v2") == 3
    assert number("pull_message") == 3
    assert number("pull_message", "topic_not_exist") == 1
    assert number("update_and_create_topic") == 1
    assert part(found, name, "bucket", request_code="send_message_v2", le="3000.0") == 3


@pytest.mark.behaviour("MX-23")
@pytest.mark.broker(**ON)
async def test_a_send_and_a_pull_that_come_together_are_both_timed(broker: Broker, peer: BrokerPeer) -> None:
    """The pull is answered at once, the send when its message is written."""
    name = "rocketmq_rpc_latency_milliseconds"
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    await peer.sent(topic="T")
    await peer.ask(pull_request(0))  # the first pull goes to the handlers
    counters = broker.services.counters
    sent, pulled = counters.fast_in, counters.fast_out
    await asyncio.gather(peer.ask(pull_request(0)), peer.send(topic="T"))
    assert (counters.fast_in - sent, counters.fast_out - pulled) == (1, 1)
    found = await scrape(broker)
    for request in ("send_message_v2", "pull_message"):
        assert part(found, name, "count", request_code=request, response_code="success") == 2


@pytest.mark.behaviour("MX-23")
@pytest.mark.broker(**ON, flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=1000)
async def test_answers_of_the_fast_path_that_wait_for_the_disk_are_timed_until_they_go(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    await peer.sent(topic="T")
    threads, later = broker.runtime.threads, asyncio.get_running_loop().call_later
    sync, seconds = threads.sync, 0.05
    monkeypatch.setattr(threads, "sync", lambda segments, done: later(seconds, sync, segments, done))
    assert (await peer.send(topic="T")).code == ResponseCode.SUCCESS
    seconds = 3.0
    assert (await peer.send(topic="T")).code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert broker.services.counters.fast_in == 3
    name = "rocketmq_rpc_latency_milliseconds"
    for _ in range(2):  # a scrape changes no figure
        found = await scrape(broker)
        sends = {"request_code": "send_message_v2", "result": "success"}
        assert part(found, name, "count", response_code="success", **sends) == 2
        assert part(found, name, "bucket", response_code="success", le="10.0", **sends) == 1
        assert part(found, name, "bucket", response_code="success", le="100.0", **sends) == 2
        assert 50 <= part(found, name, "sum", response_code="success", **sends) < 110
        assert part(found, name, "bucket", response_code="flush_disk_timeout", le="2000.0", **sends) == 1
        assert part(found, name, "bucket", response_code="flush_disk_timeout", le="1000.0", **sends) == 0


async def test_without_metrics_nothing_is_timed(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(topic="T")
    assert broker.services.counters.bytes_out is None
