"""Decides how long a client that is over its quota is not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from orbitmq.wire.bodies.quota import Quota

# What is used beyond a quota is paid back by waiting, up to so much of it: then the rest is forgiven.
MOST_S: Final = 60.0


class Key(NamedTuple):
    """What a quota is about: ``user``, ``address`` or ``topic``, and its name."""

    kind: str
    name: str


class Bucket:
    """So many units a second; a second's worth may come at once.

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
        """Use so many units; returns for how many seconds to wait after it, 0: not at all."""
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
class Counted:
    """How often clients were made to wait for a quota, and how long in all."""

    pauses: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Kept:
    """A quota with what is left of it.

    Attributes:
        inward, outward: bytes and messages each.
        counted: for what clients bring, and for what they take.
    """

    quota: Quota
    inward: tuple[Bucket, Bucket]
    outward: tuple[Bucket, Bucket]
    counted: tuple[Counted, Counted] = field(default_factory=lambda: (Counted(), Counted()))


def kept(quota: Quota, now: float) -> Kept:
    """A new quota, of which nothing is used."""
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
        """The topics that have one."""
        return frozenset(name for kind, name in self._kept if kind == "topic")

    def set(self, key: Key, quota: Quota | None, now: float) -> None:
        """Give a quota, change it, or remove it (``None``)."""
        if quota is None:
            self._kept.pop(key, None)
            return
        before = self._kept.get(key)
        self._kept[key] = kept(quota, now)
        if before is not None:
            self._kept[key].counted = before.counted

    def take(self, key: Key, now: float, size: int, messages: int, *, out: bool) -> float:
        """Bytes and messages came from a client, or went to it; returns for how long not to read it."""
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
        """A client was not read for so long."""
        found = self._kept.get(key)
        if found is not None:
            found.counted[out].seconds += seconds
