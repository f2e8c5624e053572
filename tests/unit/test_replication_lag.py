"""The time for which a follower has been behind."""

import pytest

from orbitmq.replication.lag import MAX_SAMPLES, LagClock


def test_behind_is_the_time_since_the_first_byte_that_lacks() -> None:
    lag = LagClock()
    for end, now in ((0, 0.0), (100, 1.0), (100, 2.0), (200, 3.0)):
        lag.sample(end, now)
    assert lag.behind_s(200, 9.0) == 0.0
    assert lag.behind_s(199, 9.0) == 6.0
    assert lag.behind_s(100, 9.0) == 6.0
    assert lag.behind_s(99, 9.0) == 8.0
    assert lag.behind_s(-1, 9.0) == 9.0


def test_a_log_has_surely_grown_when_its_sample_is_over() -> None:
    """No follower owes a byte before it is written, although all writes of a moment are one sample."""
    lag = LagClock()
    for end, now in ((0, 0.0), (100, 1.0), (150, 1.05), (300, 3.0)):
        lag.sample(end, now)
    assert lag.grew_s(120, 9.0) == pytest.approx(1.1)
    assert lag.grew_s(120, 1.06) == 1.06
    assert lag.grew_s(150, 9.0) == pytest.approx(3.1)
    assert lag.grew_s(300, 9.0) == 9.0


def test_a_cut_log_begins_anew_and_samples_are_bounded() -> None:
    lag = LagClock()
    lag.sample(100, 1.0)
    lag.sample(50, 2.0)
    assert lag.behind_s(50, 9.0) == 0.0
    for number in range(MAX_SAMPLES + 10):
        lag.sample(100 + number, 10.0 + number)
    assert lag.behind_s(0, 10.0 + MAX_SAMPLES + 10) == MAX_SAMPLES


def test_what_is_written_in_one_moment_is_one_sample() -> None:
    lag = LagClock()
    for end, now in ((0, 0.0), (100, 1.0), (150, 1.05), (300, 1.2)):
        lag.sample(end, now)
    assert lag.behind_s(120, 2.0) == 1.0
    assert lag.behind_s(150, 2.0) == pytest.approx(0.8)
