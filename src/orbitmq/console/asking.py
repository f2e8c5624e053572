"""Pages are asked for once by many viewers: each is kept for a while, and has one deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from orbitmq.admin import IncompleteError, LeftOut, Partial
from orbitmq.console.model import Page
from orbitmq.errors import BrokerError
from orbitmq.transport.errors import TransportError
from orbitmq.wire.errors import WireError

DEADLINE_S: Final = 2.0
# A server that is silent is named before the page's deadline.
REQUEST_S: Final = 1.5
KEPT_S: Final = 2.0
MOST_KEPT: Final = 256
# Most pages that are being made at once; more than that wait, within their deadline.
MOST_AT_ONCE: Final = 16
Key = tuple[str, ...]
T = TypeVar("T")


class Asker:
    """Makes pages, and keeps each for two seconds.

    Args:
        monotonic: the clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: dict[Key, tuple[float, Page]] = {}
        self._making: dict[Key, asyncio.Task[Page]] = {}
        self._line = asyncio.Semaphore(MOST_AT_ONCE)

    async def page(self, key: Key, make: Callable[[], Awaitable[Page]]) -> Page:
        """The page of that key: the kept one, or a new one. Viewers that ask meanwhile get the same."""
        kept = self._kept.get(key)
        if kept is not None and self._monotonic() - kept[0] < KEPT_S:
            return kept[1]
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.ensure_future(self._make(key, make))
            task.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(task)

    def _made(self, key: Key, task: asyncio.Task[Page]) -> None:
        self._making.pop(key, None)
        if not task.cancelled():
            task.exception()  # the viewers get it; without one that still waits it is not logged as forgotten

    async def _make(self, key: Key, make: Callable[[], Awaitable[Page]]) -> Page:
        try:
            async with asyncio.timeout(DEADLINE_S), self._line:
                page = await make()
        except TimeoutError:
            page = Page(key[0], late=True)
        except IncompleteError as error:
            page = Page(key[0], left_out=names(error.left_out))
        self._kept.pop(key, None)
        self._kept[key] = (self._monotonic(), page)
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return page

    def forget(self) -> None:
        """Keep no page any longer: something was changed."""
        self._kept.clear()


async def optional(work: Awaitable[Partial[T]], nothing: T) -> Partial[T]:
    """A part that a page can do without: when no broker gives it, ``nothing``, and the reason."""
    try:
        return await work
    except (BrokerError, TransportError, WireError) as error:
        address = error.address if isinstance(error, BrokerError) else ""
        return Partial(nothing, (LeftOut("a part of the page", address, str(error), error),))


def names(left_out: Sequence[LeftOut]) -> list[str]:
    """Servers that did not answer, with the reason, each once."""
    return list(dict.fromkeys(str(one) for one in left_out))
