"""The queue of a message group: Guava's consistentHash of Java's hashCode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.gateway.queue_choice import bucket, queue_of

# The buckets of 0 to 19 among 100, and of single numbers, in Guava's own tests.
OF_A_HUNDRED = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
SINGLE = [
    (6, 10863919174838991, 11),
    (3, 2016238256797177309, 11),
    (5, 1673758223894951030, 11),
    (80343, 2, 100001),
    (22152, 2201, 100001),
    (15018, 2202, 100001),
]


@pytest.mark.behaviour("GW-17")
def test_buckets_are_guavas() -> None:
    assert [bucket(number, 100) for number in range(20)] == OF_A_HUNDRED
    for expected, number, buckets in SINGLE:
        assert bucket(number, buckets) == expected


@given(st.text(min_size=1, max_size=20), st.integers(1, 64))
def test_a_group_has_one_queue_and_a_queue_more_moves_it_there_or_not_at_all(group: str, queues: int) -> None:
    chosen = queue_of(group, queues)
    assert 0 <= chosen < queues
    assert queue_of(group, queues) == chosen
    assert queue_of(group, queues + 1) in (chosen, queues)
