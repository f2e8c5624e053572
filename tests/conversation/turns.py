"""Counts the calls in one turn of the event loop, a measure that does not depend on the machine's speed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from orbitmq.testing.machine.virtual_loop import VirtualLoop


class Turns:
    """Counts calls by turns of the loop.

    Args:
        owner, name: the object and the name of its function whose calls are counted.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.calls: Counter[int] = Counter()
        real: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **keywords: Any) -> Any:
            self.calls[cast(VirtualLoop, asyncio.get_running_loop()).iterations] += 1
            return real(*args, **keywords)

        monkeypatch.setattr(owner, name, counted)

    @property
    def longest(self) -> int:
        """The most calls in one turn."""
        return max(self.calls.values(), default=0)

    @property
    def total(self) -> int:
        return self.calls.total()
