"""Admission: number and weight are kept in order, and a waiter that gives up keeps no place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.runtime.line import Line

pytestmark = pytest.mark.usefixtures("orbitmq_runtime")


async def test_entries_wait_for_a_place_first_come_first_served(orbitmq_runtime: Any) -> None:
    line = Line(2)
    entered: list[int] = []

    async def enter(number: int) -> None:
        await line.enter()
        entered.append(number)

    waiting = [asyncio.ensure_future(enter(number)) for number in range(5)]
    await asyncio.sleep(0.01)
    assert entered == [0, 1]
    assert not line.take()
    for inside in range(3, 6):
        line.leave()
        await asyncio.sleep(0.01)
        assert entered == list(range(inside))
    await asyncio.gather(*waiting)


async def test_a_heavy_entry_is_not_overtaken_and_goes_alone(orbitmq_runtime: Any) -> None:
    line = Line(10, max_weight=100)
    assert line.take(60)
    heavy = asyncio.ensure_future(line.enter(500))
    await asyncio.sleep(0.01)
    assert not line.take(1)
    light = asyncio.ensure_future(line.enter(1))
    line.leave(60)
    await asyncio.sleep(0.01)
    assert heavy.done()
    assert not light.done()
    line.leave(500)
    await light


async def test_a_wait_that_is_too_long_lets_the_next_one_in(orbitmq_runtime: Any) -> None:
    line = Line(10, max_weight=100)
    assert line.take(60)
    loop = asyncio.get_running_loop()
    heavy = asyncio.ensure_future(line.enter(90, deadline=loop.time() + 1))
    light = asyncio.ensure_future(line.enter(10))
    begun = loop.time()
    with pytest.raises(TimeoutError):
        await heavy
    await light
    assert loop.time() - begun == pytest.approx(1, abs=0.01)
    with pytest.raises(TimeoutError):
        await line.enter(90, deadline=loop.time())
    line.leave(60)
    line.leave(10)
    assert line.take(100)


@pytest.mark.parametrize("admitted_first", [True, False])
async def test_a_cancelled_wait_leaves_its_place_to_the_next(
    orbitmq_runtime: Any, admitted_first: bool
) -> None:
    line = Line(1)
    assert line.take()
    waits = asyncio.ensure_future(line.enter())
    following = asyncio.ensure_future(line.enter())
    await asyncio.sleep(0.01)
    if admitted_first:
        line.leave()
        waits.cancel()
    else:
        waits.cancel()
        await asyncio.sleep(0.01)
        line.leave()
    await following
    assert waits.cancelled()
    line.leave()
    assert line.take()
