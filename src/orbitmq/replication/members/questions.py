"""Numbered questions to other brokers: an answer counts from when its question was sent (no clock)."""

from __future__ import annotations

from collections import OrderedDict

# A question that is still unanswered after this many later ones counts no more.
MAX_QUESTIONS = 16


class Questions:
    """The questions that may still be answered."""

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
        """Ignore the answers to all questions asked until now."""
        self._asked.clear()
