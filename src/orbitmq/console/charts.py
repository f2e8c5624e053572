"""The page of charts: the rates of brokers and topics over the last minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from orbitmq.admin import Partial, TopicLag
from orbitmq.console.asking import Sight, names
from orbitmq.console.history import History, Series
from orbitmq.console.model import Chart, Column, Page, Row, Table, said
from orbitmq.console.overview import broker_rows
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX

RATES = (Column("topic", link="/topics/{topic}"), Column("in_rate", "number"))


async def charts(sight: Sight, history: History, now_ms: int) -> Page:
    """The page with three charts, and the rates of the topics as a table."""
    told, lags = await asyncio.gather(sight.statuses(), sight.topic_lags())
    rows = broker_rows(told, history, now_ms)
    rates = topic_rates(lags, history, now_ms)
    blocks = (
        _chart("came_by_broker", history.came, now_ms),
        _chart("gone_by_broker", history.gone, now_ms),
        _chart("came_by_topic", history.topics, now_ms),
        Table("rates", RATES, _rows(rates), "no_rates", long=True),
    )
    silent = [f"{row['name']} at {row['address']}: {row['problem']}" for row in rows if row["problem"]]
    left_out = [*silent, *names(lags.left_out)]
    return Page("charts", "", said("charts_kept"), blocks, left_out=left_out)


def topic_rates(lags: Partial[Sequence[TopicLag]], history: History, now_ms: int) -> Mapping[str, float]:
    """Record the end offsets of each topic that a group reads; returns the rates since the last record.

    Nothing is recorded while a broker is left out: all its messages would count at once afterwards.
    """
    if lags.left_out:
        return {}
    ends: dict[str, dict[str, int]] = {}
    for one in lags.found:
        if not one.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            ends.setdefault(one.topic, {})[one.broker_name] = one.end
    return history.note_ends(now_ms, {topic: sum(at.values()) for topic, at in ends.items()})


def _rows(rates: Mapping[str, float]) -> list[Row]:
    """The rates as rows, the busiest topics first."""
    largest = sorted(rates.items(), key=lambda one: (-one[1], one[0]))
    return [{"topic": topic, "in_rate": rate} for topic, rate in largest]


def _chart(name: str, series: Series, now_ms: int) -> Chart:
    found = series.lines(now_ms)
    return Chart(name, found.times, found.lines)
