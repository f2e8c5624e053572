"""Seats: the number of connections that the ports of a server accept."""

from __future__ import annotations

import pytest

from orbitmq.cli.serve import connections_of
from orbitmq.transport.seats import Seats


@pytest.mark.behaviour("LM-02")
def test_seats_in_all_and_for_one_address() -> None:
    seats = Seats(3, 2)
    for host in ("10.0.0.1", "10.0.0.1"):
        assert seats.why_not(host) == ""
        seats.take(host)
    assert "10.0.0.1 has 2 connections already" in seats.why_not("10.0.0.1")
    assert seats.why_not("10.0.0.2") == ""
    seats.take("10.0.0.2")
    assert "all 3 connections are in use" in seats.why_not("10.0.0.3")
    seats.leave("10.0.0.1")
    assert seats.why_not("10.0.0.1") == seats.why_not("10.0.0.3") == ""
    seats.leave("10.0.0.1")
    seats.leave("10.0.0.2")
    assert seats.taken == 0
    assert seats._of_hosts == {}


def test_without_limits_there_is_always_room() -> None:
    seats = Seats()
    for _ in range(20_000):
        seats.take("10.0.0.1")
    assert seats.why_not("10.0.0.1") == ""


@pytest.mark.behaviour("LM-03")
@pytest.mark.parametrize(
    ("most", "open_files", "fit"),
    [
        (10_000, 1 << 63, 10_000),
        (10_000, 1_048_576, 10_000),
        (10_000, 13_333, 10_000),
        (10_000, 4096, 3072),
        (10_000, 1024, 512),
        (10_000, 256, 128),
        (100, 256, 100),
        (10_000, 1, 1),
    ],
)
def test_connections_leave_descriptors_to_the_store(most: int, open_files: int, fit: int) -> None:
    assert connections_of(most, open_files) == fit
