"""Decides for how long nothing is read from a client that is over its quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from orbitmq.wire.bodies.quota import Quota

# Use beyond a quota is paid back by waiting, up to this many seconds; the rest is forgiven.
MOST_S: Final = 60.0


class Key(NamedTuple):
    """The subject of a quota: ``user``, ``address`` or ``topic``, and its name."""

    kind: str
    name: str


class Bucket:
    """A rate in units a second; the units of one second may be used at once.

    Args:
        rate: units a second; 0: any number.
        now: seconds, of any clock that only goes forward.
    """

    __slots__ = ("_left", "_rate", "_seen")

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._left = float(rate)
        self._seen = now

    def take(self, now: float, units: int) -> float:
        """Use units; returns how many seconds to wait afterwards, 0: none."""
        rate = self._rate
        if not rate:
            return 0.0
        self._left = min(float(rate), self._left + (now - self._seen) * rate) - units
        self._seen = now
        if self._left >= 0:
            return 0.0
        self._left = max(self._left, -MOST_S * rate)
        return -self._left / rate


@dataclass(slots=True)
class PauseCounts:
    """How often clients were made to wait for a quota, and how long in all."""

    pauses: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Kept:
    """A quota with what is left of it.

    Attributes:
        inward, outward: the buckets of bytes and of messages, for requests and for answers.
        counted: the pauses because of requests, and those because of answers.
    """

    quota: Quota
    inward: tuple[Bucket, Bucket]
    outward: tuple[Bucket, Bucket]
    counted: tuple[PauseCounts, PauseCounts] = field(default_factory=lambda: (PauseCounts(), PauseCounts()))


def kept(quota: Quota, now: float) -> Kept:
    """A new quota, completely unused."""
    return Kept(
        quota,
        (Bucket(quota.bytes_in, now), Bucket(quota.messages_in, now)),
        (Bucket(quota.bytes_out, now), Bucket(quota.messages_out, now)),
    )


class Quotas:
    """The quotas of one broker."""

    def __init__(self) -> None:
        self._kept: dict[Key, Kept] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Key) -> bool:
        return key in self._kept

    def all(self) -> Mapping[Key, Kept]:
        """The quotas; not a copy."""
        return self._kept

    def topics(self) -> frozenset[str]:
        """The topics that have a quota."""
        return frozenset(name for kind, name in self._kept if kind == "topic")

    def set(self, key: Key, quota: Quota | None, now: float) -> None:
        """Set a quota, or remove it (``None``)."""
        if quota is None:
            self._kept.pop(key, None)
            return
        before = self._kept.get(key)
        self._kept[key] = kept(quota, now)
        if before is not None:
            self._kept[key].counted = before.counted

    def take(self, key: Key, now: float, size: int, messages: int, *, out: bool) -> float:
        """Count bytes and messages from or to a client; returns for how long not to read from it."""
        found = self._kept.get(key)
        if found is None:
            return 0.0
        size_bucket, number_bucket = found.outward if out else found.inward
        wait = max(size_bucket.take(now, size), number_bucket.take(now, messages))
        if wait > 0:
            counted = found.counted[out]
            counted.pauses += 1
        return wait

    def waited(self, key: Key, seconds: float, *, out: bool) -> None:
        """Count a pause in which nothing was read from a client."""
        found = self._kept.get(key)
        if found is not None:
            found.counted[out].seconds += seconds
