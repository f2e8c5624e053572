"""Metrics that servers send by themselves: to a receiver of OpenTelemetry, and into the log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.sockets.transport import on_asyncio

import grpc
from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime import Runtime
from orbitmq.runtime.ports import free_ports
from orbitmq.settings.exports import ExportSettings
from orbitmq.settings.typed import ConfigError

LIMIT_S = 60


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Takes what exporters send.

    Attributes:
        requests: what came, each with its headers.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[Any, dict[str, str]]] = []

    def Export(self, request: Any, context: Any) -> Any:
        self.requests.append((request, dict(context.invocation_metadata())))
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def points(self) -> Iterator[tuple[Any, Any, dict[str, str]]]:
        """Each point with its metric and its labels, in the order in which they came."""
        for request, _ in self.requests:
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points:
                    yield metric, point, {one.key: one.value.string_value for one in point.attributes}

    def values(self, name: str, **labels: str) -> list[Any]:
        """The points of one series."""
        return [
            point
            for metric, point, found in self.points()
            if metric.name == name and labels.items() <= found.items()
        ]


@contextmanager
def receiving(port: int) -> Iterator[Receiver]:
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    assert server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


def settings(port: int, **changes: Any) -> dict[str, Any]:
    exports = ExportSettings(
        target=f"http://127.0.0.1:{port}", **{"interval_ms": 1000, "timeout_ms": 10_000, **changes}
    )
    return {"metrics_exporter": "OTLP_GRPC", "exports": exports}


@asynccontextmanager
async def serving(runtime: Runtime, folder: Path, **changes: Any) -> AsyncIterator[tuple[Broker, BrokerPeer]]:
    config = broker_config(store_path_root_dir=str(folder), listen_port=0, **changes)
    async with Broker(runtime, config) as broker, BrokerPeer(runtime, broker.address) as peer:
        await peer.create("T", readQueueNums=1, writeQueueNums=1)
        yield broker, peer


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not found():
            await asyncio.sleep(0.05)


@pytest.mark.behaviour("MX-19")
def test_a_receiver_gets_the_metrics_of_a_broker(tmp_path: Path) -> None:
    [port] = free_ports(1)

    async def test(runtime: Runtime) -> None:
        changes = settings(port, header="Tenant:blue,x-key:a b", batch=40)
        with receiving(port) as receiver:
            async with serving(runtime, tmp_path, metrics_label="zone:east", **changes) as (_, peer):
                for _ in range(3):
                    await peer.sent(b"x", topic="T")
                taken, sizes = "rocketmq_messages_in_total", "rocketmq_message_size"
                await until(lambda: any(p.as_int == 3 for p in receiver.values(taken, topic="T")))
                # An export takes several requests.
                await until(lambda: any(p.count >= 3 for p in receiver.values(sizes)))
                await until(lambda: receiver.values("rocketmq_broker_permission"))
                await until(lambda: receiver.values("rocketmq_storage_message_reserve_time"))
                common = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
                assert receiver.values(taken, topic="T", zone="east", is_system="false", **common)
                by_name = {metric.name: metric for metric, _, _ in receiver.points()}
                assert by_name[taken].sum.is_monotonic
                assert by_name[taken].sum.aggregation_temporality == 2  # cumulative
                assert by_name["rocketmq_storage_size"].unit == "bytes"
                assert by_name["rocketmq_storage_message_reserve_time"].unit == "milliseconds"
                assert by_name["rocketmq_broker_permission"].gauge.data_points[0].as_int == 6
                [size] = receiver.values(sizes)[-1:]
                assert sum(size.bucket_counts) == size.count >= 3
                assert list(size.explicit_bounds)[:2] == [1024, 4096]
                for request, headers in receiver.requests:
                    assert (headers["tenant"], headers["x-key"]) == ("blue", "a b")
                    metrics = request.resource_metrics[0].scope_metrics[0].metrics
                    assert sum(len(getattr(m, m.WhichOneof("data")).data_points) for m in metrics) <= 40

    on_asyncio(test)


@pytest.mark.behaviour("MX-19")
def test_in_delta_a_receiver_gets_what_was_added(tmp_path: Path) -> None:
    [port] = free_ports(1)

    async def test(runtime: Runtime) -> None:
        with receiving(port) as receiver:
            async with serving(runtime, tmp_path, **settings(port, in_delta=True)) as (_, peer):
                name = "rocketmq_messages_in_total"
                for count in (3, 2):
                    seen = len(receiver.values(name, topic="T"))
                    for _ in range(count):
                        await peer.sent(b"x", topic="T")
                    await until(lambda seen=seen: len(receiver.values(name, topic="T")) > seen + 1)
                points = receiver.values(name, topic="T", aggregation="delta")
                assert sum(point.as_int for point in points) == 5
                assert all(a.time_unix_nano == b.start_time_unix_nano for a, b in pairwise(points))
                sizes = receiver.values("rocketmq_message_size")
                assert sizes[-1].count <= sizes[0].count + 5

    on_asyncio(test)


@pytest.mark.behaviour("MX-19")
def test_a_receiver_that_is_away_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [port] = free_ports(1)

    async def test(runtime: Runtime) -> None:
        with caplog.at_level(logging.INFO, "orbitmq.monitoring"):
            async with serving(runtime, tmp_path, **settings(port, timeout_ms=300)) as (_, peer):
                await until(lambda: "do not reach" in caplog.text)
                await peer.sent(b"x", topic="T")
                await asyncio.sleep(2)
                with receiving(port) as receiver:
                    await until(lambda: receiver.requests and "again" in caplog.text)
        lines = [line for line in caplog.messages if "metrics" in line and "reach" in line]
        # An export that takes longer than 0.3 s fails once more.
        assert [line.endswith("again") for line in lines] == [bool(n % 2) for n in range(len(lines))], lines
        assert len(lines) >= 2
        assert f"do not reach http://127.0.0.1:{port}" in lines[0]
        # On a busy machine its 0.3 s may be over before the connection is refused.
        assert "UNAVAILABLE" in lines[0] or "DEADLINE_EXCEEDED" in lines[0]

    on_asyncio(test)


@pytest.mark.behaviour("MX-19")
def test_a_name_server_exports_too(tmp_path: Path) -> None:
    [port] = free_ports(1)

    async def test(runtime: Runtime) -> None:
        conf = (
            f"metricsExporterType=OTLP_GRPC\nmetricsGrpcExporterTarget=http://127.0.0.1:{port}\n"
            f"metricGrpcExporterIntervalInMills=1000\nlistenPort=0\nkvConfigPath={tmp_path}/kv\n"
        )
        with receiving(port) as receiver:
            async with NameServer(runtime, NameServerConfig.load(conf)[0]):
                ready = "orbitmq_ready"
                await until(lambda: receiver.values(ready, node_type="nameserver"))

    on_asyncio(test)


@pytest.mark.behaviour("MX-20")
def test_metrics_are_written_into_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(runtime: Runtime) -> None:
        changes = {"metrics_exporter": "LOG", "exports": ExportSettings(log_interval_ms=1000)}
        with caplog.at_level(logging.INFO, "orbitmq.monitoring"):
            async with serving(runtime, tmp_path, **changes) as (_, peer):
                await peer.sent(b"x", topic="T")
                await until(lambda: re.search('"topic":"T".*"value":1', caplog.text))
        assert re.findall("do not reach", caplog.text) == []

    on_asyncio(test)
    found = [
        json.loads(line.removeprefix("metrics: ")) for line in caplog.messages if line[:9] == "metrics: "
    ]
    names = {one["name"] for one in found}
    assert {"rocketmq_messages_in_total", "rocketmq_storage_size", "orbitmq_ready"} <= names
    assert all(len(one["data"]["data_points"]) <= 20 for one in found)


@pytest.mark.behaviour("MX-19")
@pytest.mark.parametrize("kind", ["OTLP_GRPC", "LOG"])
def test_without_the_sdk_the_start_says_what_to_install(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics.export", None)
    monkeypatch.delitem(sys.modules, "orbitmq.monitoring.otel", raising=False)

    async def test(runtime: Runtime) -> None:
        changes = {**settings(1), "metrics_exporter": kind}
        with pytest.raises(StartError, match=r"pip install 'orbitmq\[otel\]'"):
            async with serving(runtime, tmp_path, **changes):
                pass

    on_asyncio(test)


@pytest.mark.behaviour("MX-19")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("metricsExporterType=OTLP_GRPC", "metricsGrpcExporterTarget=https://host:port beside it"),
        ("metricsGrpcExporterTarget=collector", "https://host:port"),
        ("metricsGrpcExporterTarget=ftp://a:1/x", "https://host:port"),
        ("metricsGrpcExporterHeader=secret", "name:value,name:value"),
        ("metricGrpcExporterIntervalInMills=1", "1000"),
        ("metricsExporterType=OTEL", "DISABLE, PROM, OTLP_GRPC, LOG"),
    ],
)
def test_settings_that_cannot_be_right(line: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NameServerConfig.load(line)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_target_without_a_scheme_is_https_and_headers_are_not_shown() -> None:
    found = ExportSettings(target="otel:4317", header="Api-Key:s3cret")
    assert found.endpoint == "https://otel:4317"
    assert found.headers == (("api-key", "s3cret"),)
    assert "s3cret" not in str(found.to_properties())
