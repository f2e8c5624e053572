"""Statistics by sampling: the values of a minute, an hour and a day, rates and times."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.events import Events, TopicChanged
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.statistics import (
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    TOPIC_PUT_NUMS,
    Counters,
    PutTimes,
    Rates,
    Series,
    Stats,
)
from orbitmq.testing.machine.simulated import VirtualClock


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
    while not series.silent(hours * 3600.0):
        hours += 1
    assert 24 <= hours <= 26


@pytest.mark.parametrize("seed", range(20))
def test_looks_that_are_left_out_while_nothing_grows_change_nothing(seed: int) -> None:
    choice = random.Random(seed)
    every, some = Series(0.0, 0), Series(0.0, 0)
    total = 0
    for step in range(1, 20_000):
        now = step * 10.0
        if choice.random() < 0.001:
            busy = choice.randrange(1, 2000)
        elif step == 1:
            busy = 0
        if busy:
            busy -= 1
            total += choice.randrange(1, 9)
            some.note(now, total)
        every.note(now, total)
        if choice.random() < 0.01:
            assert [some.growth(span, now) for span in range(3)] == [every.growth(span) for span in range(3)]
        assert some.total == every.total


class Sampled:
    """The statistics of a store that only knows how much its topics have grown."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.grown: dict[str, int] = {}
        self.events = Events()
        self.offsets = ConsumerOffsets(self.clock, ChangeFeed(), self.events)
        self.counters = Counters(self.clock)
        store = cast(Any, SimpleNamespace(growth=self._take))
        self.stats = Stats(self.clock, self.events, store, self.offsets, "c", self.counters)

    def _take(self) -> dict[str, int]:
        grown, self.grown = self.grown, {}
        return grown

    def sample(self, later_s: float) -> None:
        self.clock.advance(later_s)
        asyncio.run(self.stats.sample())

    def day(self, name: str, key: str) -> int | None:
        seen = self.stats.view(name, key)
        return None if seen is None else seen.stats_day.sum


def test_topics_are_shown_while_they_grew_within_a_day() -> None:
    world = Sampled()
    world.sample(0)
    world.grown["new"] = 5
    world.sample(10)
    assert (world.day(TOPIC_PUT_NUMS, "old"), world.day(TOPIC_PUT_NUMS, "new")) == (None, 5)
    for _ in range(26):
        world.sample(3600)
    assert world.day(TOPIC_PUT_NUMS, "new") is None
    world.grown["new"] = 3
    world.sample(10)
    assert world.day(TOPIC_PUT_NUMS, "new") == 3
    world.events.publish(TopicChanged("new", None))
    assert world.day(TOPIC_PUT_NUMS, "new") is None


def test_a_group_grows_by_the_distance_of_its_pulls() -> None:
    world = Sampled()
    world.sample(0)
    world.offsets.note_pull("g", "T", 0, 15, started=10)
    world.offsets.note_pull("g", "T", 1, 7)
    world.sample(10)
    assert world.day(GROUP_GET_NUMS, "T@g") == 5
    world.offsets.note_pull("g", "T", 1, 9)
    world.offsets.note_pull("g", "T", 0, 12)
    world.sample(10)
    assert world.day(GROUP_GET_NUMS, "T@g") == 7
    world.offsets.drop_group("g")
    world.sample(10)
    assert world.day(GROUP_GET_NUMS, "T@g") is None
    world.offsets.note_pull("g", "T", 0, 3, started=0)
    world.sample(10)
    assert world.day(GROUP_GET_NUMS, "T@g") == 3


def test_a_broker_that_was_silent_for_days_does_not_count_twice() -> None:
    world = Sampled()
    world.sample(0)
    world.counters.handled_in = 100
    world.sample(10)
    for _ in range(60):
        world.sample(3600)
    assert world.day(BROKER_PUT_NUMS, "c") is None
    world.counters.handled_in = 103
    world.sample(10)
    assert world.day(BROKER_PUT_NUMS, "c") == 3


def test_a_topic_in_which_nothing_happens_is_not_looked_at() -> None:
    world = Sampled()
    for number in range(1000):
        world.grown[f"T{number}"] = 1
        world.offsets.note_pull("g", f"T{number}", 0, 1, started=0)
    world.sample(10)
    steps: list[object] = []
    stats = cast(Any, world.stats)
    stats._grow = lambda *what: steps.append(what)
    world.sample(10)
    assert len(steps) == 2  # the broker's own two numbers


def test_rates_over_three_spans() -> None:
    rates = Rates()
    assert rates.text(Rates.PUT) == "0.0 0.0 0.0"
    for number in range(100):
        rates.sample(number * 10.0, number * number, number * 50, number * 20, number * 10)
    assert rates.text(Rates.TRANSFERRED) == "5.0 5.0 5.0"
    assert rates.text(Rates.FOUND, Rates.MISSED) == "3.0 3.0 3.0"
    assert rates.per_second(Rates.PUT, 1) == pytest.approx((99**2 - 98**2) / 10)
    assert rates.per_second(Rates.PUT, 60) == pytest.approx((99**2 - 39**2) / 600)


def test_times_are_told_for_the_last_whole_minute() -> None:
    times = PutTimes()
    assert times.percentile(0.99) == 0.0
    for elapsed, messages in ((0, 900), (1, 50), (9, 30), (10, 10), (700, 9), (25_000, 1)):
        times.note(elapsed, messages)
    assert "[<=0ms]:0 " in times.text()
    times.roll()
    assert times.text() == (
        "[<=0ms]:900 [0~10ms]:80 [10~50ms]:10 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:9 "
        "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert times.longest_ms == 25_000
    assert 9 <= times.percentile(0.99) <= 10
    assert 600 <= times.percentile(0.999) <= 700
    times.roll()
    assert times.percentile(0.99) == 0.0
    assert times.longest_ms == 25_000
