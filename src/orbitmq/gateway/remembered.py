"""A cache of other servers' answers, each kept for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import Background

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """A server's answer, and for how many seconds it is reused; 0 keeps no answer."""

    value: V
    seconds: float


Load: TypeAlias = Callable[[], Coroutine[Any, Any, Answer[V]]]
# How long an expired answer still serves while a new one is on its way.
RENEWAL_SECONDS: Final = 2.0


class Remembered(Generic[V]):
    """Keeps one answer for each key until it expires. Callers at the same time share one request.

    Args:
        most: the most answers that are kept; beyond this the oldest is forgotten.
    """

    def __init__(self, clock: Clock, background: Background, most: int) -> None:
        self._clock = clock
        self._background = background
        self._most = most
        self._kept: dict[str, tuple[V, float]] = {}
        self._loading: dict[str, asyncio.Task[V]] = {}
        # The keys of requests under way whose old answers still serve.
        self._renewed: set[str] = set()

    def at_hand(self, key: str, load: Load[V]) -> V | None:
        """The kept answer; None if there is none, or it has expired and no renewal is under way.

        The first call within :data:`RENEWAL_SECONDS` after the expiry starts a renewal. Until the new answer
        comes, the old one serves, so that none of ten thousand callers in that time has to wait.
        """
        kept = self._kept.get(key)
        late = 0.0 if kept is None else self._clock.monotonic() - kept[1]
        if kept is None or (late >= RENEWAL_SECONDS and key not in self._renewed):
            return None
        if late >= 0:
            self._shared_load(key, load)
            self._renewed.add(key)
        return kept[0]

    async def get(self, key: str, load: Load[V]) -> V:
        """The kept answer, or a new one from ``load`` when it has expired."""
        kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() < kept[1]:
            return kept[0]
        # A caller that is cancelled does not cancel the request, which other callers share.
        return await asyncio.shield(self._shared_load(key, load))

    def _shared_load(self, key: str, load: Load[V]) -> asyncio.Task[V]:
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = self._background.spawn(self._load(key, load), "question")
        return task

    def last(self, key: str) -> V | None:
        """The last kept answer, even if it has expired."""
        kept = self._kept.get(key)
        return None if kept is None else kept[0]

    async def _load(self, key: str, load: Load[V]) -> V:
        try:
            answer = await load()
        finally:
            del self._loading[key]
            self._renewed.discard(key)
        self._kept.pop(key, None)
        if answer.seconds:
            self._kept[key] = (answer.value, self._clock.monotonic() + answer.seconds)
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return answer.value
