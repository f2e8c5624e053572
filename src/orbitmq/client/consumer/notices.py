"""What a consumer that pops knows of places without messages: questions that wait at their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from orbitmq.client.core.pop_calls import PopCalls, PopOptions
from orbitmq.runtime.seam import Clock

# Topic and broker.
Place: TypeAlias = tuple[str, str]


class Notices:
    """One question (NOTIFICATION) for each place that had nothing, answered as soon as it has something.

    A question outlives the call that asked it, up to that call's own deadline: what it waits at need not be
    asked meanwhile, and the broker does not keep one for each call. In order it does not: another attempt may
    take what is refused to this one.
    """

    def __init__(self, clock: Clock, pops: PopCalls, options: PopOptions) -> None:
        self._clock = clock
        self._pops = pops
        self._options = options
        self._waiting: dict[Place, asyncio.Task[bool]] = {}

    def __contains__(self, place: Place) -> bool:
        """Whether a question waits there: the place has nothing."""
        return place in self._waiting

    async def wait(
        self,
        places: Sequence[Place],
        deadline: float,
        attempt: str | None,
        *,
        beside: Iterable[asyncio.Future[Any]] = (),
    ) -> bool:
        """Return when one of the places has messages, or may have some, or at the deadline.

        Args:
            beside: also when one of these is done.

        Returns:
            Whether a broker says that it has.
        """
        wait_s = deadline - self._clock.monotonic()
        if wait_s <= 0:
            return False
        for place in places:
            if place not in self._waiting:
                self._ask(place, int(wait_s * 1000), attempt)
        try:
            tasks = [self._waiting[place] for place in places]
            await asyncio.wait([*tasks, *beside], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            return any(_has_messages(task) for task in tasks if task.done())
        finally:
            if self._options.ordered:
                for place in places:
                    self._cancel(place)

    def forget(self, topic: str) -> None:
        """Something else is wanted of a topic."""
        for place in list(self._waiting):
            if place[0] == topic:
                self._cancel(place)

    async def close(self) -> None:
        """Ask nothing any more."""
        tasks = list(self._waiting.values())
        for place in list(self._waiting):
            self._cancel(place)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, place: Place, wait_ms: int, attempt: str | None) -> None:
        topic, broker_name = place
        task = asyncio.ensure_future(self._pops.notice(self._options, topic, broker_name, wait_ms, attempt))
        self._waiting[place] = task
        task.add_done_callback(lambda ended: self._ended(place, ended))

    def _ended(self, place: Place, task: asyncio.Task[bool]) -> None:
        if self._waiting.get(place) is task:
            del self._waiting[place]
        _has_messages(task)  # what it failed with is seen

    def _cancel(self, place: Place) -> None:
        task = self._waiting.pop(place, None)
        if task is not None:
            task.cancel()


def _has_messages(task: asyncio.Task[bool]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result()
