"""Answers of other servers that count for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import Background

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """What a server said, and how many seconds that counts; 0: it is not kept."""

    value: V
    seconds: float


class Remembered(Generic[V]):
    """Asks once for each key while an answer counts. All who want it at once wait for one answer.

    Args:
        most: answers that are kept; of more the oldest is forgotten.
    """

    def __init__(self, clock: Clock, background: Background, most: int) -> None:
        self._clock = clock
        self._background = background
        self._most = most
        self._kept: dict[str, tuple[V, float]] = {}
        self._asking: dict[str, asyncio.Task[V]] = {}

    async def get(self, key: str, ask: Callable[[], Coroutine[Any, Any, Answer[V]]]) -> V:
        """The answer that counts now; ``ask`` gets a new one."""
        kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() < kept[1]:
            return kept[0]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = self._background.spawn(self._asked(key, ask), "question")
        # One who goes away does not end the question of the others.
        return await asyncio.shield(task)

    def last(self, key: str) -> V | None:
        """The last answer that was kept, though it may not count any more."""
        kept = self._kept.get(key)
        return None if kept is None else kept[0]

    async def _asked(self, key: str, ask: Callable[[], Coroutine[Any, Any, Answer[V]]]) -> V:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._kept.pop(key, None)
        if answer.seconds:
            self._kept[key] = (answer.value, self._clock.monotonic() + answer.seconds)
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return answer.value
