"""The fault profile 4.7, which exists by name only: its retries prefer the broker just tried."""

from __future__ import annotations

import random

import pytest
from tests.unit.test_client_choosing import make_route

from orbitmq.client.producer.faults import PROFILES, FaultTable
from orbitmq.client.producer.queue_choice import QueueChooser


def chooser(profile: str) -> tuple[QueueChooser, FaultTable]:
    faults = FaultTable(PROFILES[profile], random.Random(1))
    return QueueChooser(random.Random(1), faults), faults


@pytest.mark.behaviour("FT-14")
def test_4_7_retries_on_the_broker_just_tried_while_it_is_available() -> None:
    picker, faults = chooser("4.7")
    route = make_route(a=1, b=4)
    assert {pick.broker_name for _ in range(9) if (pick := picker.choose(route, ["a"], 0))} == {"a"}
    faults.update("a", 10, 0, isolation=True)
    faults.update("b", 5, 0, isolation=False)
    # Broker a is isolated, so the pick comes from the better half of the recorded brokers, not from all
    # available ones.
    assert {pick.broker_name for _ in range(9) if (pick := picker.choose(route, ["a"], 1))} == {"b"}


@pytest.mark.behaviour("FT-14")
def test_4_7_with_nothing_noted_takes_the_plain_turn_when_the_last_broker_is_gone() -> None:
    picker, _ = chooser("4.7")
    route = make_route(a=1, b=1)
    picks = {pick.broker_name for _ in range(4) if (pick := picker.choose(route, ["gone"], 0))}
    assert picks == {"a", "b"}


@pytest.mark.behaviour("FT-13")
@pytest.mark.parametrize("profile", ["4.7", "4.x"])
def test_the_first_try_of_both_is_the_next_available_queue(profile: str) -> None:
    picker, faults = chooser(profile)
    faults.update("a", 2000, 0, isolation=False)
    route = make_route(a=4, b=2)
    assert {pick.broker_name for _ in range(6) if (pick := picker.choose(route, (), 1))} == {"b"}
