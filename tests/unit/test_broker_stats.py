"""Statistics by sampling: what a minute, an hour and a day hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from orbitmq.broker.statistics import TOPIC_PUT_NUMS, Series, Stats


def test_a_series_grows_over_a_minute_an_hour_and_a_day() -> None:
    series = Series(0.0, 100)
    for step in range(1, 361):
        series.note(step * 10.0, 100 + step * 50)
    assert [series.growth(span) for span in range(3)] == [(300, 5.0), (18_000, 5.0), (18_000, 5.0)]
    for step in range(361, 361 + 6 * 60):
        series.note(step * 10.0, 100 + 360 * 50)
    assert series.growth(0) == (0, 0.0)
    assert series.growth(1) == (0, 0.0)
    grown, per_second = series.growth(2)
    assert grown == 18_000
    assert 2.4 < per_second < 2.6


def test_the_first_seconds_count_from_the_time_before() -> None:
    series = Series(0.0, 0)
    series.note(10.0, 80)
    assert series.growth(0) == series.growth(2) == (80, 8.0)


def test_a_series_is_silent_after_a_day_without_growth() -> None:
    series = Series(0.0, 0)
    series.note(10.0, 5)
    hours = 0
    while not series.silent:
        hours += 1
        series.note(hours * 3600.0, 5)
    assert 24 <= hours <= 26


def test_a_new_topic_counts_from_nothing_and_a_silent_one_from_where_it_stood() -> None:
    seconds = 0.0
    clock = SimpleNamespace(monotonic=lambda: seconds, now_ms=lambda: 0)
    ends = {"old": 7}
    topics = [SimpleNamespace(topic_name="old", read_queue_nums=1, write_queue_nums=1)]
    store = SimpleNamespace(max_offset=lambda topic, _queue: ends[topic])
    make = cast(Any, Stats)
    stats: Stats = make(
        clock, store, topics, SimpleNamespace(pulls=dict, pull_starts=dict), "c", lambda: 0, lambda: 0
    )

    def day(topic: str) -> int | None:
        seen = stats.view(TOPIC_PUT_NUMS, topic)
        return None if seen is None else seen.stats_day.sum

    def sample(later_s: float) -> None:
        nonlocal seconds
        seconds += later_s
        asyncio.run(stats.sample())

    sample(0)
    topics.append(SimpleNamespace(topic_name="new", read_queue_nums=1, write_queue_nums=1))
    ends["new"] = 5
    sample(10)
    assert (day("old"), day("new")) == (None, 5)
    for _ in range(26):
        sample(3600)
    assert day("new") is None
    ends["new"] = 8
    sample(10)
    assert day("new") == 3
