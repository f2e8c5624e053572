"""Requests that wait for messages: no timer runs before a deadline, and deadlines are kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.events import Events
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.messaging.waiting import SLOT_MS
from orbitmq.broker.pop.held_pops import HeldPops, RetryResult
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.virtual_loop import VirtualLoop

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

PLACE = ("T", "g", -1)


@dataclass(eq=False)
class Waiter:
    runtime: SimulatedRuntime
    result: RetryResult = RetryResult.WAITS
    gone: bool = False
    offset: int = 0
    events: list[tuple[str, float]] = field(default_factory=list)

    def wake(self) -> bool:
        return self.retry() is not RetryResult.WAITS

    def retry(self) -> RetryResult:
        self.events.append(("look", self.runtime.clock.monotonic()))
        return self.result

    def expire(self) -> None:
        self.events.append(("expire", self.runtime.clock.monotonic()))

    def is_of(self, user: str) -> bool:
        return False

    def recheck(self) -> None:
        raise AssertionError("no rights change here")


def nothing(_topic: str, _queue_id: int) -> None:
    pass


def iterations() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.iterations


async def test_a_pull_that_waits_costs_nothing_until_its_time_is_over(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    clock = orbitmq_runtime.clock
    waiting = LongPolling(clock, Events(), nothing)
    await waiting.start()
    first, second = Waiter(orbitmq_runtime), Waiter(orbitmq_runtime)
    begin, before = clock.monotonic(), iterations()
    waiting.park("T", 0, first, 60_000)
    waiting.park("T", 0, second, 15_000)
    await asyncio.sleep(100)
    assert iterations() - before < 20
    assert [what for what, _ in first.events + second.events] == ["expire", "expire"]
    for waiter, wait_s in ((first, 60), (second, 15)):
        assert wait_s <= waiter.events[0][1] - begin <= wait_s + 2 * SLOT_MS / 1000
    await waiting.stop()


async def test_a_pop_looks_again_when_it_is_told_to_and_is_answered_in_time(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    clock = orbitmq_runtime.clock
    waiting = HeldPops("held pops", broker_config(), clock, Events(), nothing)
    await waiting.start()
    waiter, left = Waiter(orbitmq_runtime), Waiter(orbitmq_runtime, gone=True)
    begin, before = clock.monotonic(), iterations()
    waiting.park(PLACE, waiter, [("T", [0])], 30_000)
    waiting.park(PLACE, left, [("T", [0])], 30_000)
    waiting.retry_at(PLACE, waiter, clock.now_ms() + 5_000)
    waiting.retry_at(PLACE, waiter, clock.now_ms() + 10_000)
    await asyncio.sleep(100)
    assert iterations() - before < 20
    assert [what for what, _ in waiter.events] == ["look", "expire"]
    assert [round(time_s - begin) for _, time_s in waiter.events] == [10, 30]
    assert (left.events, len(waiting), waiting.waiting(PLACE)) == ([], 0, 0)
    await waiting.stop()


async def test_one_answer_that_fails_keeps_no_other_from_its_own(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    class Broken(Waiter):
        def expire(self) -> None:
            raise ZeroDivisionError

    waiting = LongPolling(orbitmq_runtime.clock, Events(), nothing)
    await waiting.start()
    waiter = Waiter(orbitmq_runtime)
    waiting.park("T", 0, Broken(orbitmq_runtime), 1000)
    waiting.park("T", 0, waiter, 1000)
    await asyncio.sleep(2)
    assert [what for what, _ in waiter.events] == ["expire"]
    await waiting.stop()
