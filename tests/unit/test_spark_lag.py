"""The job ``lag``: what is written while brokers are silent, and what a history says in short."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.admin import BrokerInfo, IncompleteError, LeftOut
from orbitmq.admin.groups import QueueLag
from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.jobs import lags
from orbitmq.spark.jobs.lag_table import Behind, LagRow, summary_of
from orbitmq.spark.write.ledger import JOBS_GROUP, ClusterLedger
from orbitmq.transport.errors import RequestTimeoutError


def row(at: int, group: str, committed: int, lag: int, lag_s: float = 0.0, broker: str = "a") -> LagRow:
    return LagRow(at, group, "t", broker, 0, committed, committed + lag, 0, lag, lag_s)


def test_a_history_in_short() -> None:
    rows = [row(1, "g", 10, 5, 2.0), row(1, "g", 20, 1, 3.0, "b"), row(1, "h", 0, 1, 9.0), row(2, "g", 15, 0),
            row(2, "g", 21, 0, 0.5, "b")]  # fmt: skip
    assert summary_of(rows) == [
        Behind("g", "t", 0, 0.5, 6, 3.0, 6),
        Behind("h", "t", 1, 9.0, 1, 9.0, 0),
    ]


def test_the_queues_of_a_silent_broker_count_as_they_were_last() -> None:
    """Without them the group would have caught up, and would have gone back by what it consumed there."""
    known = [
        row(1, "g", 10, 5),
        row(1, "g", 1000, 7, 4.0, "b"),
        row(2, "g", 14, 1),
        LagRow(2, "g", None, "b"),
    ]
    assert summary_of(known) == [Behind("g", "t", 8, 4.0, 12, 4.0, 4)]
    assert summary_of([*known, row(3, "g", 15, 0), row(3, "g", 1006, 1, 0.5, "b")]) == [
        Behind("g", "t", 1, 0.5, 12, 4.0, 11)
    ]
    # A queue that is gone while its broker answers is no lag any more.
    assert summary_of([*known, row(3, "g", 15, 0)])[0].now == 0


def test_what_a_broker_that_was_silent_first_has_consumed_before_is_not_counted() -> None:
    rows = [row(1, "g", 10, 5), LagRow(1, "g", None, "b"), row(2, "g", 12, 3), row(2, "g", 1000, 2, 1.0, "b")]
    assert summary_of(rows) == [Behind("g", "t", 5, 1.0, 5, 1.0, 2)]


class Scripted:
    """A cluster of which each turn tells: what a question raises, or which of its brokers answer."""

    def __init__(self, *turns: BaseException | str) -> None:
        self._turns = [*turns]
        self._now: BaseException | str = ""
        self.groups = self

    async def cluster_list(self) -> list[BrokerInfo]:
        self._now = self._turns.pop(0)
        if isinstance(self._now, BaseException):
            raise self._now
        return [BrokerInfo("c", name, 0, f"{name}:1") for name in self._now.strip().lower()]

    def _answer(self, found: Any) -> Any:
        """Of a broker in capitals there is an address and no answer."""
        silent = [name for name in str(self._now) if name.isupper()]
        if not silent:
            return found
        error = RequestTimeoutError("late")
        raise IncompleteError(
            found, [LeftOut(n.lower(), f"{n.lower()}:1", "no answer in 5 s", error) for n in silent]
        )

    async def names(self) -> Any:
        writers = [JOBS_GROUP, ClusterLedger(Brokers([], 0), "q").group(1)]
        return self._answer({name: ["a"] for name in ("billing", *writers)})

    async def lag(self, group: str) -> Any:
        queues = [MessageQueue("t", name, 0) for name in str(self._now) if name.islower()]
        return self._answer([QueueLag(queue, 1, 3, 0, 1.0) for queue in queues])


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``record_lag`` of a scripted cluster into an empty folder; its report and what it told."""

    def run(*turns: BaseException | str, **options: Any) -> tuple[Any, list[str]]:
        told: list[str] = []
        cluster = Scripted(*turns)
        monkeypatch.setattr(lags, "Admin", lambda _: contextlib.nullcontext(cluster))
        folder = str(tmp_path / str(len(list(tmp_path.iterdir()))))
        report = lags.record_lag(folder, times=len(turns), every_s=0.01, tell=told.append, **options)
        return report, told

    return run


def test_what_writers_keep_in_the_brokers_is_no_lag(record: Any) -> None:
    assert [row[0] for row in record("a")[0].rows] == ["billing"]
    assert [row[0] for row in record("a", groups=[JOBS_GROUP])[0].rows] == [JOBS_GROUP]


def test_a_silent_broker_is_named_and_the_others_are_written_down(record: Any) -> None:
    report, told = record("ab", "aB", "a", "ab")
    assert told == [
        "1: 4 messages behind in 1 group",
        "2: 2 messages behind in 1 group, without those of b",
        "b at b:1: no answer in 5 s",
        "3: 2 messages behind in 1 group, without those of b",
        "b not in the routes any more",
        "4: 4 messages behind in 1 group",
    ]
    assert not report.good
    assert report.summary.endswith("; something was missing 2 times of 4")
    assert report.rows == [("billing", "t", 4, 1.0, 4, 1.0, 0)]


def test_a_time_without_any_answer_ends_only_the_first(record: Any) -> None:
    """A name server that started again ended a measurement of weeks."""
    lost = RequestTimeoutError("no answer from ns:1 in time")
    report, told = record("ab", lost, "ab")
    assert told[1] == "2: nothing was measured: no answer from ns:1 in time"
    assert report.facts["measured"] == 2
    with pytest.raises(RequestTimeoutError):
        record(lost, "ab")
    with pytest.raises(BrokerError):
        record(BrokerError(26, "no broker has the group none", "a:1"), groups=["none"])
