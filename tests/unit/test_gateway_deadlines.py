"""Deadlines of calls, in slots of time."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.gateway.deadlines import SLOT_MS, Deadlines

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


class Clocked:
    """Calls that are named by their deadline, and the time at which each expired."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.begun = self.loop.time()
        self.over: dict[str, float] = {}
        self.deadlines: Deadlines[str] = Deadlines(self._expired)

    def _expired(self, call: str) -> None:
        self.over[call] = round((self.loop.time() - self.begun) * 1000)


async def test_each_call_ends_at_its_time_or_within_a_slot() -> None:
    clocked = Clocked()
    times = {"a": 60_000, "b": 1, "c": 2 * SLOT_MS, "d": 2 * SLOT_MS + 1, "e": 3600 * 1000}
    for call, timeout_ms in times.items():
        clocked.deadlines.add(call, timeout_ms)
    await asyncio.sleep(3601)
    assert list(clocked.over) == ["b", "c", "d", "a", "e"]
    for call, at_ms in clocked.over.items():
        assert times[call] <= at_ms <= times[call] + SLOT_MS, call


async def test_a_call_that_has_ended_has_no_deadline() -> None:
    clocked = Clocked()
    due = clocked.deadlines.add("gone", 1000)
    assert clocked.deadlines.add("stays", 1000) is due
    clocked.deadlines.add("first", 100).pop("first")
    del due["gone"]
    await asyncio.sleep(2)
    assert list(clocked.over) == ["stays"]


async def test_a_call_may_begin_when_another_one_ends() -> None:
    clocked = Clocked()
    clocked.deadlines.add("first", 100)
    await asyncio.sleep(0.2)
    clocked.deadlines.add("second", 100)
    clocked.deadlines.add("before", 10)
    await asyncio.sleep(0.3)
    assert list(clocked.over) == ["first", "before", "second"]


async def test_a_call_that_cannot_be_ended_keeps_no_other_one_from_its_end() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: failures.append(context["exception"])
    )
    over: list[str] = []

    def expired(call: str) -> None:
        if call == "broken":
            raise RuntimeError(call)
        over.append(call)

    deadlines: Deadlines[str] = Deadlines(expired)
    for call, timeout_ms in (("first", 100), ("broken", 100), ("same time", 100), ("later", 500)):
        deadlines.add(call, timeout_ms)
    await asyncio.sleep(1)
    assert over == ["first", "same time", "later"]
    assert [str(failure) for failure in failures] == ["broken"]


async def test_closed_deadlines_end_nothing() -> None:
    clocked = Clocked()
    clocked.deadlines.add("a", 100)
    clocked.deadlines.close()
    await asyncio.sleep(1)
    assert clocked.over == {}
