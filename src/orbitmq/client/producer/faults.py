"""The brokers that a producer avoids for a while because they were slow or failed (MQFaultStrategy).

Named profiles: ``4.x`` isolates long and lets a fast success end an isolation; ``4.7`` is ``4.x`` with
retries that prefer the broker just tried, as in RocketMQ up to 4.7.1; ``5.x`` isolates briefly, never
shortens, and keeps a reachable flag that a detector may restore.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """Numbers and rules of one generation of RocketMQ's clients.

    Attributes:
        latency_max_ms, not_available_ms: two columns of a table: a broker whose latency reaches a value of
            the first column is avoided for the time in the second; the last such row counts.
        isolation_ms: the latency that is assumed for a failed attempt.
        only_forward: an update never shortens an isolation (FT-08); else the newest update counts (FT-07).
        uses_reachable: the second choice is an isolated but reachable broker (FT-16).
        missing_master_isolates: an attempt at a broker without a master in the route isolates the broker
            (FT-10); else only its latency is noted.
        retry_prefers_last: a retry takes an available queue only from the broker just tried (FT-14).
    """

    name: str
    latency_max_ms: tuple[int, ...]
    not_available_ms: tuple[int, ...]
    isolation_ms: int
    only_forward: bool
    uses_reachable: bool
    missing_master_isolates: bool
    retry_prefers_last: bool = False

    def not_available_for(self, latency_ms: float) -> int:
        """How long a broker with this latency is avoided, in milliseconds (FT-04)."""
        for limit, duration in zip(
            reversed(self.latency_max_ms), reversed(self.not_available_ms), strict=True
        ):
            if latency_ms >= limit:
                return duration
        return 0


PROFILE_4X = FaultProfile(
    "4.x",
    (50, 100, 550, 1000, 2000, 3000, 15000),
    (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
    isolation_ms=30_000,
    only_forward=False,
    uses_reachable=False,
    missing_master_isolates=True,
)
PROFILE_4_7 = replace(PROFILE_4X, name="4.7", retry_prefers_last=True)
PROFILE_5X = FaultProfile(
    "5.x",
    (50, 100, 550, 1800, 3000, 5000, 15000),
    (0, 0, 2000, 5000, 6000, 10_000, 30_000),
    isolation_ms=10_000,
    only_forward=True,
    uses_reachable=True,
    missing_master_isolates=False,
)
# How often the detector probes a broker (FT-28).
PROBE_INTERVAL_MS = 2000
PROFILES = {profile.name: profile for profile in (PROFILE_4_7, PROFILE_4X, PROFILE_5X)}


@dataclass(frozen=True, slots=True)
class FaultItem:
    """A producer's record of one broker.

    Attributes:
        broker_name: the broker group.
        latency: duration of the last attempt in seconds, failed or not (FT-06).
        available_in: seconds for which the broker is still avoided, 0 when it is available.
        reachable: whether the last attempt or probe reached the broker.
    """

    broker_name: str
    latency: float
    available_in: float
    reachable: bool


@dataclass(slots=True)
class _Noted:
    """The table's entry of one broker.

    Attributes:
        latency_ms: the measured latency of the last attempt, failed or not (FT-06).
        start_ms: the time from which the broker counts as available again.
        reachable: whether the last attempt or probe reached the broker.
        check_ms: the time from which the detector may probe the broker again.
    """

    broker_name: str
    latency_ms: float
    start_ms: float
    reachable: bool = True
    check_ms: float = 0.0


class FaultTable:
    """The fault items of one producer. Times are milliseconds on one monotonic clock.

    Args:
        profile: one of :data:`PROFILES`: ``4.7``, ``4.x`` (up to RocketMQ 5.1.3) or ``5.x`` (from 5.1.4).
        random_source: breaks ties between equal items.
    """

    def __init__(self, profile: FaultProfile, random_source: random.Random) -> None:
        self.profile = profile
        self._random = random_source
        self._items: dict[str, _Noted] = {}
        self._picks = random_source.getrandbits(31)

    def update(
        self, broker_name: str, latency_ms: float, now_ms: float, *, isolation: bool, reachable: bool = True
    ) -> None:
        """Record one attempt.

        Args:
            latency_ms: the measured time.
            isolation: the attempt failed in a way that counts against the broker: the fixed pseudo latency of
                the profile decides the duration (FT-05).
        """
        judged = self.profile.isolation_ms if isolation else latency_ms
        duration = self.profile.not_available_for(judged)
        item = self._items.get(broker_name)
        if item is None:
            self._items[broker_name] = _Noted(broker_name, latency_ms, now_ms + duration, reachable)
            return
        item.latency_ms = latency_ms
        item.reachable = reachable
        if not self.profile.only_forward or (duration > 0 and now_ms + duration > item.start_ms):
            item.start_ms = now_ms + duration

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether the broker has no item, or its isolation is over (FT-09)."""
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.start_ms

    def is_reachable(self, broker_name: str) -> bool:
        item = self._items.get(broker_name)
        return item is None or item.reachable

    def remove(self, broker_name: str) -> None:
        self._items.pop(broker_name, None)

    def pick_one_at_least(self, now_ms: float) -> str | None:
        """A broker to use when every broker is to be avoided; None if the table is empty.

        ``4.x``: in turn from the better half, ordered by availability, latency, start (FT-18 to FT-20).
        ``5.x``: any reachable broker (FT-21).
        """
        items = list(self._items.values())
        self._random.shuffle(items)
        if self.profile.uses_reachable:
            return next((item.broker_name for item in items if item.reachable), None)
        if not items:
            return None
        items.sort(key=lambda item: (now_ms < item.start_ms, item.latency_ms, item.start_ms))
        half = len(items) // 2
        if half <= 0:
            return items[0].broker_name
        self._picks += 1
        return items[self._picks % half].broker_name

    def due_probes(self, now_ms: float) -> list[str]:
        """Brokers that the detector should probe now; each is due again after two seconds (FT-28)."""
        due = [item for item in self._items.values() if now_ms >= item.check_ms]
        for item in due:
            item.check_ms = now_ms + PROBE_INTERVAL_MS
        return [item.broker_name for item in due]

    def probed(self, broker_name: str, *, reachable: bool) -> None:
        """Record a probe; a broker that was removed meanwhile stays removed."""
        item = self._items.get(broker_name)
        if item is not None:
            item.reachable = reachable

    def snapshot(self, now_ms: float) -> list[FaultItem]:
        """All items, by name."""
        return [
            FaultItem(
                item.broker_name,
                item.latency_ms / 1000,
                max(0.0, item.start_ms - now_ms) / 1000,
                item.reachable,
            )
            for _, item in sorted(self._items.items())
        ]
