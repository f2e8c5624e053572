"""What who follows a topic is told of its brokers."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.cli import peek as module
from orbitmq.cli.peek import Peek
from orbitmq.transport.errors import ConnectError


def test_a_loss_and_its_end_are_one_line_each_however_the_queues_answers_cross(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stops answers some of the pulls that it holds, and loses others, in no order."""
    monkeypatch.setattr(module, "RETRY_S", 0.01)

    async def main() -> None:
        peek = Peek("127.0.0.1:1")
        is_down, answers, loses = True, asyncio.Event(), asyncio.Event()

        async def pull() -> str:
            if is_down:
                raise ConnectError("it stopped")
            return "pulled"

        async def answered() -> str:
            await answers.wait()
            return "held"

        async def lost() -> str:
            if loses.is_set():
                return await pull()
            await loses.wait()
            raise ConnectError("it stopped")

        held = asyncio.ensure_future(peek._asked("b", True, answered))
        late = asyncio.ensure_future(peek._asked("b", True, lost))
        other = asyncio.ensure_future(peek._asked("b", True, pull))
        await asyncio.sleep(0.05)
        answers.set()
        assert await held == "held"
        await asyncio.sleep(0.05)
        is_down = False
        assert await other == "pulled"
        loses.set()
        assert await late == "pulled"

    asyncio.run(main())
    assert capsys.readouterr().err.splitlines() == ["b: it stopped; trying again", "b: answers again"]
