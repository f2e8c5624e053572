"""Addresses with wrong signatures are slowed more and more, and recover with time."""

from __future__ import annotations

import pytest

from orbitmq.auth.slowing import FORGET_S, FREE, MAX_ADDRESSES, MOST_S, Slowing


@pytest.mark.behaviour("LM-09")
def test_an_address_is_slowed_more_and_more_and_forgiven() -> None:
    slowing = Slowing()
    pauses = [slowing.wrong("10.0.0.9", 1.0) for _ in range(FREE + 12)]
    assert pauses[:FREE] == [0.0] * FREE
    assert pauses[FREE : FREE + 4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == MOST_S
    assert slowing.left("10.0.0.9", 2.0) == MOST_S - 1
    assert slowing.left("10.0.0.9", 1.0 + MOST_S) == 0
    assert slowing.left("10.0.0.8", 1.0) == slowing.wrong("10.0.0.8", 1.0) == 0
    assert slowing.wrong("10.0.0.9", 2.0 + FORGET_S) == 0


@pytest.mark.behaviour("LM-09")
def test_a_bounded_number_of_addresses_is_remembered() -> None:
    slowing = Slowing()
    for number in range(FREE + 1):
        slowing.wrong("old", float(number))
    for number in range(MAX_ADDRESSES):
        slowing.wrong(str(number), 100.0)
    assert slowing.left("old", 5.0) == 0
    assert slowing.wrong("old", 6.0) == 0
