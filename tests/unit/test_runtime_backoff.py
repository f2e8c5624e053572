"""Pauses between tries."""

from __future__ import annotations

import random

import pytest

from orbitmq.runtime.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "longest"), [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.4), (5, 1.6), (6, 2.0), (10**9, 2.0)]
)
def test_pauses_double_up_to_the_longest_and_are_at_most_a_fifth_shorter(
    failures: int, longest: float
) -> None:
    backoff = Backoff(0.1, 2.0, random.Random(1))
    pauses = [backoff.pause_s(failures) for _ in range(200)]
    assert max(pauses) <= longest
    assert min(pauses) >= 0.8 * longest
    if longest:
        assert max(pauses) - min(pauses) > 0.15 * longest


def test_one_seed_gives_one_history() -> None:
    first, second = (Backoff(0.1, 2.0, random.Random(7)) for _ in range(2))
    assert [first.pause_s(n) for n in range(9)] == [second.pause_s(n) for n in range(9)]
