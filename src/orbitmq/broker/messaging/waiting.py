"""Requests that wait for messages, by key, each with a deadline."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from orbitmq.broker.component import Component
from orbitmq.runtime.seam import Clock

log = logging.getLogger(__name__)

# Deadlines are rounded up to slots of this length: requests of one slot share one entry of the heap.
SLOT_MS = 100
MAX_WAIT_MS = 120_000


class HasDeadline(Protocol):
    """A request that waits."""

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        ...

    def expire(self) -> None:
        """Answer that no message arrived."""
        ...

    def is_of(self, user: str) -> bool:
        """Whether this user signed the request."""
        ...

    def recheck(self) -> None:
        """Refuse the request if its user has lost the right to it, else answer that no message arrived."""
        ...


K = TypeVar("K", bound=Hashable)
W = TypeVar("W", bound=HasDeadline)


@dataclass(slots=True, eq=False)
class Held(Generic[K, W]):
    """A waiting request and its deadlines.

    Attributes:
        ends: the slot of its deadline.
        retry_slot: the slot in which :meth:`Waiting.retry` is called for it; -1: none.
    """

    waiter: W
    key: K
    ends: int
    retry_slot: int = -1


class Waiting(Component, Generic[K, W]):
    """Requests that wait, by key, in the order in which they arrived.

    One task sleeps until the next deadline. While nothing ends, arrives or is parked, nothing runs.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._held: dict[K, dict[W, Held[K, W]]] = {}
        self._count = 0
        # Requests by the slot in which they are due. A slot stays until its time, even when it is empty.
        self._slots: dict[int, dict[Held[K, W], None]] = {}
        self._order: list[int] = []
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    async def start(self) -> None:
        self._spawn(self._run(), "time limits")

    async def stop(self) -> None:
        """Answer every request now."""
        await self.end_work()
        self.expire_all()

    # -- coming and going ------------------------------------------------------------------------------

    def hold(self, key: K, waiter: W, wait_ms: int) -> None:
        """Let ``waiter`` wait for ``wait_ms``, at most two minutes."""
        ends = self._slot(min(max(0, wait_ms), MAX_WAIT_MS))
        known = self._held.setdefault(key, {})
        if known:
            # Requests with equal keys share one key object.
            key = next(reversed(known.values())).key
        held = known[waiter] = Held(waiter, key, ends)
        self._count += 1
        self._note(ends, held)

    def retry_in(self, key: K, waiter: W, wait_ms: int) -> None:
        """Call :meth:`retry` for a waiter after ``wait_ms``, if it still waits. The last call counts."""
        held = self._held.get(key, {}).get(waiter)
        if held is None:
            return
        retry_slot = self._slot(max(0, wait_ms))
        if retry_slot != held.retry_slot:
            self._forget(held.retry_slot, held)
            held.retry_slot = -1
            if retry_slot < held.ends:
                held.retry_slot = retry_slot
                self._note(retry_slot, held)

    def at(self, key: K) -> list[Held[K, W]]:
        """The requests that wait for ``key``, the oldest first."""
        known = self._held.get(key)
        return [] if known is None else list(known.values())

    def find(self, key: K, waiter: W) -> Held[K, W] | None:
        """The request of this waiter that waits for ``key``."""
        return self._held.get(key, {}).get(waiter)

    def keys(self) -> list[K]:
        """The keys with waiting requests."""
        return list(self._held)

    def waits(self, held: Held[K, W]) -> bool:
        """Whether the request still waits."""
        return self._held.get(held.key, {}).get(held.waiter) is held

    def drop(self, held: Held[K, W]) -> None:
        """Remove a request that was answered, or whose client has left."""
        if not self.waits(held):
            return
        known = self._held[held.key]
        del known[held.waiter]
        self._count -= 1
        self._forget(held.ends, held)
        if held.retry_slot >= 0:
            self._forget(held.retry_slot, held)
        if not known:
            del self._held[held.key]
            self.on_last_removed(held.key)

    def expire(self, held: Held[K, W]) -> None:
        """Answer that no message arrived, if the request still waits."""
        self._end(held, held.waiter.expire)

    def _end(self, held: Held[K, W], answer: Callable[[], object]) -> None:
        waits = self.waits(held)
        self.drop(held)
        if waits and not held.waiter.gone:
            try:
                answer()
            except Exception:
                log.exception("%s: a request whose time was over got no answer", self.name)

    def expire_all(self) -> None:
        """Answer every request now, in the order of their deadlines."""
        everyone = [held for key in self.keys() for held in self.at(key)]
        for held in sorted(everyone, key=lambda one: one.ends):
            self.expire(held)

    def recheck_of(self, user: str) -> None:
        """Answer every request of a user now: the rights of the user have changed."""
        for key in self.keys():
            for held in self.at(key):
                if held.waiter.is_of(user):
                    self._end(held, held.waiter.recheck)

    # -- for subclasses --------------------------------------------------------------------------------

    def retry(self, held: Held[K, W]) -> None:
        """Called for a request at the time that :meth:`retry_in` has set."""

    def on_last_removed(self, key: K) -> None:
        """Called when the last request that waited for ``key`` was removed."""

    # -- time ------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _slot(self, wait_ms: int) -> int:
        return (self._now() + wait_ms) // SLOT_MS + 1

    def _note(self, slot: int, held: Held[K, W]) -> None:
        due = self._slots.get(slot)
        if due is None:
            due = self._slots[slot] = {}
            heapq.heappush(self._order, slot)
            if self._order[0] == slot:
                self._earlier.set()
        due[held] = None

    def _forget(self, slot: int, held: Held[K, W]) -> None:
        due = self._slots.get(slot)
        if due is not None:
            due.pop(held, None)

    async def _run(self) -> None:
        while True:
            self._earlier.clear()
            self.tick()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._next_s()):
                    await self._earlier.wait()

    def _next_s(self) -> float | None:
        """Seconds until the next slot is due; ``None``: there is no slot."""
        if not self._order:
            return None
        return max(0.001, self._order[0] * SLOT_MS / 1000 - self._clock.monotonic())

    def tick(self) -> None:
        """Answer the requests whose deadline has passed, and call :meth:`retry` for those that are due for
        it."""
        now = self._now() // SLOT_MS
        while self._order and self._order[0] <= now:
            slot = heapq.heappop(self._order)
            for held in list(self._slots.pop(slot)):
                if held.waiter.gone:
                    self.drop(held)
                elif held.ends <= slot:
                    self.expire(held)
                elif self.waits(held):
                    held.retry_slot = -1
                    self._retry_now(held)

    def _retry_now(self, held: Held[K, W]) -> None:
        try:
            self.retry(held)
        except Exception:
            log.exception("%s: a request could not look for messages", self.name)
