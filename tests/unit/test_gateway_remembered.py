"""Responses of other servers that are cached for some seconds."""

from __future__ import annotations

import asyncio

from orbitmq.gateway.remembered import RENEWAL_SECONDS, Answer, Remembered
from orbitmq.runtime.tasks import Background
from orbitmq.testing import SimulatedRuntime

KEPT_SECONDS = 5.0


async def test_an_expired_answer_serves_while_a_new_one_is_asked_for(runtime: SimulatedRuntime) -> None:
    clock = runtime.clock
    remembered: Remembered[int] = Remembered(clock, Background("questions", max_tasks=10), 10)
    asked, took_s = 0, 1.0

    async def ask() -> Answer[int]:
        nonlocal asked
        asked += 1
        number = asked
        await clock.sleep(took_s)
        return Answer(number, KEPT_SECONDS)

    assert remembered.at_hand("key", ask) is None
    assert asked == 0
    assert await remembered.get("key", ask) == 1
    await clock.sleep(KEPT_SECONDS)
    assert [remembered.at_hand("key", ask) for _ in range(3)] == [1, 1, 1]
    await clock.sleep(1.5)
    assert [remembered.at_hand("key", ask) for _ in range(3)] == [2, 2, 2]
    assert asked == 2
    took_s = 3 * RENEWAL_SECONDS
    await clock.sleep(KEPT_SECONDS)
    assert remembered.at_hand("key", ask) == 2
    await clock.sleep(took_s - 0.5)
    assert remembered.at_hand("key", ask) == 2
    await clock.sleep(1)
    assert [remembered.at_hand("key", ask) for _ in range(3)] == [3, 3, 3]
    await clock.sleep(KEPT_SECONDS + RENEWAL_SECONDS)
    assert remembered.at_hand("key", ask) is None
    assert asked == 3


async def test_the_answer_of_a_question_that_somebody_waits_for_is_new(runtime: SimulatedRuntime) -> None:
    clock = runtime.clock
    remembered: Remembered[int] = Remembered(clock, Background("questions", max_tasks=10), 10)
    answers = iter((1, 2))

    async def ask() -> Answer[int]:
        await clock.sleep(1)
        return Answer(next(answers), KEPT_SECONDS)

    assert await remembered.get("key", ask) == 1
    await clock.sleep(KEPT_SECONDS + RENEWAL_SECONDS)
    waiting = asyncio.ensure_future(remembered.get("key", ask))
    await clock.sleep(0.5)
    assert remembered.at_hand("key", ask) is None
    assert await waiting == 2
