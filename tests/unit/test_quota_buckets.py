"""How long the server pauses reading from a client that is over its quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.quotas.buckets import MOST_S, Bucket, Key, Quotas
from orbitmq.wire.bodies.quota import Quota

APP = Key("user", "app")


@pytest.mark.behaviour("LM-06")
def test_a_seconds_worth_may_come_at_once_and_more_is_paid_back() -> None:
    bucket = Bucket(100, 0.0)
    assert bucket.take(0.0, 100) == 0
    assert bucket.take(0.0, 50) == 0.5
    assert bucket.take(0.5, 0) == 0
    assert bucket.take(0.5, 10) == pytest.approx(0.1)
    # Unused quota is kept for one second only.
    assert bucket.take(1000.0, 200) == 1.0


def test_without_a_rate_nobody_waits() -> None:
    assert Bucket(0, 0.0).take(0.0, 1 << 60) == 0


@pytest.mark.behaviour("LM-06")
def test_a_debt_has_a_limit() -> None:
    bucket = Bucket(1, 0.0)
    assert bucket.take(0.0, 1 << 40) == MOST_S
    assert bucket.take(MOST_S, 0) == 0


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 500)), min_size=1, max_size=60),
)
def test_who_waits_as_told_stays_within_the_rate(rate: int, uses: list[tuple[float, int]]) -> None:
    bucket, now, used, wait = Bucket(rate, 0.0), 0.0, 0, 0.0
    for pause, units in uses:
        now += pause
        wait = bucket.take(now, min(units, rate))
        used += min(units, rate)
        now += wait
    assert used <= rate * (now + 1) + 1e-6


def test_ways_and_units_are_apart_and_a_change_begins_anew() -> None:
    quotas = Quotas()
    quotas.set(APP, Quota("user", "app", bytes_in=10, messages_out=2), 0.0)
    assert quotas.take(APP, 0.0, 10, 1000, out=False) == 0
    assert quotas.take(APP, 0.0, 1 << 40, 2, out=True) == 0
    assert quotas.take(APP, 0.0, 10, 0, out=False) == 1.0
    assert quotas.take(APP, 0.0, 0, 1, out=True) == 0.5
    quotas.waited(APP, 1.0, out=False)
    quotas.set(APP, Quota("user", "app", bytes_in=20), 0.0)
    assert quotas.take(APP, 0.0, 20, 0, out=False) == 0
    counted_in, counted_out = quotas.all()[APP].counted
    assert (counted_in.pauses, counted_in.seconds, counted_out.pauses) == (1, 1.0, 1)
    quotas.set(APP, None, 0.0)
    assert not quotas
    assert quotas.take(APP, 0.0, 1 << 40, 1, out=False) == 0
