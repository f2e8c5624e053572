"""How streaming queries get on: rows and seconds behind per queue, pulled bytes, retries, skipped offsets.

::

    from orbitmq.spark.progress import watch

    watch(spark, name_servers="127.0.0.1:9876", file="/var/log/orders-lag.json")

Spark's own progress has no place for them: Python sources cannot fill ``sources[].metrics``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from typing_extensions import override

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.datagrams import DatagramInbox
from orbitmq.runtime.side_by_side import Ticker
from orbitmq.runtime.system import SystemFiles
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.errors import OffsetError
from orbitmq.spark.option_values import addresses
from orbitmq.spark.options import READER_GROUP
from orbitmq.spark.read.lag import LagMeter, QueueLag
from orbitmq.spark.read.reports import ADDRESS_PROPERTY, decode
from orbitmq.spark.read.tally import Tally

log = logging.getLogger("orbitmq.spark")

REQUEST_TIMEOUT_MS = 3_000
# As often as Spark tells that a query is idle.
LOOK_SECONDS = 10.0


@dataclass
class QueryState:
    """What is known of one query.

    Attributes:
        query_id: Spark's id, the same after a restart.
        batch_id: of the last batch.
        input_rows: of the last batch.
        place: up to where each queue is read.
        queues: how far each queue is behind.
        silent: the names of brokers that do not answer; of their queues the last known rows stay, and the
            seconds grow.
        tally: what the query's tasks and its planner did since it was started.
        asked_s: when the brokers were asked last, by a clock that only this process knows.
    """

    query_id: str
    name: str = ""
    batch_id: int = -1
    input_rows: int = 0
    place: Mapping[MessageQueue, int] = field(default_factory=dict)
    queues: dict[MessageQueue, QueueLag] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)
    asked_s: float = 0.0

    @property
    def rows_behind(self) -> int:
        return sum(lag.rows for lag in self.queues.values())

    @property
    def seconds_behind(self) -> float:
        """Of the queue that is most behind."""
        return max((lag.seconds or 0.0 for lag in self.queues.values()), default=0.0)

    def to_json(self) -> dict[str, Any]:
        queues = [
            {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, **lag._asdict()}
            for queue, lag in sorted(self.queues.items())
        ]
        counts = {name: getattr(self.tally, name) for name in Tally.__slots__}
        behind = {"rows_behind": self.rows_behind, "seconds_behind": self.seconds_behind}
        head = {"query": self.query_id, "name": self.name, "batch": self.batch_id, "rows": self.input_rows}
        return {**head, **behind, **counts, "silent": list(self.silent), "queues": queues}

    def line(self) -> str:
        """For a log."""
        silent = f"; silent: {', '.join(self.silent)}" if self.silent else ""
        return (
            f"query {self.name or self.query_id}, batch {self.batch_id}: {self.input_rows} rows; "
            f"behind by {self.rows_behind} rows, {self.seconds_behind:.1f} s, in {len(self.queues)} queues; "
            f"{self.tally.pulled_bytes} bytes pulled, {self.tally.retries} retries, "
            f"{self.tally.skipped} offsets skipped{silent}"
        )


Show = Callable[[QueryState], None]


class _LogLines:
    """One line for each batch, and when silence begins or ends."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, tuple[str, ...]]] = {}

    def show(self, state: QueryState) -> None:
        news = state.batch_id, state.silent
        if self._told.get(state.query_id) != news:
            self._told[state.query_id] = news
            log.info("%s", state.line())


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Hears of every batch of every query, and tells those that read topics. Use :func:`watch`.

    Args:
        meter: asks for the lag.
        inbox: where tasks report; ``None``: they cannot.
        token: what their reports begin with.
        shows: who is told.
        running: the ids of the queries that run; ``None``: nobody can tell.

    Attributes:
        states: what is known now, by query id.
    """

    def __init__(
        self,
        meter: LagMeter,
        inbox: DatagramInbox | None,
        token: str,
        shows: list[Show],
        running: Callable[[], Collection[str]] | None = None,
    ) -> None:
        self.states: dict[str, QueryState] = {}
        self._meter = meter
        self._inbox = inbox
        self._token = token
        self._shows = shows
        self._workers: dict[str, dict[str, Tally]] = {}
        self._running = running
        self._ticker = Ticker(self.look, LOOK_SECONDS)

    def look_again(self) -> None:
        """From now on ask for the lag also while Spark tells nothing, such as during a long batch."""
        self._ticker.start()

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing: it is not known yet whether the query reads topics."""

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        ours = [(source, at) for source in progress.sources if (at := _offsets(source.endOffset)) is not None]
        if not ours:
            return
        with self._ticker.mutex:
            self._take_reports()
            state = self.states.setdefault(str(progress.id), QueryState(str(progress.id)))
            state.name, state.batch_id = progress.name or "", progress.batchId
            state.input_rows = sum(source.numInputRows for source, _ in ours)
            state.tally = self._total(state.query_id, [_json(source.latestOffset) for source, _ in ours])
            state.place = {queue: offset for _, at in ours for queue, offset in at.items()}
            self._measure(state)

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No batch since a while: there are no new rows, or the brokers that have some are silent."""
        with self._ticker.mutex:
            state = self.states.get(str(event.id))
            if state is not None:
                self._measure(state)

    def look(self) -> bool:
        """Ask for the lag of queries of which Spark has not told for a while.

        It calls no listener while a batch runs, and a batch may wait in its tasks for a silent broker.

        Returns:
            ``False``: there is nothing to look at any more, the session has ended.
        """
        now = this_worker().clock.monotonic()
        late = [state for state in self.states.values() if now - state.asked_s >= LOOK_SECONDS]
        if not late or self._running is None:
            return self._running is not None
        try:
            running = self._running()
        except Exception as error:  # whatever Spark says when it is gone
            log.debug("the session has ended: %s", error)
            return False
        for state in late:
            if state.query_id in running:
                self._measure(state)
        return True

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._ticker.mutex:
            self.states.pop(str(event.id), None)
            self._workers.pop(str(event.id), None)
            self._meter.forget(str(event.id))

    def close(self) -> None:
        """Ask no more, and give the port for reports back."""
        self._ticker.stop()
        if self._inbox is not None:
            self._inbox.close()

    def _measure(self, state: QueryState) -> None:
        """Ask for the lag, and tell it."""
        try:
            state.queues, state.silent = self._meter.lag(state.query_id, state.place)
        except OrbitError as error:
            log.warning("the lag of query %s is not known now: %s", state.name or state.query_id, error)
        state.asked_s = this_worker().clock.monotonic()
        for show in self._shows:
            show(state)

    def _take_reports(self) -> None:
        for data in self._inbox.take() if self._inbox is not None else ():
            made = decode(data, self._token)
            if made is not None:
                self._workers.setdefault(made.query_id, {})[made.worker] = made.tally

    def _total(self, query_id: str, planner: list[Mapping[str, Any]]) -> Tally:
        total = Tally()
        for tally in self._workers.get(query_id, {}).values():
            total.add(tally)
        for counted in planner:
            total.add(Tally(0, counted.get("retries", 0), counted.get("skipped", 0)))
        return total


def watch(
    spark: SparkSession,
    *,
    name_servers: str = "127.0.0.1:9876",
    log_lines: bool = True,
    file: str | None = None,
    telemetry: bool = False,
    meter_provider: Any = None,
) -> ProgressListener:
    """Tell how the session's queries get on. Call it before the queries are started, on the same thread.

    Args:
        name_servers: of the cluster whose topics are read, ``host:port;host:port``.
        log_lines: in the log ``orbitmq.spark``, level INFO: one for each batch, one when a broker falls
            silent or is back meanwhile.
        file: a JSON file that is replaced with each batch, and every 10 s while a query is idle or a batch
            lasts: what is known of every query.
        telemetry: OpenTelemetry metrics; needs ``orbitmq[otel]``.
        meter_provider: OpenTelemetry's; the one set globally by default.

    Raises:
        ValueError: ``name_servers`` is none.
        ValidationError: OpenTelemetry is not installed.
    """
    shows: list[Show] = []
    if log_lines:
        shows.append(_LogLines().show)
    if telemetry:
        from orbitmq.spark.telemetry import Gauges

        shows.append(Gauges(meter_provider).show)
    inbox, token = _open_inbox(spark)
    meter = LagMeter(Brokers(addresses(name_servers), REQUEST_TIMEOUT_MS), READER_GROUP)
    listener = ProgressListener(
        meter, inbox, token, shows, lambda: {str(query.id) for query in spark.streams.active}
    )
    if file is not None:
        shows.append(lambda _: _write(file, listener.states))
    spark.streams.addListener(listener)
    listener.look_again()
    return listener


def _open_inbox(spark: SparkSession) -> tuple[DatagramInbox | None, str]:
    """Where tasks can report to, told to the queries that are started from now on."""
    token = f"{this_worker().random.getrandbits(64):016x}"
    try:
        host = spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
        inbox = DatagramInbox(host)
        spark.sparkContext.setLocalProperty(ADDRESS_PROPERTY, f"{host} {inbox.port} {token}")
    except Exception as error:  # Spark Connect has no context, a cluster may forbid it
        log.info("tasks cannot report: bytes and retries of this session's queries stay 0: %s", error)
        return None, token
    return inbox, token


def _write(path: str, states: Mapping[str, QueryState]) -> None:
    text = json.dumps([state.to_json() for state in states.values()], indent=1)
    try:
        SystemFiles().write_atomic(path, text.encode(), sync=False)
    except OSError as error:
        log.warning("the progress file %s cannot be written: %s", path, error)


def _json(text: Any) -> Mapping[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _offsets(text: Any) -> Offsets | None:
    """Where a source is; ``None``: it is not one of ours."""
    try:
        return Offsets.from_json(_json(text))
    except OffsetError:
        return None
