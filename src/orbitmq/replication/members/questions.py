"""Numbered questions to other brokers: an answer counts from when its question was sent (no clock)."""

from __future__ import annotations

from collections import OrderedDict

# Of a question that was not answered before so many others nothing counts any more.
MAX_QUESTIONS = 16


class Questions:
    """Those that an answer may come to."""

    def __init__(self) -> None:
        self._number = 0
        self._asked: OrderedDict[int, float] = OrderedDict()

    def ask(self, now_s: float) -> int:
        """The number of a question that is sent now."""
        self._number += 1
        self._asked[self._number] = now_s
        if len(self._asked) > MAX_QUESTIONS:
            self._asked.popitem(last=False)
        return self._number

    def sent_s(self, number: int) -> float | None:
        """When a question was sent; ``None``: an answer to it gives nothing."""
        return self._asked.get(number)

    def withdraw(self) -> None:
        """Let no question of before count; each may be answered still."""
        self._asked.clear()
