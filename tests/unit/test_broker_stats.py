"""Statistics by sampling: what a minute, an hour and a day hold."""

from __future__ import annotations

from orbitmq.broker.stats import Series


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
