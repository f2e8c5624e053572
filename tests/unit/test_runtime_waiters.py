"""Waiting for a condition: a waiter wakes when it holds, and only then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.runtime.waiters import Waiters

pytestmark = pytest.mark.usefixtures("orbitmq_runtime")


async def test_only_those_whose_condition_holds_are_woken(orbitmq_runtime: Any) -> None:
    waiters, level, woken = Waiters(), [9], []

    async def below(limit: int) -> None:
        assert await waiters.until(lambda: level[0] < limit)
        woken.append(limit)

    tasks = [asyncio.ensure_future(below(limit)) for limit in (5, 3, 10)]
    await asyncio.sleep(0.01)
    assert woken == [10]
    for level[0], expected in ((7, [10]), (4, [10, 5]), (0, [10, 5, 3])):
        waiters.changed()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert woken == expected
    await asyncio.gather(*tasks)
    assert not waiters.waiting


async def test_a_wait_ends_in_time_and_leaves_nothing_behind(orbitmq_runtime: Any) -> None:
    waiters = Waiters()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert not await waiters.until(lambda: False, 2)
    assert loop.time() - begun == pytest.approx(2)
    cancelled = asyncio.ensure_future(waiters.until(lambda: False))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    assert not waiters.waiting
    waiters.changed()
