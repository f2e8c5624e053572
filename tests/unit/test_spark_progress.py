"""The line that the listener of a session logs for each batch."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.offsets import Offsets
from orbitmq.spark.progress import watch

A0, A1, B0 = (
    MessageQueue("t", broker, n) for broker, n in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0))
)


def source(end: Any, latest: Any = None, rows: int = 7) -> Any:
    return SimpleNamespace(endOffset=end, latestOffset=latest, numInputRows=rows)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The log lines for a batch of a query that has these sources."""
    caplog.set_level(logging.INFO, "orbitmq.spark")
    listeners: list[Any] = []
    session: Any = SimpleNamespace(streams=SimpleNamespace(addListener=listeners.append))
    listener = watch(session)
    assert listeners == [listener]

    def told(*sources: Any, name: str | None = "orders") -> list[str]:
        caplog.clear()
        progress = SimpleNamespace(id="q-1", name=name, batchId=3, sources=sources)
        listener.onQueryProgress(SimpleNamespace(progress=progress))
        return caplog.messages

    return told


def test_each_batch_is_a_line_with_its_rows_and_how_many_wait(lines: Any) -> None:
    end, latest = (
        json.dumps(Offsets(at).to_json()) for at in ({A0: 90, A1: 100, B0: 40}, {A0: 100, A1: 100})
    )
    # B0 belongs to a broker that the name servers dropped.
    assert lines(source(end, latest)) == ["query orders, batch 3: 7 rows; behind by 10 rows"]
    assert lines(source(end), name=None) == ["query q-1, batch 3: 7 rows"], "Spark 4.1 tells no ends"
    files = source('{"logOffset":3}', None, 1000)
    assert lines(files, source(end, latest, 2)) == ["query orders, batch 3: 2 rows; behind by 10 rows"]


def test_a_queue_that_never_held_a_message_for_the_query_is_not_behind(lines: Any) -> None:
    """All messages in B0 had expired before the query began."""
    end, latest = (json.dumps(Offsets(at).to_json()) for at in ({A0: 90}, {A0: 90, B0: 500}))
    assert lines(source(end, latest)) == ["query orders, batch 3: 7 rows; behind by 0 rows"]


@pytest.mark.parametrize("end", [None, "", "not json", '{"logOffset":3}', "{}", 5])
def test_other_queries_have_no_line(lines: Any, end: Any) -> None:
    assert lines(source(end)) == []
