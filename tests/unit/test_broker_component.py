"""The walk through a broker's parts: in order at the start, backwards at the stop, by role in between."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.broker.component import Component, ComponentLifecycle
from orbitmq.broker.role import EVERY_ROLE, LEADING, Role
from orbitmq.testing.machine.simulated import run

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


class Part(Component):
    def __init__(self, name: str, seen: list[str], *, runs_as: frozenset[Role] = EVERY_ROLE) -> None:
        self.name = name
        self.runs_as = runs_as
        self.seen = seen
        self.error: Exception | None = None
        self.stop_takes_s = 0.0

    async def start(self) -> None:
        self.seen.append(f"+{self.name}")
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        await asyncio.sleep(self.stop_takes_s)
        await self.end_work()
        self.seen.append(f"-{self.name}")
        if self.error is not None:
            raise self.error


async def test_parts_start_in_order_and_stop_backwards() -> None:
    seen: list[str] = []

    lifecycle = ComponentLifecycle([Part(name, seen) for name in "abc"])
    await lifecycle.start(Role.MASTER)
    assert lifecycle.running == ("a", "b", "c")
    await lifecycle.stop()
    assert lifecycle.running == ()
    await lifecycle.stop()
    assert seen == ["+a", "+b", "+c", "-c", "-b", "-a"]


async def test_a_role_stops_and_starts_what_it_says() -> None:
    seen: list[str] = []

    parts = [
        Part("store", seen),
        Part("delay", seen, runs_as=LEADING),
        Part("copy", seen, runs_as=frozenset({Role.SLAVE})),
        Part("doors", seen),
    ]
    lifecycle = ComponentLifecycle(parts)
    await lifecycle.start(Role.SLAVE)
    assert lifecycle.running == ("store", "copy", "doors")
    seen.clear()
    await lifecycle.change_role(Role.ACTING_MASTER)
    assert seen == ["-copy", "+delay"]
    await lifecycle.change_role(Role.MASTER)
    assert seen == ["-copy", "+delay"]
    await lifecycle.change_role(Role.SLAVE)
    assert seen == ["-copy", "+delay", "-delay", "+copy"]
    seen.clear()
    await lifecycle.stop()
    assert seen == ["-doors", "-copy", "-store"]


async def test_what_started_in_part_is_stopped_too() -> None:
    seen: list[str] = []

    parts = [Part(name, seen) for name in "abc"]
    parts[1].error = OSError("no")
    lifecycle = ComponentLifecycle(parts)
    with pytest.raises(OSError, match="no"):
        await lifecycle.start(Role.MASTER)
    parts[1].error = None
    await lifecycle.stop()
    assert seen == ["+a", "+b", "-b", "-a"]


def test_a_part_that_does_not_stop_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def main() -> None:
        parts = [Part(name, seen) for name in "abcd"]
        lifecycle = ComponentLifecycle(parts)
        await lifecycle.start(Role.MASTER)
        seen.clear()
        parts[1].error = OSError("the disk is gone")
        parts[2].stop_takes_s = 3600.0
        parts[2].stop_limit_s = 5.0
        before = asyncio.get_running_loop().time()
        await lifecycle.stop()
        assert 5.0 <= asyncio.get_running_loop().time() - before <= 5.1

    with caplog.at_level(logging.ERROR):
        run(main())
    assert seen == ["-d", "-b", "-a"]
    assert "c did not stop within 5.0 s" in caplog.text
    assert "b did not stop cleanly" in caplog.text


async def test_work_of_a_part_ends_with_it_and_can_begin_again() -> None:
    seen: list[str] = []
    part = Part("a", seen)
    for _ in range(2):
        part._spawn(asyncio.sleep(3600), "sleep")
        await part.stop()
    assert len(asyncio.all_tasks()) == 2  # this task, and the one that limits its time
