"""What the listener of a session tells of its queries."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.runtime.datagrams import DatagramInbox, send_datagram
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import QueueAddresses
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.progress import ProgressListener, QueryState, watch
from orbitmq.spark.read import reports
from orbitmq.spark.read.lag import LagMeter, QueueLag
from orbitmq.spark.read.reports import Report, decode, encode
from orbitmq.spark.read.tally import Tally
from orbitmq.spark.telemetry import Gauges
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

A0, A1, B0 = (
    MessageQueue("t", broker, n) for broker, n in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0))
)
TOKEN = "secret"


class Brokers:
    """Three queues that end at 100; broker-b is away. The next messages were stored five seconds ago."""

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        return QueueAddresses({queue: f"{queue.broker_name}:1" for queue in (A0, A1, B0)}, {})

    def offsets_where_possible(self, queues: dict[MessageQueue, str], request: Any) -> Any:
        there = {queue: 100 for queue, at in queues.items() if at != "broker-b:1"}
        return there, {"broker-b:1": UnreachableError("away")}

    def ask(self, address: str, commands: list[Command]) -> list[Command]:
        stored = this_worker().clock.now_ms() - 5000
        body = encode_record(Record("t", b"x", store_timestamp=stored))
        return [Command(ResponseCode.SUCCESS, body=body) for _ in commands]


def event(*, end: Any, latest: Any = None, query: str = "q-1", rows: int = 7) -> Any:
    source = SimpleNamespace(endOffset=end, latestOffset=latest, numInputRows=rows)
    return SimpleNamespace(
        progress=SimpleNamespace(id=query, name="orders", batchId=3, sources=[source]), id=query
    )


def test_lag_is_told_in_rows_and_seconds() -> None:
    lag = LagMeter(Brokers(), "g").lag({A0: 90, A1: 100, B0: 5})  # type: ignore[arg-type]
    assert lag[A1] == QueueLag(0, 0.0)
    assert lag[A0].rows == 10
    assert lag[A0].seconds == pytest.approx(5, abs=4)
    assert B0 not in lag


def test_the_listener_adds_up_what_tasks_and_planner_report(caplog: pytest.LogCaptureFixture) -> None:
    inbox = DatagramInbox("127.0.0.1")
    shown: list[QueryState] = []
    listener = ProgressListener(LagMeter(Brokers(), "g"), inbox, TOKEN, [shown.append])  # type: ignore[arg-type]
    for made, token in (
        (Report("q-1", "host/1", Tally(100, 1, 0)), TOKEN),
        (Report("q-1", "host/1", Tally(300, 2, 4)), TOKEN),  # all that it did, not what it did since
        (Report("q-1", "host/2", Tally(50, 0, 0)), TOKEN),
        (Report("q-2", "host/1", Tally(9, 9, 9)), TOKEN),
        (Report("q-1", "host/3", Tally(7, 7, 7)), "forged"),
    ):
        send_datagram("127.0.0.1", inbox.port, encode(made, token))
    send_datagram("127.0.0.1", inbox.port, b"\xff not json")
    latest = json.dumps({"retries": 2, "skipped": 10, **Offsets({A0: 100}).to_json()})
    listener.onQueryProgress(event(end=json.dumps(Offsets({A0: 90, A1: 100}).to_json()), latest=latest))
    (state,) = shown
    assert state.tally == Tally(350, 4, 14)
    assert (state.rows_behind, state.batch_id, state.input_rows) == (10, 3, 7)
    assert "query orders, batch 3: 7 rows; behind by 10 rows" in state.line()
    assert "350 bytes pulled, 4 retries, 14 offsets skipped" in state.line()
    assert json.loads(json.dumps(state.to_json()))["queues"][0]["rows"] == 10
    for other in (None, "", "not json", '{"logOffset":3}', "{}"):
        listener.onQueryProgress(event(end=other, query="files"))
    assert len(shown) == 1, "other sources are none of ours"
    listener.onQueryTerminated(event(end=None))
    assert listener.states == {}
    listener.close()


def test_only_reports_with_the_token_are_taken() -> None:
    assert decode(encode(Report("q", "w", Tally(1, 2, 3)), TOKEN), TOKEN) == Report("q", "w", Tally(1, 2, 3))
    assert decode(b"{}", TOKEN) is None
    assert decode(b'{"token":"secret","query":"q","worker":"w"}', TOKEN) is None


def test_a_task_reports_all_that_its_process_did(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = DatagramInbox("127.0.0.1")
    told = {reports.ADDRESS_PROPERTY: f"127.0.0.1 {inbox.port} {TOKEN}", "sql.streaming.queryId": "q-1"}
    context = SimpleNamespace(getLocalProperty=told.get)
    monkeypatch.setattr(reports, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(reports, "_totals", {})
    reports.report(Tally(10, 1, 0))
    reports.report(Tally(5, 0, 2))
    assert [decode(data, TOKEN).tally for data in inbox.take()] == [Tally(10, 1, 0), Tally(15, 1, 2)]  # type: ignore[union-attr]
    told.pop(reports.ADDRESS_PROPERTY)
    reports.report(Tally(5, 0, 2))
    assert inbox.take() == []
    inbox.close()


def test_gauges_have_a_value_for_each_queue() -> None:
    reader = InMemoryMetricReader()
    state = QueryState(
        "q-1", "orders", queues={A0: QueueLag(10, 5.0), A1: QueueLag(3, None)}, tally=Tally(1, 2, 3)
    )
    Gauges(MeterProvider(metric_readers=[reader])).show(state)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    found = {
        metric.name: [(dict(p.attributes or {}), p.value) for p in metric.data.data_points]
        for metric in metrics
    }
    assert found["orbitmq.spark.skipped"] == [({"spark.query": "orders"}, 3)]
    assert [value for _, value in found["orbitmq.spark.lag.rows"]] == [10, 3]
    assert found["orbitmq.spark.lag.time"][0][0]["messaging.rocketmq.broker"] == "broker-a"


class Session:
    """As much of a Spark session as is asked for."""

    def __init__(self, host: str) -> None:
        self.properties: dict[str, str] = {}
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append)
        conf = SimpleNamespace(get=lambda name, default: host)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: conf, setLocalProperty=self.properties.__setitem__
        )


def test_watching_writes_a_line_and_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session: Any = Session("127.0.0.1")
    caplog.set_level(logging.INFO, "orbitmq.spark")
    file = tmp_path / "lag.json"
    listener = watch(session, name_servers="127.0.0.1:1", file=str(file))
    assert session.listeners == [listener]
    assert session.properties[reports.ADDRESS_PROPERTY].startswith("127.0.0.1 ")
    listener.onQueryProgress(event(end=json.dumps(Offsets({A0: 90}).to_json())))
    assert "query orders, batch 3" in caplog.text
    assert json.loads(file.read_text())[0]["name"] == "orders"
    listener.close()
    away: Any = Session("192.0.2.1")  # not an address of this machine
    watch(away, name_servers="127.0.0.1:1", log_lines=False).close()
    assert away.properties == {}
    assert "tasks cannot report" in caplog.text
