"""Which groups filter by SQL92 expressions, kept in ``config/consumerFilter.json`` (ConsumerFilterManager).

OrbitMQ's broker filters by the expressions in heartbeats and keeps the file for others: a Java broker that
opens the folder finds in it the expressions, and the places of each group in its bit maps
(``enableCalcFilterBitMap``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbitmq.broker.change_feed import CONSUMER_FILTERS, ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.events import Events, MembersChanged
from orbitmq.broker.metadata.pretty import file_text, pretty_value, quoted
from orbitmq.message.reserved import SQL92
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.client import SubscriptionData

CLEAN_AFTER_MS = 24 * 3600 * 1000  # filterDataCleanTimeSpan
# BloomFilter.createByFn(20, 32), RocketMQ's defaults: hash functions and bits.
BLOOM_HASHES = 3
BLOOM_BITS = 112
_MASK_64 = 0xFFFFFFFFFFFFFFFF
_SEPARATOR = "@"


class FilterTable(Component):
    """Follows the subscriptions of groups. An entry has plain values, as in the file."""

    name = "consumer filters"

    def __init__(self, clock: Clock, events: Events, feed: ChangeFeed) -> None:
        self._clock = clock
        self._feed = feed
        self._entries: dict[str, dict[str, dict[str, Any]]] = {}
        feed.register(CONSUMER_FILTERS, FedTable(dict, self._apply, items=self._items))
        events.subscribe(MembersChanged, self._members_changed)

    def tables(self) -> Sequence[Table]:
        return (Table(CONSUMER_FILTERS, self),)

    def get(self, topic: str, group: str) -> Mapping[str, Any] | None:
        """A group's filter, ``None``: it has none."""
        return self._entries.get(topic, {}).get(group)

    def _members_changed(self, event: MembersChanged) -> None:
        wanted = event.state.subscriptions if event.state is not None else {}
        for data in wanted.values():
            if data.expression_type == SQL92:
                self._alive(event.group, data)
        for topic in [topic for topic, groups in self._entries.items() if event.group in groups]:
            known = wanted.get(topic)
            if known is None or known.expression_type != SQL92:
                self._dead(topic, event.group)

    def _alive(self, group: str, data: SubscriptionData) -> None:
        known = self.get(data.topic, group)
        if known is not None and known["expression"] == data.sub_string:
            if known["deadTime"]:
                self._put(data.topic, group, {**known, "dead": False, "deadTime": 0})
            return
        entry = {
            "bloomFilterData": {"bitNum": BLOOM_BITS, "bitPos": bloom_places(f"{group}#{data.topic}")},
            "bornTime": self._clock.now_ms(),
            "clientVersion": data.sub_version,
            "consumerGroup": group,
            "dead": False,
            "deadTime": 0,
            "expression": data.sub_string,
            "expressionType": SQL92,
            "topic": data.topic,
        }
        self._put(data.topic, group, entry)

    def _dead(self, topic: str, group: str) -> None:
        entry = self._entries[topic][group]
        if not entry["deadTime"]:
            self._put(topic, group, {**entry, "dead": True, "deadTime": self._clock.now_ms()})

    def _put(self, topic: str, group: str, entry: dict[str, Any]) -> None:
        self._entries.setdefault(topic, {})[group] = entry
        self._feed.changed(CONSUMER_FILTERS, f"{topic}{_SEPARATOR}{group}", entry)

    def _items(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (f"{topic}{_SEPARATOR}{group}", entry)
            for topic, groups in self._entries.items()
            for group, entry in groups.items()
        ]

    def _apply(self, key: str, value: Mapping[str, Any] | None) -> None:
        if value is not None:
            self._put(str(value["topic"]), str(value["consumerGroup"]), dict(value))
            return
        topic, _, group = key.partition(_SEPARATOR)
        if self._entries.get(topic, {}).pop(group, None) is not None:
            self._feed.changed(CONSUMER_FILTERS, key, None)

    def _clean(self) -> None:
        """Forget groups that have been offline for a day."""
        oldest = self._clock.now_ms() - CLEAN_AFTER_MS
        for topic, groups in list(self._entries.items()):
            for group in [g for g, entry in groups.items() if 0 < entry["deadTime"] < oldest]:
                del groups[group]
            if not groups:
                del self._entries[topic]

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``consumerFilter.json``, piece by piece."""
        self._clean()
        entries = [
            (quoted(topic), pretty_value({"groupFilterData": groups, "topic": topic}, "\n\t\t"))
            for topic, groups in sorted(self._entries.items())
        ]
        return file_text([("filterDataByTopic", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``consumerFilter.json``; no client is online yet."""
        now = self._clock.now_ms()
        for topic, found in (content.get("filterDataByTopic") or {}).items():
            for group, entry in (found.get("groupFilterData") or {}).items():
                known = {"expression": "", "topic": topic, "consumerGroup": group, **entry}
                known |= {"dead": True, "deadTime": int(entry.get("deadTime") or 0) or now}
                self._entries.setdefault(topic, {})[group] = known


def bloom_places(text: str) -> list[int]:
    """The bits of a group in RocketMQ's bit maps (BloomFilter.calcBitPositions)."""
    hashed = murmur3_low(text.encode())
    first, second = _signed(hashed), _signed(hashed >> 32)
    places = []
    for i in range(1, BLOOM_HASHES + 1):
        combined = _signed(first + i * second)
        places.append((~combined if combined < 0 else combined) % BLOOM_BITS)
    return places


def _signed(value: int) -> int:
    """The low 32 bits as Java's int."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def murmur3_low(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, those of Guava's ``asLong``, unsigned."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mixed_1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DCE729 & _MASK_64
        h2 ^= _mixed_2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x38495AB5 & _MASK_64
    tail = data[whole:].ljust(16, b"\0")
    h1 ^= _mixed_1(int.from_bytes(tail[:8], "little"))
    h2 ^= _mixed_2(int.from_bytes(tail[8:], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    return _final(h1) + _final(h2) & _MASK_64


def _rotated(value: int, by: int) -> int:
    value &= _MASK_64
    return (value << by | value >> (64 - by)) & _MASK_64


def _mixed_1(k: int) -> int:
    return _rotated(k * 0x87C37B91114253D5, 31) * 0x4CF5AD432745937F & _MASK_64


def _mixed_2(k: int) -> int:
    return _rotated(k * 0x4CF5AD432745937F, 33) * 0x87C37B91114253D5 & _MASK_64


def _final(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return k ^ k >> 33
