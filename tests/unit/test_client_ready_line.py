"""Messages that are ready for handlers: every waiter is woken, and a wait in vain leaves no entry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.client.consumer.ready import ReadyLine

pytestmark = pytest.mark.usefixtures("orbitmq_runtime")


async def taking(line: ReadyLine[int], got: list[int], work_s: float, chance: Any) -> None:
    while not line.closed:
        item = line.pop()
        if item is None:
            await line.wait()
            continue
        got.append(item)
        await asyncio.sleep(chance.random() * work_s)


@pytest.mark.parametrize("orbitmq_seed", range(20))
async def test_all_items_are_taken_though_takers_are_cancelled(orbitmq_runtime: Any) -> None:
    chance = orbitmq_runtime.random
    line: ReadyLine[int] = ReadyLine()
    got: list[int] = []
    tasks = [asyncio.ensure_future(taking(line, got, 0.01, chance)) for _ in range(5)]
    for number in range(200):
        line.put(number)
        if chance.random() < 0.1:
            victim = tasks.pop(chance.randrange(len(tasks)))
            victim.cancel()
            tasks.append(asyncio.ensure_future(taking(line, got, 0.01, chance)))
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.01)
    for _ in range(1000):
        if len(got) == 200:
            break
        await asyncio.sleep(0.01)
    assert got == list(range(200))
    line.close()
    await asyncio.wait_for(asyncio.gather(*tasks), 1)


async def test_everybody_works_when_everybody_waits_for_something(orbitmq_runtime: Any) -> None:
    line: ReadyLine[int] = ReadyLine()
    inside = most = 0

    async def worker() -> None:
        nonlocal inside, most
        while not line.closed:
            if line.pop() is None:
                await line.wait()
                continue
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(1)
            inside -= 1

    tasks = [asyncio.ensure_future(worker()) for _ in range(8)]
    await asyncio.sleep(0.1)
    line.extend(range(20))
    await asyncio.sleep(0.5)
    assert (inside, most) == (8, 8)
    line.close()
    await asyncio.gather(*tasks)


async def test_waiting_in_vain_leaves_nothing_behind(orbitmq_runtime: Any) -> None:
    line: ReadyLine[int] = ReadyLine()
    for _ in range(100):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.wait(), 0.01)
    assert not line._waiting
    waiting = asyncio.ensure_future(line.wait())
    await asyncio.sleep(0)
    line.put(1)
    await waiting
    assert line.pop() == 1
