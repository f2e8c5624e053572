"""What tests on real sockets share: the ``orbitmq`` command, run in this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from orbitmq.cli.main import main

LIMIT_S = 60.0
T = TypeVar("T")


def until(found: Callable[[], T]) -> T:
    """What ``found`` gives, as soon as that is true: indexes, heartbeats and processes take a moment."""
    deadline = time.monotonic() + LIMIT_S
    while not (result := found()):
        assert time.monotonic() < deadline, result
        time.sleep(0.05)
    return result


class Command:
    """Runs ``orbitmq`` with arguments and gives what it printed.

    Attributes:
        errors: what the last run printed to standard error.
    """

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.errors = ""

    def __call__(self, *arguments: str, code: int = 0, out: bool = False) -> str:
        """
        Args:
            code: the exit status that is expected. Other than 0, what it printed to standard error is given.
            out: give what it printed to standard output all the same.
        """
        self._capfd.readouterr()
        actual = main(arguments)
        sys.stdout.flush()
        printed, self.errors = self._capfd.readouterr()
        assert actual == code, self.errors
        assert "Traceback" not in self.errors
        return self.errors if code and not out else printed


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """The ``orbitmq`` command. It finds a cluster by NAMESRV_ADDR or ``--name-server``."""
    return Command(capfd)
