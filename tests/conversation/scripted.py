"""Clients of the scripted cluster of the fixture ``world``. Shared by tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from orbitmq import ConsumeFrom, Consumer, Producer
from orbitmq.wire.command import Command


def producer_of(world: Any, group: str = "pg", **options: Any) -> Producer:
    return Producer(group, name_servers=world.name_servers, runtime=world.runtime, **options)


def consumer_of(world: Any, group: str = "cg", **options: Any) -> Consumer:
    """A consumer that begins at the first message unless the options say otherwise."""
    options.setdefault("consume_from", ConsumeFrom.FIRST)
    return Consumer(group, name_servers=world.name_servers, runtime=world.runtime, **options)


def start(consumer: Consumer, listener: Any) -> asyncio.Task[None]:
    """Let a running consumer serve the listener; the task ends when the consumer closes."""
    return asyncio.get_running_loop().create_task(consumer.run(listener))


@contextlib.asynccontextmanager
async def running(consumer: Consumer, listener: Any, topic: str = "t") -> AsyncIterator[Consumer]:
    """A consumer that serves the listener inside the block; at its end the listener's exception is raised."""
    consumer.subscribe(topic)
    async with consumer:
        task = start(consumer, listener)
        yield consumer
    await task


async def until(world: Any, condition: Any, seconds: float = 5.0) -> float:
    """Wait in virtual time until the condition holds; returns the seconds that this took."""
    begun = world.runtime.clock.monotonic()
    while not condition():
        passed = world.runtime.clock.monotonic() - begun
        assert passed < seconds, "the condition did not come true"
        await world.runtime.clock.sleep(0.01)
    return float(world.runtime.clock.monotonic() - begun)


async def never(command: Command) -> Command | None:
    """Never respond, like a broker that hangs."""
    await asyncio.Event().wait()
    return None
