"""The verdicts on the faults of gRPC clients, and how they are printed."""

from __future__ import annotations

import pytest
from benchmarks.grpc_faults.goals import FIGURES, TITLES, Figure, failures, met, reasons, rows

KILLED = {"elsewhere_s": 10.0}
SIDES = {
    "ours": {"killed": KILLED, "slow": {"twice": 0}},
    "apache": {"killed": {"elsewhere_s": 39.0}, "slow": "no consumer starts"},
}


@pytest.mark.parametrize(
    ("figure", "ours", "apache", "kept"),
    [
        (Figure("f", "n", "t", most=0), 0, 1, True),
        (Figure("f", "n", "t", most=0), 1, 1, False),
        (Figure("f", "n", "t", share=0.25), 10, 40, True),
        (Figure("f", "n", "t", share=0.25), 10.1, 40, False),
        (Figure("f", "n", "t", share=0.25), 10, None, None),
        (Figure("f", "n", "t", most=0, share=0.5), 1, 40, False),
        (Figure("f", "n", "t", most=5), 5, None, True),
        (Figure("f", "n", "t", most=5), None, 5, None),
    ],
)
def test_a_figure_keeps_the_limits_that_can_be_told(
    figure: Figure, ours: float | None, apache: float | None, kept: bool | None
) -> None:
    assert met(figure, ours, apache) is kept


def test_a_fault_that_one_side_did_not_play_shows_the_others_figures() -> None:
    lines = {line[0]: line[2:] for line in rows(SIDES)}
    assert lines[TITLES["killed"]] == ["10", "39", "0.26", "<= 0.25 of Apache's", "**no**"]
    assert lines[TITLES["slow"]] == ["0", "-", "", "0", "yes"]
    assert len(lines) == 2
    assert reasons(SIDES) == [f"{TITLES['slow']}, Apache: no consumer starts"]


def test_a_limit_that_is_not_kept_fails_and_so_does_a_fault_without_figures() -> None:
    sides = {**SIDES, "ours": {"killed": KILLED, "slow": "ServerError: it ended"}}
    assert failures(sides) == [
        f"{TITLES['slow']}: ServerError: it ended",
        f"{TITLES['killed']}: {FIGURES[0].title}: 10, Apache 39, goal <= 0.25 of Apache's",
    ]


def test_each_fault_has_a_limit() -> None:
    limited = {figure.fault for figure in FIGURES if figure.most is not None or figure.share is not None}
    assert limited == set(TITLES)
