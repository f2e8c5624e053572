"""What the listener of a session tells of its queries."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from orbitmq.errors import OrbitError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.runtime import worker
from orbitmq.runtime.datagrams import DatagramInbox, send_datagram
from orbitmq.runtime.worker import this_worker
from orbitmq.spark import progress
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.cluster.routes import QueueAddresses
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

    def __init__(self) -> None:
        self.away = {"broker-b:1"}
        self.routed = {"broker-a", "broker-b"}
        self.error: OrbitError | None = None

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        if self.error is not None and refresh:
            raise self.error
        known = [queue for queue in (A0, A1, B0) if queue.broker_name in self.routed]
        return QueueAddresses({queue: f"{queue.broker_name}:1" for queue in known}, {})

    def offsets_where_possible(self, queues: dict[MessageQueue, str], request: Any) -> Any:
        there = {queue: 100 for queue, at in queues.items() if at not in self.away}
        return there, {at: UnreachableError("away") for at in self.away}

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
    lag, silent = LagMeter(Brokers(), "g").lag("q-1", {A0: 90, A1: 100, B0: 5})  # type: ignore[arg-type]
    assert lag[A1] == QueueLag(0, 0.0)
    assert lag[A0].rows == 10
    assert lag[A0].seconds == pytest.approx(5, abs=4)
    assert B0 not in lag, "nothing was ever known of it"
    assert silent == ("broker-b",)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Lets hours go by."""
    passed_ms = [1_700_000_000_000]
    clock = SimpleNamespace(monotonic=lambda: passed_ms[0] / 1000, now_ms=lambda: passed_ms[0])

    def go_by(count: float) -> None:
        passed_ms[0] += int(count * 3_600_000)

    monkeypatch.setattr(worker, "SystemClock", lambda: clock)
    this_worker.cache_clear()
    yield go_by
    this_worker.cache_clear()


@pytest.mark.parametrize("is_routed", [True, False], ids=["in the routes", "taken from the routes"])
def test_a_silent_broker_has_not_caught_up(hours: Callable[[float], None], is_routed: bool) -> None:
    brokers = Brokers()
    meter = LagMeter(brokers, "g")  # type: ignore[arg-type]
    brokers.away.clear()
    at = {A0: 100, A1: 100, B0: 40}
    before = meter.lag("q-1", at)
    assert before == ({A0: QueueLag(0, 0.0), A1: QueueLag(0, 0.0), B0: QueueLag(60, 5.0)}, ())
    brokers.away = {"broker-b:1"}
    if not is_routed:
        brokers.routed.discard("broker-b")
    for hour in (1, 2):
        hours(1)
        after = meter.lag("q-1", at)
        assert after.queues[B0] == QueueLag(60, 5.0 + 3600 * hour)
        assert after.queues[A0] == QueueLag(0, 0.0)
        assert after.silent == ("broker-b",)
    assert meter.lag("q-1", {**at, B0: 90}).queues[B0].rows == 10, "a batch was planned before"
    brokers.away.clear()
    brokers.routed.add("broker-b")
    assert meter.lag("q-1", at) == before


def test_what_comes_to_a_broker_while_it_is_silent_is_not_known(hours: Callable[[float], None]) -> None:
    brokers = Brokers()
    meter = LagMeter(brokers, "g")  # type: ignore[arg-type]
    meter.lag("q-1", {A0: 100})
    brokers.away.add("broker-a:1")
    hours(0.5)
    assert meter.lag("q-1", {A0: 100}) == ({A0: QueueLag(0, 1800.0)}, ("broker-a",))
    meter.forget("q-1")
    assert meter.lag("q-1", {A0: 100}) == ({}, ("broker-a",))


def test_a_broker_that_was_never_there_is_not_silent(hours: Callable[[float], None]) -> None:
    brokers = Brokers()
    brokers.routed.discard("broker-b")
    assert LagMeter(brokers, "g").lag("q-1", {A0: 100, B0: 4}).silent == ()  # type: ignore[arg-type]


def test_brokers_are_asked_while_no_name_server_answers() -> None:
    brokers = Brokers()
    meter = LagMeter(brokers, "g")  # type: ignore[arg-type]
    brokers.error = UnreachableError("no name server")
    assert meter.lag("q-1", {A0: 100}) == ({A0: QueueLag(0, 0.0)}, ())
    brokers.error = TopicNotFoundError("t", "unknown")
    assert meter.lag("q-1", {A0: 100}).silent == ("broker-a",)


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
    assert state.silent == ()
    assert "silent" not in state.line()
    listener.onQueryProgress(event(end=json.dumps(Offsets({A0: 90, B0: 3}).to_json())))
    assert state.line().endswith("; silent: broker-b")
    assert state.to_json()["silent"] == ["broker-b"]
    shown.clear()
    for other in (None, "", "not json", '{"logOffset":3}', "{}"):
        listener.onQueryProgress(event(end=other, query="files"))
    assert not shown, "other sources are none of ours"
    listener.onQueryTerminated(event(end=None))
    assert listener.states == {}
    listener.close()


def test_the_lag_is_asked_for_while_a_batch_lasts(hours: Callable[[float], None]) -> None:
    """Spark calls no listener while a batch waits in its tasks for a silent broker."""
    brokers = Brokers()
    brokers.away.clear()
    shown: list[tuple[tuple[str, ...], float]] = []
    running = {"q-1"}
    listener = ProgressListener(
        LagMeter(brokers, "g"),  # type: ignore[arg-type]
        None,
        TOKEN,
        [lambda state: shown.append((state.silent, state.seconds_behind))],
        lambda: running,
    )
    assert listener.look(), "nothing is known yet"
    listener.onQueryProgress(event(end=json.dumps(Offsets({A0: 100, B0: 40}).to_json())))
    assert shown.pop() == ((), 5.0)
    assert listener.look()
    assert not shown, "Spark has just told"
    brokers.away = {"broker-b:1"}
    for hour in (1, 2):
        hours(1)
        assert listener.look()
        assert shown.pop() == (("broker-b",), 5.0 + 3600 * hour)
    running.clear()
    hours(1)
    assert listener.look()
    assert not shown, "the query has ended"

    def gone() -> set[str]:
        raise RuntimeError("the session has ended")

    listener._running = gone
    assert not listener.look()


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
        "q-1", "orders", queues={A0: QueueLag(10, 5.0), A1: QueueLag(3, None)}, silent=("broker-b",),
        tally=Tally(1, 2, 3),
    )  # fmt: skip
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
    silent = {str(at["messaging.rocketmq.broker"]): n for at, n in found["orbitmq.spark.broker.silent"]}
    assert silent == {"broker-a": 0, "broker-b": 1}
    assert found["orbitmq.spark.lag.time"][0][0]["messaging.rocketmq.broker"] == "broker-a"


class Session:
    """As much of a Spark session as is asked for."""

    def __init__(self, host: str) -> None:
        self.properties: dict[str, str] = {}
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(
            addListener=self.listeners.append, active=[SimpleNamespace(id="q-1"), SimpleNamespace(id="files")]
        )
        conf = SimpleNamespace(get=lambda name, default: host)
        self.sparkContext = SimpleNamespace(
            getConf=lambda: conf, setLocalProperty=self.properties.__setitem__
        )


def test_watching_writes_a_line_and_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = Session("127.0.0.1")
    caplog.set_level(logging.INFO, "orbitmq.spark")
    file = tmp_path / "lag.json"
    listener = watch(session, name_servers="127.0.0.1:1", file=str(file))
    assert session.listeners == [listener]
    assert session.properties[reports.ADDRESS_PROPERTY].startswith("127.0.0.1 ")
    listener.onQueryProgress(event(end=json.dumps(Offsets({A0: 90}).to_json())))
    assert "query orders, batch 3" in caplog.text
    assert json.loads(file.read_text())[0]["name"] == "orders"
    caplog.clear()
    listener.onQueryIdle(SimpleNamespace(id="q-1"))
    listener.onQueryIdle(SimpleNamespace(id="files"))
    assert not caplog.records, "nothing new"
    listener._meter._brokers = Brokers()  # type: ignore[assignment]
    listener._meter._brokers.away.add("broker-a:1")  # type: ignore[attr-defined]
    for _ in range(3):
        listener.onQueryIdle(SimpleNamespace(id="q-1"))
    (text,) = caplog.messages
    assert text.endswith("; silent: broker-a")
    assert json.loads(file.read_text())[0]["silent"] == ["broker-a"]
    listener.close()
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    file.unlink()
    again = watch(session, name_servers="127.0.0.1:1", file=str(file), log_lines=False)
    again.onQueryProgress(event(end=json.dumps(Offsets({A0: 90}).to_json())))
    again._meter._brokers = Brokers()  # type: ignore[assignment]
    deadline = time.monotonic() + 30
    while not json.loads(file.read_text())[0]["queues"]:
        assert time.monotonic() < deadline, "nobody looked without Spark"
        time.sleep(0.01)
    again.close()
    away: Any = Session("192.0.2.1")  # not an address of this machine
    watch(away, name_servers="127.0.0.1:1", log_lines=False).close()
    assert away.properties == {}
    assert "tasks cannot report" in caplog.text
