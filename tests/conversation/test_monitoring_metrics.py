"""A scrape of a broker: names, types and labels of RocketMQ 5, true figures, within limits."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, cast

import pytest
from prometheus_client import Metric
from tests.conversation.broker_peer import BrokerPeer, broker_config, pull_request
from tests.conversation.http_peer import HOST, ON, PORT, Raw, ask, get, opened
from tests.conversation.turns import Turns
from tests.metrics_text import COUNTED, STORED, families, value
from tests.unit.test_monitoring_generated import METRIC, PAGE, used

from orbitmq.broker.broker import Broker
from orbitmq.broker.metrics.figures import STATUS
from orbitmq.broker.metrics.read_topics import PER_BATCH
from orbitmq.broker.role import Role
from orbitmq.cluster.brokers import make_broker
from orbitmq.monitoring import http
from orbitmq.monitoring.exposition import Exposition
from orbitmq.monitoring.http import HttpAnswer, HttpListener
from orbitmq.runtime.certificates import self_signed
from orbitmq.runtime.histogram import Histogram
from orbitmq.runtime.server_tls import CertificateFiles, ServerTls
from orbitmq.settings.tls import TlsSettings
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import run, simulated_runtime
from orbitmq.wire.bodies.client import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.versions import name_of

# Metrics of RocketMQ 5.5 with their types, and their labels beside cluster, node_type and node_id.
OF_GROUP = {"consumer_group", "topic", "is_retry", "is_system"}
APACHE = {
    "rocketmq_messages_in_total": ("counter", {"topic", "message_type", "is_system"}),
    "rocketmq_messages_out_total": ("counter", OF_GROUP),
    "rocketmq_throughput_in_total": ("counter", {"topic", "message_type", "is_system"}),
    "rocketmq_throughput_out_total": ("counter", OF_GROUP),
    "rocketmq_message_size": ("histogram", {"topic", "message_type", "is_system"}),
    "rocketmq_rpc_latency_milliseconds": (
        "histogram",
        {"protocol_type", "request_code", "response_code", "is_long_polling", "result"},
    ),
    "rocketmq_pop_checkpoint_buffer_size": ("gauge", set()),
    "rocketmq_timer_dequeue_lag": ("gauge", STORED),
    "rocketmq_timer_message_snapshot": ("gauge", {"timer_bound_s"} | STORED),
    "rocketmq_processor_watermark": ("gauge", {"processor"}),
    "rocketmq_broker_permission": ("gauge", set()),
    "rocketmq_topic_number": ("gauge", set()),
    "rocketmq_consumer_group_number": ("gauge", set()),
    "rocketmq_producer_connections": ("gauge", {"language", "version", "protocol_type"}),
    "rocketmq_consumer_connections": (
        "gauge",
        {"consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"},
    ),
    "rocketmq_consumer_lag_messages": ("gauge", OF_GROUP),
    "rocketmq_consumer_lag_latency_milliseconds": ("gauge", OF_GROUP),
    "rocketmq_consumer_inflight_messages": ("gauge", OF_GROUP),
    "rocketmq_consumer_queueing_latency_milliseconds": ("gauge", OF_GROUP),
    "rocketmq_consumer_ready_messages": ("gauge", OF_GROUP),
    "rocketmq_storage_size_bytes": ("gauge", STORED),
    "rocketmq_storage_flush_behind_bytes": ("gauge", STORED),
    "rocketmq_storage_dispatch_behind_bytes": ("gauge", STORED),
    "rocketmq_storage_message_reserve_time_milliseconds": ("gauge", STORED),
    "rocketmq_timer_enqueue_lag": ("gauge", STORED),
    "rocketmq_timer_enqueue_latency_milliseconds": ("gauge", STORED),
    "rocketmq_timer_dequeue_latency_milliseconds": ("gauge", STORED),
}
COMMON = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


async def scrape(runtime: SimulatedRuntime) -> dict[str, Metric]:
    """The metrics of a scrape, by name."""
    answer = await ask(runtime, get("/metrics"))
    assert answer.status == 200
    assert b"text/plain; version=0.0.4" in answer.received
    return families(answer.body)


def heartbeat(group: str, topic: str) -> bytes:
    return HeartbeatData(
        client_id="client",
        producer_data_set=[ProducerData("pg")],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")],
            )
        ],
    ).encode()


async def worked(peer: BrokerPeer) -> None:
    """Send five messages to T, of which cg reads three and settles two."""
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    await peer.ok(RequestCode.HEART_BEAT, heartbeat("cg", "T"))
    for number in range(5):
        await peer.sent(b"%d" % number, topic="T")
    await peer.ask(pull_request(0, max_msg_nums=3))
    await peer.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0, commitOffset=2
    )
    await asyncio.sleep(30)


@pytest.mark.behaviour("MX-04")
@pytest.mark.broker(**ON)
async def test_names_types_and_labels_are_those_of_rocketmq(broker: Broker, peer: BrokerPeer) -> None:
    await worked(peer)
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    ours = {name: one for name, one in found.items() if name.startswith("rocketmq_")}
    assert set(ours) == set(APACHE) | set(COUNTED)
    for name, (kind, labels) in APACHE.items():
        assert ours[name].type == kind, name
        assert ours[name].samples, name
        for sample in ours[name].samples:
            assert set(sample.labels) - {"le"} == labels | set(COMMON), name
            assert sample.labels.items() >= COMMON.items()
    assert all(name.startswith(("orbitmq_", "process_")) for name in set(found) - set(ours))


@pytest.mark.behaviour("MX-04")
def test_each_of_rocketmqs_45_metrics_is_shown_or_the_page_says_why_not() -> None:
    table = PAGE.partition("Of the 45 metrics")[2].partition("Groups without members")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    left_out = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    shown = {name.removeprefix("rocketmq_") for name in {*APACHE, *COUNTED}}
    assert not shown & left_out
    assert len(shown | left_out) == 45


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_figures_of_a_topic_and_a_group(broker: Broker, peer: BrokerPeer) -> None:
    await worked(peer)
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    group = {"consumer_group": "cg", "topic": "T", "is_retry": "false", "is_system": "false"}
    assert value(found, "rocketmq_messages_in_total", topic="T", is_system="false") == 5
    assert value(found, "rocketmq_messages_out_total", **group) == 3
    assert value(found, "rocketmq_consumer_lag_messages", **group) == 3
    assert value(found, "rocketmq_consumer_inflight_messages", **group) == 1
    assert value(found, "rocketmq_consumer_ready_messages", **group) == 2
    for name in ("lag", "queueing"):
        age = value(found, f"rocketmq_consumer_{name}_latency_milliseconds", **group)
        assert 30_000 <= age < 31_000
    program = {"language": "python", "version": "v5_3_3", "protocol_type": "remoting"}
    assert value(found, "rocketmq_producer_connections") == 1
    assert value(found, "rocketmq_consumer_connections", consumer_group="cg", consume_mode="push") == 1
    [sample] = found["rocketmq_producer_connections"].samples
    assert sample.labels.items() >= program.items() - {("language", "python")}
    assert value(found, "orbitmq_ready") == 1
    assert value(found, "orbitmq_role", role="master") == 1
    assert value(found, "orbitmq_role", role="slave") == 0


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_a_group_that_has_done_all_lags_by_nothing(broker: Broker, peer: BrokerPeer) -> None:
    await worked(peer)
    await peer.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=0, commitOffset=5
    )
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    for name in APACHE:
        if name.startswith("rocketmq_consumer_") and set(OF_GROUP) == APACHE[name][1]:
            assert value(found, name, consumer_group="cg") == 0, name


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_a_group_whose_members_are_gone_still_lags(broker: Broker, peer: BrokerPeer) -> None:
    await worked(peer)
    await peer.leave()
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    assert value(found, "rocketmq_consumer_lag_messages", consumer_group="cg", topic="T") == 3
    assert found["rocketmq_consumer_connections"].samples == []


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_a_deleted_topic_has_no_series(broker: Broker, peer: BrokerPeer) -> None:
    await worked(peer)
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    answer = await ask(cast("SimulatedRuntime", broker.runtime), get("/metrics"))
    assert b'topic="T"' not in answer.body


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_a_deleted_group_has_no_series(broker: Broker, peer: BrokerPeer) -> None:
    await worked(peer)
    runtime = cast("SimulatedRuntime", broker.runtime)
    assert b'consumer_group="cg"' in (await ask(runtime, get("/metrics"))).body
    await peer.leave()
    async with BrokerPeer(runtime) as administrator:
        await administrator.ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="cg")
    assert b'consumer_group="cg"' not in (await ask(runtime, get("/metrics"))).body


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_dead_letters_are_counted_by_group(broker: Broker, peer: BrokerPeer) -> None:
    await peer.create("%DLQ%cg", readQueueNums=1, writeQueueNums=1)
    await peer.sent(b"x", topic="%DLQ%cg")
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    assert value(found, "orbitmq_dead_letters_total", consumer_group="cg") == 1
    assert all("%DLQ%" not in s.labels["topic"] for s in found["rocketmq_messages_in_total"].samples)


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON, broker_role="SLAVE", broker_id=1)
async def test_a_slave_leaves_out_what_its_master_counts(broker: Broker) -> None:
    assert broker.services.role.role is Role.SLAVE
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    assert value(found, "orbitmq_role", role="slave") == 1
    assert "rocketmq_messages_in_total" not in found
    assert "rocketmq_consumer_lag_messages" not in found


@pytest.mark.behaviour("MX-06")
@pytest.mark.broker(**ON, metrics_series=200)
async def test_the_number_of_series_has_a_limit(
    broker: Broker, peer: BrokerPeer, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    for number in range(300):
        await peer.create(f"topic-{number}")
    with caplog.at_level(logging.WARNING, "orbitmq.broker.metrics"):
        for _ in range(2):
            found = await scrape(runtime)
            assert sum(len(one.samples) for one in found.values()) == 200
            assert value(found, "orbitmq_metrics_series_cut") > 100
    assert len([line for line in caplog.messages if "metricsOtelCardinalityLimit is 200" in line]) == 1


@pytest.mark.behaviour("MX-06")
@pytest.mark.broker(**ON)
async def test_10000_topics_are_read_in_many_turns_of_the_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    s = broker.services
    some = next(iter(s.topics))
    for number in range(10_000):
        s.topics.update(type(some)(topic_name=f"topic-{number}", read_queue_nums=1, write_queue_nums=1))
    looks = Turns(monkeypatch, s.store, "max_offsets")
    found = families((await ask(runtime, get("/metrics"))).body)
    assert len(found["rocketmq_messages_in_total"].samples) >= 10_000
    assert value(found, "orbitmq_metrics_series_cut") == 0
    assert looks.total >= 10_000
    assert looks.longest <= PER_BATCH


@pytest.mark.behaviour("MX-06")
@pytest.mark.broker(**ON)
async def test_scrapers_that_come_together_read_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    looks = 0
    look = broker.services.stats.look

    async def counted() -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(1)
        await look()

    monkeypatch.setattr(broker.services.stats, "look", counted)
    answers = await asyncio.gather(*(ask(runtime, get("/metrics")) for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert looks == 1


@pytest.mark.behaviour("MX-06")
async def test_a_stop_in_mid_scrape_ends_it(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(orbitmq_runtime, broker_config(**ON))
    async with broker:

        async def never() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(broker.services.stats, "look", never)
        client = await opened(orbitmq_runtime)
        assert client.transport is not None
        client.transport.write(get("/metrics"))
        await asyncio.sleep(1)
    await asyncio.sleep(0.1)
    assert client.ended.done()
    assert client.status == 0


@pytest.mark.behaviour("MX-06")
async def test_slow_readers_have_a_limit(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_UNSENT_BYTES", 1000)
    listener = HttpListener(orbitmq_runtime.network, {"/large": lambda: HttpAnswer(200, [b"x" * 900])})
    await listener.start(HOST, PORT)
    slow = await opened(orbitmq_runtime)
    assert slow.transport is not None
    slow.transport.pause_reading()
    assert listener.reserve(900)  # bytes that the slow client has not read
    assert (await ask(orbitmq_runtime, get("/large"))).status == 503
    listener.release(900)
    assert (await ask(orbitmq_runtime, get("/large"))).status == 200
    assert (await ask(orbitmq_runtime, get("/large"))).status == 200
    slow.transport.abort()
    await listener.stop()


@pytest.mark.behaviour("MX-06")
async def test_a_page_that_fails_later_is_answered(orbitmq_runtime: SimulatedRuntime) -> None:
    async def fails() -> Any:
        await asyncio.sleep(1)
        raise ValueError("broken")

    listener = HttpListener(orbitmq_runtime.network, {"/fails": fails})
    await listener.start(HOST, PORT)
    answer = await ask(orbitmq_runtime, get("/fails"))
    assert (answer.status, b"broken" in answer.body) == (500, False)
    await listener.stop()


@pytest.mark.behaviour("MX-06")
async def test_a_scraper_that_leaves_is_forgotten(orbitmq_runtime: SimulatedRuntime) -> None:
    ended = asyncio.Event()

    async def waits() -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    listener = HttpListener(orbitmq_runtime.network, {"/waits": waits})
    await listener.start(HOST, PORT)
    client: Raw = await opened(orbitmq_runtime)
    assert client.transport is not None
    client.transport.write(get("/waits"))
    await asyncio.sleep(1)
    client.transport.abort()
    async with asyncio.timeout(5):
        await ended.wait()
    await listener.stop()


@pytest.mark.behaviour("MX-04")
def test_labels_with_quotes_and_line_ends_are_read_back() -> None:
    odd = 'a"b\\n\\c\nd'
    text = Exposition({"cluster": odd}, 10)
    text.family("some_value", "gauge", "Some").add(1.5, topic=odd)
    text.family("bare_value", "gauge", "Bare").add(2)
    found = families(text.render())
    assert value(found, "some_value", cluster=odd, topic=odd) == 1.5
    assert value(found, "bare_value", cluster=odd) == 2


@pytest.mark.behaviour("MX-04")
@pytest.mark.parametrize(
    ("version", "name"),
    [(479, "v5_3_3"), (413, "v5_0_0"), (412, "v5_0_0_snapshot"), (401, "v4_9_4"), (213, "v4_0_0"),
     (121, "v3_x"), (0, "v3_x"), (-1, "v3_x")],
)  # fmt: skip
def test_versions_have_the_names_of_releases(version: int, name: str) -> None:
    assert name_of(version) == name


@pytest.mark.behaviour("MX-08")
@pytest.mark.broker(**ON, metrics_queue_lag=True)
async def test_alerts_board_and_page_name_the_metrics_that_there_are(
    broker: Broker, peer: BrokerPeer
) -> None:
    await worked(peer)
    await peer.create("%DLQ%cg", readQueueNums=1, writeQueueNums=1)
    await peer.sent(b"x", topic="%DLQ%cg")
    found = await scrape(cast("SimulatedRuntime", broker.runtime))
    there = set(found) | {name for name, _, _ in STATUS.values()}
    assert {name for name in used() if "_nameserver_" not in name} <= there
    table = PAGE.partition("## Metrics")[2].partition("A name server shows")[0]
    listed = set(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    names = {name for row in listed for name in METRIC.findall(row)}
    assert names == there


@pytest.mark.behaviour("MX-09")
@pytest.mark.broker(**ON)
async def test_figures_of_loop_disk_connections_and_fast_path(broker: Broker, peer: BrokerPeer) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    await worked(peer)
    found = await scrape(runtime)
    assert value(found, "orbitmq_connections") == 1
    # A topic's first message goes to the handlers if the table was not saved before it.
    assert value(found, "orbitmq_fast_path_messages_in_total") == broker.services.counters.fast_in >= 4
    assert value(found, "orbitmq_fast_path_messages_out_total") == broker.services.counters.fast_out
    flushes = found["orbitmq_flush_seconds"]
    assert flushes.type == "histogram"
    counts = [s.value for s in flushes.samples if s.name == "orbitmq_flush_seconds_bucket"]
    assert counts == sorted(counts)
    [number] = [s.value for s in flushes.samples if s.name == "orbitmq_flush_seconds_count"]
    assert number == counts[-1] >= 1
    [total] = [s.value for s in flushes.samples if s.name == "orbitmq_flush_seconds_sum"]
    assert 0 < total < number
    looks = [s.value for s in found["orbitmq_event_loop_delay_seconds"].samples if s.name.endswith("_count")]
    assert looks[0] >= 100  # five a second, for half a minute
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes"):
        assert len(found[name].samples) == 1


@pytest.mark.behaviour("MX-18")
async def test_the_ends_of_certificates_are_shown(orbitmq_runtime: SimulatedRuntime) -> None:
    runtime = orbitmq_runtime
    files = {}
    for name, born_ms in (("all", 1_790_000_000_000), ("grpc", 1_780_000_000_000)):
        pem = self_signed(["127.0.0.1"], born_ms)
        for part in ("cert", "key"):
            files[name, part] = f"/{name}-{part}.pem"
            runtime.files.write_atomic(files[name, part], pem)
    settings = {
        "tls": TlsSettings(cert=files["all", "cert"], key=files["all", "key"]),
        "tls_cert_path": files["grpc", "cert"],
        "tls_key_path": files["grpc", "key"],
    }
    async with make_broker(runtime, broker_config(**ON, **settings)):
        found = await scrape(runtime)
    ends = {s.labels["certificate"]: s.value for s in found["orbitmq_certificate_end_seconds"].samples}
    ten_years_s = 3650 * 86_400
    assert ends == {
        "/all-cert.pem": 1_790_000_000 + ten_years_s,
        "/grpc-cert.pem": 1_780_000_000 + ten_years_s,
    }


@pytest.mark.behaviour("MX-18")
def test_an_end_that_comes_near_is_warned_of_each_day(caplog: pytest.LogCaptureFixture) -> None:
    day_ms = 86_400_000

    async def test() -> None:
        runtime = simulated_runtime()
        pem = self_signed(["127.0.0.1"], runtime.clock.now_ms() - 3620 * day_ms - 3_600_000)
        runtime.files.write_atomic("/mq.pem", pem)
        tls = ServerTls(runtime, files=CertificateFiles("/mq.pem", "/mq.pem"))
        tls.check()
        for _ in range(4 * 24):  # four days, with a connection each hour
            tls.context()
            await runtime.clock.sleep(3600)

    run(test(), limit_s=5 * day_ms / 1000)
    days = [int(re.findall("expires in (\\d+) days", line)[0]) for line in caplog.messages]
    assert days == sorted(set(days), reverse=True)
    assert days[0] == 29
    assert 4 <= len(days) <= 5


@pytest.mark.behaviour("MX-09")
def test_a_histogram_is_read_back_by_its_bounds() -> None:
    sizes = Histogram((1, 10, 100))
    for size in (0, 1, 2, 10, 11, 1000):
        sizes.note(size)
    text = Exposition({"cluster": "c"}, 12)
    family = text.family("some_sizes", "histogram", "Some")
    family.add_histogram(sizes, topic="T")
    family.add_histogram(sizes, topic="U")
    family.add_histogram(sizes, topic="V")  # there is no space for any of its six series
    assert (text.cut, text.room) == (6, 0)
    samples = families(text.render())["some_sizes"].samples
    assert [(s.labels["le"], s.value) for s in samples if s.labels["topic"] == "T" and "le" in s.labels] == [
        ("1.0", 2), ("10.0", 4), ("100.0", 5), ("+Inf", 6)
    ]  # fmt: skip
    assert {s.name: s.value for s in samples if s.labels["topic"] == "U" and "le" not in s.labels} == {
        "some_sizes_sum": 1024,
        "some_sizes_count": 6,
    }
    assert all(s.labels["cluster"] == "c" for s in samples)
