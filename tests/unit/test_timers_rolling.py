"""The messages that may wait for less than their whole time."""

from __future__ import annotations

import pytest

from orbitmq.broker.timers.rolling import PLACES, Rolling


@pytest.mark.behaviour("TW-11")
def test_what_was_never_there_is_not_there() -> None:
    rolling = Rolling()
    assert not rolling.may_have(7)
    rolling.add(5)
    rolling.add(5 + PLACES)
    assert [rolling.may_have(each) for each in (5, 5 + PLACES, 7)] == [True, True, False]
    rolling.drop(5)
    assert rolling.may_have(5), "the other one is still there"
    rolling.drop(5)
    rolling.drop(5)
    assert not rolling.may_have(5)


def test_one_whose_key_is_not_known_may_be_any() -> None:
    rolling = Rolling()
    rolling.add(None)
    rolling.add(5)
    assert rolling.may_have(7)
    rolling.drop(5)
    assert rolling.may_have(7)
    rolling.drop(9)
    assert not rolling.may_have(7)
