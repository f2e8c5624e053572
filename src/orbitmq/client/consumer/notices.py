"""Long polling for places to pop from that have no messages: NOTIFICATION requests that wait at their
brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from orbitmq.client.core.pop_calls import PopCalls, PopOptions
from orbitmq.runtime.seam import Clock

# A place to pop from: topic and broker.
Place: TypeAlias = tuple[str, str]


class Notices:
    """One request (NOTIFICATION) for each empty place; its broker answers when the place has a message.

    A request outlives the call that sent it, up to that call's deadline: a later call uses it instead of
    sending one more. Ordered consumers do not use this class: for them an answer is valid for one attempt
    only.
    """

    def __init__(self, clock: Clock, pops: PopCalls, options: PopOptions) -> None:
        self._clock = clock
        self._pops = pops
        self._options = options
        self._waiting: dict[Place, asyncio.Task[bool]] = {}

    def __contains__(self, place: Place) -> bool:
        """Whether a request waits for this place, which means that the place is empty."""
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
            beside: tasks; the call also returns when one of them is done.

        Returns:
            Whether a broker has messages.
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
        """Drop the requests of a topic whose filter has changed."""
        for place in list(self._waiting):
            if place[0] == topic:
                self._cancel(place)

    async def close(self) -> None:
        """End all requests."""
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
        _has_messages(task)  # mark the error as retrieved, so that asyncio does not log it

    def _cancel(self, place: Place) -> None:
        task = self._waiting.pop(place, None)
        if task is not None:
            task.cancel()


def _has_messages(task: asyncio.Task[bool]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result()
