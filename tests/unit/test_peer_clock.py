"""The time that requests were under way, between clocks that differ."""

from __future__ import annotations

from orbitmq.transport.peer_clock import LATE_MS, MOST_APART_MS, STEP_MS, PeerClock


def test_the_way_is_what_a_connection_takes_longer_than_at_best() -> None:
    clock = PeerClock()
    assert clock.way_ms(1000, 2010) == 0
    assert clock.way_ms(2000, 3000) == 0
    assert clock.way_ms(3000, 4200) == 200
    assert clock.way_ms(4000, 9000) == 4000


def test_a_clock_may_be_ahead() -> None:
    clock = PeerClock()
    assert clock.way_ms(9000, 1000) == 0
    assert clock.way_ms(10_000, 2600) == 600


def test_a_first_request_of_long_ago_is_late() -> None:
    clock = PeerClock()
    assert clock.way_ms(1, MOST_APART_MS + 2) == MOST_APART_MS + 1


def test_a_clock_that_was_set_is_found_out_and_a_burst_of_late_ones_is_none() -> None:
    clock = PeerClock()
    clock.way_ms(0, 0)
    assert [clock.way_ms(made, 5000) for made in (100, 200, 300)] == [4900, 4800, 4700]
    assert clock.way_ms(5000, 5000) == 0
    assert clock.way_ms(3000, 6000) == 3000
    assert clock.way_ms(3000 + STEP_MS, 6000 + STEP_MS) == 0
    assert clock.way_ms(4100, 7100) == 0


def test_a_clock_that_was_set_shows_in_all_requests() -> None:
    """All requests share one estimate: a connection carries pops, and notices that wait longer."""
    clock = PeerClock()
    clock.way_ms(0, 0)
    by_ms = LATE_MS + 1
    ways = [clock.way_ms(made, made + by_ms) for made in range(100, 2000, 100)]
    assert ways == [by_ms] * 10 + [0] * 9


def test_a_small_step_is_no_lateness() -> None:
    clock = PeerClock()
    clock.way_ms(0, 0)
    assert {clock.way_ms(made, made + LATE_MS) for made in range(100, 5000, 100)} == {LATE_MS}
