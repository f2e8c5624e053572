"""The responses of a connection that have arrived."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from orbitmq.gateway import arrivals
from orbitmq.gateway.arrivals import ARRIVED_SECONDS, Arrivals

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


class Connection:
    """The PINGs that were sent, and the outcome of each response."""

    def __init__(self) -> None:
        self.pings: list[int] = []
        self.became: dict[int, bool] = {}
        self.empty = 0
        self.arrivals = Arrivals(self.pings.append, self._done)

    def _done(self) -> None:
        self.empty += 1

    def answers(self, *streams: int) -> None:
        for stream in streams:
            self.arrivals.add(stream, partial(self.became.__setitem__, stream))


async def test_one_acknowledgement_covers_all_before_its_ping() -> None:
    to = Connection()
    to.answers(1, 3, 5)
    assert to.pings == [1]
    to.arrivals.acknowledged(1)
    assert (to.became, to.pings, to.empty) == ({1: True}, [1, 2], 0)
    to.arrivals.acknowledged(2)
    assert (to.became, to.empty, len(to.arrivals)) == ({1: True, 3: True, 5: True}, 1, 0)


async def test_another_acknowledgement_says_nothing() -> None:
    to = Connection()
    to.arrivals.acknowledged(0)
    to.answers(1)
    for number in (0, 2, 2**63):
        to.arrivals.acknowledged(number)
    assert to.became == {}


async def test_an_answer_that_is_given_up_is_lost_and_the_late_acknowledgement_covers_no_other() -> None:
    to = Connection()
    to.answers(1)
    to.arrivals.reset(1)
    to.arrivals.reset(1)
    assert (to.became, to.empty) == ({1: False}, 1)
    to.answers(3)
    to.arrivals.acknowledged(1)
    assert to.became == {1: False}
    to.arrivals.acknowledged(2)
    assert to.became == {1: False, 3: True}


async def test_all_are_lost_with_the_connection() -> None:
    to = Connection()
    to.answers(1, 3)
    to.arrivals.end()
    to.arrivals.end()
    assert (to.became, to.empty) == ({1: False, 3: False}, 1)


async def test_what_is_not_acknowledged_in_time_is_lost_and_later_answers_have_their_own_time() -> None:
    to = Connection()
    to.answers(1)
    await asyncio.sleep(ARRIVED_SECONDS - 1)
    to.answers(3)
    await asyncio.sleep(2)
    assert (to.became, to.pings) == ({1: False}, [1, 2])
    await asyncio.sleep(ARRIVED_SECONDS - 2)
    to.arrivals.acknowledged(2)
    assert to.became == {1: False, 3: True}


async def test_a_client_that_acknowledges_nothing_cannot_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "MAX_ANSWERS", 2)
    to = Connection()
    to.answers(1, 3, 5)
    assert to.became == {5: False}
