"""A prompt at the terminal: the inputs that end it."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import sys

import pytest

from orbitmq.cli.app import confirm, run_async
from orbitmq.cli.failures import UsageError


class CtrlCAtOnce(io.StringIO):
    """Standard error on which Ctrl-C is pressed as soon as the prompt is written."""

    def write(self, text: str) -> int:
        if text:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> int:
    """The end of a terminal at which keys are typed; the other end is standard input."""
    keys, terminal = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(terminal))
    return keys


def test_ctrl_c_ends_a_question_however_early_it_is_pressed(
    keyboard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the prompt and the wait for the answer must not be lost."""
    monkeypatch.setattr(sys, "stderr", CtrlCAtOnce())
    os.write(keyboard, b"n\n")
    with pytest.raises(KeyboardInterrupt):
        run_async(confirm("Delete", "orders", yes=False))


def test_other_work_goes_on_while_the_question_waits(keyboard: int) -> None:
    async def asked() -> None:
        question = asyncio.create_task(confirm("Delete", "orders", yes=False))
        await asyncio.sleep(0)
        os.write(keyboard, b"YES \n")
        await question

    run_async(asked())


def test_the_end_of_the_input_is_a_no(keyboard: int) -> None:
    os.write(keyboard, b"\x04")
    with pytest.raises(UsageError, match="not done"):
        run_async(confirm("Delete", "orders", yes=False))
