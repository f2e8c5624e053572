"""Makes a page once for many viewers: each page is kept for a short time, and has one deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from orbitmq.admin import Admin, BrokerInfo, IncompleteError, LeftOut, Partial, TopicLag
from orbitmq.console.model import Page
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.transport.errors import TransportError
from orbitmq.wire.errors import WireError

DEADLINE_S: Final = 2.0
# The timeout of one request, shorter than the page's deadline, so that the page can name a silent server.
REQUEST_S: Final = 1.5
KEPT_S: Final = 2.0
MOST_KEPT: Final = 256
# The most pages that are being made at once; further ones wait, within their deadline.
MOST_AT_ONCE: Final = 16
Key = tuple[str, ...]
Status = Mapping[str, str]
T = TypeVar("T")


class _Kept(Generic[T]):
    """Values that are made once for all pages that need them, and kept for :data:`KEPT_S`.

    Args:
        monotonic: the clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # The values, each with the time at which it was true.
        self._kept: dict[Key, tuple[float, T]] = {}
        self._making: dict[Key, asyncio.Task[tuple[float, T]]] = {}

    async def get(self, key: Key, make: Callable[[], Awaitable[tuple[float, T]]]) -> tuple[float, T]:
        """The kept value of the key, or a new one, with the time at which it was true."""
        kept = self._kept.get(key)
        if kept is not None and self._monotonic() - kept[0] < KEPT_S:
            return kept
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.ensure_future(make())
            task.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(task)

    def _made(self, key: Key, task: asyncio.Task[tuple[float, T]]) -> None:
        # Reading the exception keeps asyncio from logging it if no page waits for it any more.
        failed = task.cancelled() or task.exception() is not None
        if self._making.get(key) is not task:
            return  # the value was begun before a change, which made it outdated
        del self._making[key]
        if failed:
            return
        self._kept.pop(key, None)
        self._kept[key] = task.result()
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def forget(self) -> None:
        """Forget all values, also those that are being made."""
        self._kept.clear()
        self._making.clear()


class Sight:
    """The answers of a cluster for one page. Answers that several pages need are requested once.

    Attributes:
        admin: the client for all other requests.
        since: when the oldest of the answers was true, in seconds of the clock.
    """

    def __init__(self, admin: Admin, monotonic: Callable[[], float], answers: _Kept[Any]) -> None:
        self.admin = admin
        self._monotonic, self._answers = monotonic, answers
        self.since = float("inf")

    async def _shared(self, name: str, ask: Callable[[], Awaitable[T]]) -> T:
        async def asked() -> tuple[float, T]:
            found = await ask()
            return self._monotonic(), found

        at, found = await self._answers.get((name,), asked)
        self.since = min(self.since, at)
        value: T = found
        return value

    async def statuses(self) -> Sequence[tuple[BrokerInfo, Status | OrbitError]]:
        """The runtime information of each live broker, or the error of the request for it."""
        return await self._shared("statuses", self._statuses)

    async def topic_lags(self) -> Partial[Sequence[TopicLag]]:
        """The lag of each group by topic and broker; empty when no broker answers."""
        return await self._shared("lags", lambda: optional(self.admin.groups.topic_lags(), ()))

    async def _statuses(self) -> Sequence[tuple[BrokerInfo, Status | OrbitError]]:
        async def one(broker: BrokerInfo) -> tuple[BrokerInfo, Status | OrbitError]:
            try:
                return broker, await self.admin.brokers.runtime(broker.address)
            except (BrokerError, TransportError, WireError) as error:
                return broker, error

        return await asyncio.gather(*map(one, await self.admin.brokers.list()))


class Asker:
    """Makes pages, and keeps each for :data:`KEPT_S`.

    Args:
        monotonic: the clock, in seconds.
    """

    def __init__(self, admin: Admin, monotonic: Callable[[], float]) -> None:
        self._admin = admin
        self._monotonic = monotonic
        self._pages = _Kept[Page](monotonic)
        self._answers = _Kept[Any](monotonic)
        self._line = asyncio.Semaphore(MOST_AT_ONCE)

    async def page(self, key: Key, make: Callable[[Sight], Awaitable[Page]]) -> Page:
        """The kept page of the key, or a new one. Requests for a key share the page that is being made."""
        _, page = await self._pages.get(key, lambda: self._make(key, make))
        return page

    async def _make(self, key: Key, make: Callable[[Sight], Awaitable[Page]]) -> tuple[float, Page]:
        sight = Sight(self._admin, self._monotonic, self._answers)
        try:
            async with asyncio.timeout(DEADLINE_S), self._line:
                page = await make(sight)
        except TimeoutError:
            page = Page(key[0], late=True)
        except IncompleteError as error:
            page = Page(key[0], left_out=names(error.left_out))
        # A page is as old as the oldest answer in it.
        return min(sight.since, self._monotonic()), page

    def forget(self) -> None:
        """Forget all pages and answers, after a change."""
        self._pages.forget()
        self._answers.forget()


async def optional(work: Awaitable[Partial[T]], nothing: T) -> Partial[T]:
    """An optional part of a page; if no broker gives it, ``nothing`` with the reason."""
    try:
        return await work
    except (BrokerError, TransportError, WireError) as error:
        address = error.address if isinstance(error, BrokerError) else ""
        return Partial(nothing, (LeftOut("a part of the page", address, str(error), error),))


def names(left_out: Sequence[LeftOut]) -> list[str]:
    """The servers that did not answer, with the reason, each once."""
    return list(dict.fromkeys(str(one) for one in left_out))
