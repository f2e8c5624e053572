"""Compares the entries that brokers accept from each other's tables with what stamps say (decision 31,
proposed).

The brokers decide as without it. A difference counts only if the two values differ. Stamps of values that
were read from table files come from the run's memory: a file for them is the second half of the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from orbitmq.broker.change_feed import (
    DELAYS,
    LOCKS,
    OFFSETS,
    QUEUE_ENDS,
    TIMERS,
    ChangeFeed,
    FeedEntry,
    stamp_of,
)
from orbitmq.broker.events import TablesRead
from orbitmq.broker.extension import Attachment, Extension, Host
from orbitmq.broker.role import LEADING, TAKES_MESSAGES
from orbitmq.broker.stamps import Age, Stamp, Stamps, age
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.replication.state.frames import Changes
from orbitmq.replication.state.merge_rules import takes_nothing

MOST_TEXT = 90
_GONE = b"null"
_LED = LEADING | TAKES_MESSAGES
# Tables that merge two values, of which neither, or both, are from a leader's last change.
_UNDO_NOTHING = frozenset({DELAYS, TIMERS, QUEUE_ENDS})
_JOINED = _UNDO_NOTHING | {OFFSETS}


@dataclass(frozen=True, slots=True)
class Difference:
    """The decisions of one kind about one table that differ.

    Attributes:
        kind: the decision, and what stamps say.
        seed: the first seed with such a decision; ``example`` is the first decision there.
        count: number of decisions, in ``seeds`` seeds.
    """

    table: str
    kind: str
    seed: int
    example: str
    count: int = 1
    seeds: int = 1


def all_of(differences: Iterable[Difference]) -> list[Difference]:
    """The differences of many seeds, each kind of each table once."""
    total: dict[tuple[str, str], Difference] = {}
    for one in differences:
        place = one.table, one.kind
        known = total.get(place)
        if known is not None:
            first = min(known, one, key=lambda difference: difference.seed)
            one = replace(first, count=known.count + one.count, seeds=known.seeds + one.seeds)
        total[place] = one
    return [total[place] for place in sorted(total)]


def lines_of(differences: Iterable[Difference]) -> Iterator[str]:
    """The differences as lines of a table."""
    yield f"{'table':<20}{'decision':<52}{'count':>8}{'seeds':>7}{'first':>12}  example"
    for one in differences:
        yield f"{one.table:<20}{one.kind:<52}{one.count:>8}{one.seeds:>7}{one.seed:>12}  {one.example}"


@dataclass
class _Machine:
    """The stamps that one broker's disk would hold.

    Attributes:
        stamps: by table and key, the last stamp of each value that the broker had.
        gone: keys that were deleted, and the sequence of that change in this run of the broker.
    """

    feed: ChangeFeed
    stamps: dict[tuple[str, str], dict[bytes, Stamp]] = field(default_factory=dict)
    gone: dict[tuple[str, str], int] = field(default_factory=dict)


class Shadow:
    """The comparison for all brokers of one run.

    Args:
        names: the name of the broker on each host.
    """

    def __init__(self, seed: int, names: Mapping[str, str]) -> None:
        self._seed = seed
        self._names = names
        self._machines: dict[str, _Machine] = {}
        self._found: dict[tuple[str, str], Difference] = {}

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences of this run."""
        return tuple(self._found.values())

    def extension(self, name: str) -> Extension:
        """The extension that gives a broker its stamps, and observes its decisions."""

        def attach(host: Host) -> Attachment:
            s = host.services
            files, folder = s.runtime.files, f"{s.config.store_path_root_dir}/config"
            before = self._machines.get(name)
            known = {} if before is None or not files.exists(folder) else before.stamps
            machine = self._machines[name] = _Machine(s.feed, known)
            s.feed.stamps = Stamps(lambda: s.role.role in _LED)
            s.feed.subscribe(lambda table, key, value: _remember(machine, table, key, value))
            s.events.subscribe(TablesRead, lambda _event: _recall(machine))
            host.offered(StateExchange).shadow = _OfBroker(self, name, s.feed)
            return Attachment()

        return attach

    def stamp_at(self, address: str, table: str, key: str) -> Stamp | None:
        """The stamp of a key at the broker at an address."""
        machine = self._machines.get(self._names.get(address.rpartition(":")[0], ""))
        stamps = None if machine is None else machine.feed.stamps
        return None if stamps is None else stamps.of(table, key)

    def tell_deletions(self, address: str, sequence: int, feed: ChangeFeed) -> None:
        """Give a broker the stamps of another broker's deletions, as a copy of the tables would.

        Args:
            sequence: the last of the other broker's changes to include.
        """
        machine = self._machines.get(self._names.get(address.rpartition(":")[0], ""))
        if machine is None or machine.feed.stamps is None or feed.stamps is None:
            return
        here = {table: _values(feed, table) for table in feed.tables()}
        for (table, key), deleted in machine.gone.items():
            stamp = machine.feed.stamps.of(table, key)
            if stamp is None or deleted > sequence or key in here.get(table, ()):
                continue
            if age(stamp, feed.stamps.of(table, key)) is Age.NEWER:
                feed.stamps.keep(table, key, stamp)

    def note(self, table: str, kind: str, example: str) -> None:
        """Record a decision that differs."""
        known = self._found.get((table, kind))
        one = Difference(table, kind, self._seed, example)
        self._found[table, kind] = one if known is None else replace(known, count=known.count + 1)


class _OfBroker:
    """The decisions of one broker."""

    def __init__(self, shadow: Shadow, name: str, feed: ChangeFeed) -> None:
        self._shadow = shadow
        self._name = name
        self._feed = feed

    def accepting(
        self, address: str, frame: Changes, accepts: Callable[[FeedEntry], bool]
    ) -> Callable[[FeedEntry], bool]:
        """See ``state.shadow``."""
        here: dict[str, dict[str, bytes]] = {}
        way = "asked" if frame.asked else "led"
        put_off = accepts is takes_nothing
        if frame.ends and not put_off:
            self._shadow.tell_deletions(address, frame.sequence, self._feed)

        def compared(entry: FeedEntry) -> bool:
            takes = accepts(entry)
            if entry.table not in here:
                here[entry.table] = _values(self._feed, entry.table)
            ours, theirs = here[entry.table].get(entry.key, _GONE), _encoded(entry.table, entry.value)
            if ours == theirs:
                return takes
            stamp, told = self._stamp(entry.table, entry.key), stamp_of(entry)
            how = age(told, stamp)
            joined = entry.table in _JOINED and entry.value is not None
            if joined and (told is None or stamp is None or how is Age.SAME):
                if takes and entry.table in _UNDO_NOTHING:
                    return takes
                how = Age.NEWER if self._feed.is_news(entry, led=False) else Age.OLDER
            if kind := difference(takes, how, put_off=put_off):
                text = f"{self._name} {entry.key}: {_text(stamp, ours)}, told {_text(told, theirs)}"
                self._shadow.note(entry.table, f"{way}: {kind}{unstamped(told, stamp)}", text)
            return takes

        return compared

    def removing(self, address: str, table: str, key: str) -> Stamp | None:
        """See ``state.shadow``."""
        stamp, there = self._stamp(table, key), self._shadow.stamp_at(address, table, key)
        if stamp is not None and age(there, stamp) is not Age.NEWER:
            kind = "removed, unknown to the sender" if there is None else "removed, not newer there"
            text = f"{self._name} {key}: {_text(stamp, b'')}, there {_text(there, b'')}"
            self._shadow.note(table, kind, text)
        return there

    def _stamp(self, table: str, key: str) -> Stamp | None:
        return None if self._feed.stamps is None else self._feed.stamps.of(table, key)


def difference(takes: bool, how: Age, *, put_off: bool) -> str:
    """The difference of a decision about a differing value, in words; empty if there is none.

    Args:
        put_off: nothing of the frame was accepted: the sender will send everything again, or its term is
            older.
    """
    if takes:
        return {Age.NEWER: "", Age.OLDER: "taken, though older", Age.SAME: "taken, of the same stamp"}[how]
    if how is Age.NEWER:
        return "newer, but its frame was not taken" if put_off else "not taken, though newer"
    return "not taken, of the same stamp" if how is Age.SAME and not put_off else ""


def unstamped(told: Stamp | None, here: Stamp | None) -> str:
    """Which of two differing values has no stamp."""
    if told is None:
        return " (neither stamped)" if here is None else " (theirs not stamped)"
    return " (ours not stamped)" if here is None else ""


def _encoded(table: str, plain: Any) -> bytes:
    """A value in the form for comparison; of a lock only its client, since a lock's age grows by itself."""
    return msgspec.json.encode(plain[0] if table == LOCKS and plain is not None else plain)


def _values(feed: ChangeFeed, table: str) -> dict[str, bytes]:
    known = feed.tables().get(table)
    if known is None or known.items is None:
        return {}
    return {key: _encoded(table, known.plain(value)) for key, value in known.items()}


def _text(stamp: Stamp | None, value: bytes) -> str:
    text = value.decode()
    short = text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."
    return f"{short} ({'no stamp' if stamp is None else f'{stamp.term}.{stamp.number}'})".strip()


def _remember(machine: _Machine, table: str, key: str, value: object) -> None:
    feed = machine.feed
    if not feed.travels(table) or feed.stamps is None:
        return
    stamp = feed.stamps.of(table, key)
    plain = None if value is None else feed.tables()[table].plain(value)
    if value is None:
        machine.gone[table, key] = feed.sequence
    else:
        machine.gone.pop((table, key), None)
    values = machine.stamps.setdefault((table, key), {})
    if stamp is None:
        values.pop(_encoded(table, plain), None)
    else:
        values[_encoded(table, plain)] = stamp


def _recall(machine: _Machine) -> None:
    """Give values that were read from the disk the stamps that they had when they were written."""
    feed = machine.feed
    if feed.stamps is None:
        return
    # Timers read their file at the first look, which must not come before the queues are known.
    read = {table: _values(feed, table) for table in feed.tables() if table != TIMERS}
    for (table, key), values in machine.stamps.items():
        if table not in read:
            continue
        value = read[table].get(key, _GONE)
        stamp = values.get(value)
        if value == _GONE and stamp is not None:
            machine.gone[table, key] = 0
        if stamp is not None and feed.stamps.of(table, key) is None:
            feed.stamps.keep(table, key, stamp)
