"""Finds out which answers of a connection have arrived: the client acknowledges a PING sent behind them.

A client reads HTTP/2 in order, so its acknowledgement covers all that was sent before the PING. One PING of a
connection is under way at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

# A client that acknowledges no PING for this time counts as gone, like one that makes no call for it.
ARRIVED_SECONDS: Final = 40.0
# Answers that a client may leave unacknowledged; each further one counts as lost.
MAX_ANSWERS: Final = 10_000

# Called once: with True when the client has the whole answer, with False when the client may lack it.
Arrival: TypeAlias = Callable[[bool], None]


class Arrivals:
    """The answers of one connection whose arrival at the client is watched.

    Args:
        ping: sends a PING with this number, behind all frames sent so far.
        done: called when all answers are acknowledged or count as lost.
    """

    def __init__(self, ping: Callable[[int], None], done: Callable[[], None]) -> None:
        self._ping = ping
        self._done = done
        self._number = 0
        # By stream: the answers sent before the PING under way, and those sent after it.
        self._before: dict[int, Arrival] = {}
        self._behind: dict[int, Arrival] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._before) + len(self._behind)

    def add(self, stream: int, arrival: Arrival) -> None:
        """Watch the answer of a stream, all of which was sent."""
        if len(self) >= MAX_ANSWERS:
            arrival(False)
        elif self._before:
            self._behind[stream] = arrival
        else:
            self._before[stream] = arrival
            self._send()

    def acknowledged(self, number: int) -> None:
        """Handle the client's acknowledgement of a PING."""
        if number == self._number and self._before:
            self._end_all(arrived=True)

    def reset(self, stream: int) -> None:
        """Count the answer of a stream as lost: the client has reset the stream."""
        arrival = self._before.pop(stream, None) or self._behind.pop(stream, None)
        if arrival is None:
            return
        arrival(False)
        if not self._before:
            self._next()

    def end(self) -> None:
        """Count all answers as lost: the connection has ended."""
        self._before.update(self._behind)
        self._behind.clear()
        if self._before:
            self._end_all(arrived=False)

    # -- inside ----------------------------------------------------------------------------------------

    def _send(self) -> None:
        self._number += 1
        self._ping(self._number)
        self._timer = asyncio.get_running_loop().call_later(ARRIVED_SECONDS, self._end_all, False)

    def _end_all(self, arrived: bool) -> None:
        """Report all answers before the PING as arrived or lost."""
        ended = self._before
        self._before = {}
        self._next()
        for arrival in ended.values():
            arrival(arrived)

    def _next(self) -> None:
        """Send the next PING, behind the answers that were sent after the last one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._behind:
            self._before, self._behind = self._behind, {}
            self._send()
        else:
            self._done()
