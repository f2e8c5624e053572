"""Every change of a broker's tables, in order, in a form that another broker can apply.

A table reports each change to the feed within the call that makes it. Listeners get the live value, which is
enough to mark what has to be written to disk. Listeners that write or send changes make entries of them:
plain values with a sequence number and the place in the commit log that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeAlias

import msgspec

from orbitmq.auth import rules, users
from orbitmq.broker.last_changes import MAX_NUMBER, NONE, LastChanges
from orbitmq.broker.stamps import Age, Stamp, Stamps
from orbitmq.runtime.listeners import call_all
from orbitmq.wire.bodies.topic import DataVersion
from orbitmq.wire.errors import WireError

TOPICS = "topics"
GROUPS = "subscriptionGroup"
FORBIDDEN = "forbiddenReads"
OFFSETS = "consumerOffset"
RESETS = "pendingResets"
DELAYS = "delayOffset"
TIMERS = "timerProgress"
LOCKS = "queueLocks"
LOCKS_COMPLETE = "queueLocksComplete"
ESCAPED_HALVES = "escapedHalves"
ACTED = "actingTerm"
UNTOLD = "untoldSlaves"
REQUEST_MODES = "messageRequestMode"
REDRIVES = "redrives"
WRITERS = "writerFences"
QUOTAS = "quotas"
CONSUMER_FILTERS = "consumerFilter"
POPS = "popInFlight"
POP_DELIVERIES = "popDeliveries"
POP_ORDERS = "consumerOrderInfo"
QUEUE_ENDS = "queueEnds"
USERS = users.TABLE
ACLS = rules.TABLE

# Users with their secrets, and their rules: sent only over links that encrypt the frames of tables.
SECRET = frozenset({USERS, ACLS})
# Tables needed to find messages, read them and check rights. Ends of queues come after their topics.
METADATA = (TOPICS, GROUPS, FORBIDDEN, QUEUE_ENDS, USERS, ACLS)
# Tables of deliveries and consumption. The log alone cannot replace them: it lacks the messages that were
# delivered to other groups of brokers.
PROGRESS = (DELAYS, TIMERS, ESCAPED_HALVES, OFFSETS, POPS, POP_ORDERS)

Listener: TypeAlias = Callable[[str, str, object], object]


class FeedEntry(msgspec.Struct, frozen=True):
    """One change.

    Attributes:
        sequence: 1 for the first change since the start, then one more each.
        log_offset: the end of the commit log when the change was made; the change holds from there on.
        table: one of the names above.
        key: what changed in the table, in the table's own form.
        value: the new value in plain JSON types; ``None``: the key was removed.
        version: the table's data version after the change (state version, timestamp in ms, counter), ``None``
            for a table without one.
        stamp: when the key was last changed; left out of the line if the sender has none.
        changed: the number of the key's last change, for a table that records it
            (:mod:`orbitmq.broker.last_changes`).
    """

    sequence: int
    log_offset: int
    table: str
    key: str
    value: Any
    version: tuple[int, int, int] | None = None
    stamp: Stamp | msgspec.UnsetType = msgspec.UNSET
    changed: Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBER)] | msgspec.UnsetType = msgspec.UNSET

    def encode(self) -> bytes:
        """The entry as one line of JSON, without the line break."""
        return _encoder.encode(self)

    @staticmethod
    def decode(data: bytes) -> FeedEntry:
        """The entry that a line of JSON holds.

        Raises:
            ValueError: the line is not an entry.
        """
        return _decoder.decode(data)


# Errors that a table raises for a malformed key or value.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, WireError)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FeedEntry)


class Versioned(Protocol):
    """A table with a data version."""

    version: DataVersion


def number_of(entry: FeedEntry) -> int:
    """The number of a change (:mod:`orbitmq.broker.last_changes`); ``NONE``: the change has none."""
    return NONE if entry.changed is msgspec.UNSET else entry.changed


def stamp_of(entry: FeedEntry) -> Stamp | None:
    """The stamp of a change; ``None``: the sender had no stamp for the key."""
    return None if entry.stamp is msgspec.UNSET else entry.stamp


@dataclass(frozen=True, slots=True)
class FedTable:
    """The functions with which the feed reads and changes one table.

    Attributes:
        plain: turns a live value into plain JSON values, as the table's file holds them.
        apply: applies a change sent by another broker: a key and its plain value; ``None``: remove the key.
        versioned: the table, if it has a data version that follows its changes.
        items: all keys with their live values, to send the whole table; ``None``: the table is not sent.
        is_news: whether a serving broker applies a key and its plain value from a broker that acted as master
            meanwhile: only if that undoes none of its own changes; ``None``: it applies every change of a
            broker that led.
        whole: the table and key that a key is part of: a broker that has that key has all of its parts;
            ``None``: no key is part of another.
        restore: repeats a change that this broker made in an earlier run, so that the key has the value it
            had then; ``None``: ``apply`` does that.
        kept: turns plain values into the values of the journal, which ``restore`` accepts; ``None``: the
            journal holds the plain values.
        last: records when each key was changed: of two brokers' changes the later one counts; ``None``:
            nothing is recorded.
    """

    plain: Callable[[Any], Any]
    apply: Callable[[str, Any], object]
    versioned: Versioned | None = None
    items: Callable[[], Iterable[tuple[str, Any]]] | None = None
    is_news: Callable[[str, Any], bool] | None = None
    whole: Callable[[str], tuple[str, str]] | None = None
    restore: Callable[[str, Any], object] | None = None
    kept: Callable[[Any], Any] | None = None
    last: LastChanges | None = None


class ChangeFeed:
    """The changes of one broker's tables.

    Args:
        log_end: returns the present end of the commit log.

    Attributes:
        stamps: the stamps of the tables' keys; ``None``: stamps are not kept.
    """

    def __init__(self, log_end: Callable[[], int] = lambda: 0) -> None:
        self.stamps: Stamps | None = None
        self._log_end = log_end
        self._tables: dict[str, FedTable] = {}
        self._listeners: list[Listener] = []
        self.sequence = 0

    def register(self, name: str, table: FedTable) -> None:
        """Register a table: how the changes under ``name`` are encoded and applied."""
        self._tables[name] = table

    def tables(self) -> dict[str, FedTable]:
        """The registered tables, by name."""
        return dict(self._tables)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(table, key, value)`` on every change; returns the function that unsubscribes it.

        ``value`` is live; ``None``: the key is gone.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self, table: str, key: str, value: object) -> None:
        """Report that ``key`` of ``table`` has the new ``value`` (``None``: it was removed).

        Raises:
            Exception: the first failure of a listener, after all listeners were called.
        """
        self.sequence += 1
        if self.stamps is not None:
            self.stamps.changed(table, key)
        call_all(self._listeners, table, key, value)

    def entry(self, sequence: int, table: str, key: str, value: object) -> FeedEntry:
        """The entry of a change, with the present version of its table."""
        known = self._tables[table]
        version = None
        if known.versioned is not None:
            now = known.versioned.version
            version = (now.state_version, now.timestamp, now.counter)
        plain = None if value is None else known.plain(value)
        stamp = None if self.stamps is None else self.stamps.of(table, key)
        number = NONE if known.last is None else known.last.of(table, key, deleted=value is None)
        return FeedEntry(
            sequence,
            self._log_end(),
            table,
            key,
            plain,
            version,
            stamp or msgspec.UNSET,
            number or msgspec.UNSET,
        )

    def kept_entry(self, sequence: int, table: str, key: str, value: object) -> FeedEntry:
        """The entry of a change, with its value in the form that the journal holds."""
        entry, kept = self.entry(sequence, table, key, value), self._tables[table].kept
        if kept is None or entry.value is None:
            return entry
        return msgspec.structs.replace(entry, value=kept(entry.value))

    def travels(self, table: str) -> bool:
        """Whether a table's changes are sent to other brokers."""
        known = self._tables.get(table)
        return known is not None and known.items is not None

    def has_rule(self, table: str) -> bool:
        """Whether a table has the rule ``is_news`` (:class:`FedTable`)."""
        known = self._tables.get(table)
        return known is not None and known.is_news is not None

    def is_news(self, entry: FeedEntry, *, led: bool = True) -> bool:
        """Whether a serving broker applies a change of a broker that acted as master meanwhile.

        Args:
            led: whether that broker may have changed tables since. If not, its entries are those of this
                broker or older ones; only a table with a rule or a data version shows which.
        """
        known = self._tables.get(entry.table)
        if known is None:
            return True
        if known.is_news is None:
            return led or known.versioned is not None
        try:
            return known.is_news(entry.key, entry.value)
        except _MALFORMED:
            return True  # applying the change reports what is wrong with it

    @property
    def forgotten(self) -> int:
        """The highest number of a deletion that a table has recorded and forgotten."""
        records = (table.last for table in self._tables.values())
        return max((last.forgotten for last in records if last is not None), default=NONE)

    def age(self, entry: FeedEntry) -> Age | None:
        """How a received change compares with this broker's last change of the key; ``None``: its table does
        not record changes."""
        known = self._tables.get(entry.table)
        if known is None or known.last is None:
            return None
        return known.last.age(entry.table, entry.key, number_of(entry))

    def apply(self, entry: FeedEntry) -> None:
        """Make a change that another broker has made. Listeners get it like a change of this broker.

        Raises:
            ValueError: no table of that name is registered, or key and value are not of its form.
        """
        self._make(entry, own=False)

    def restore(self, entry: FeedEntry) -> None:
        """Make a change that this broker has made in an earlier run. Listeners get it once more.

        Raises:
            ValueError: as for :meth:`apply`.
        """
        self._make(entry, own=True)

    def _make(self, entry: FeedEntry, *, own: bool) -> None:
        known = self._tables.get(entry.table)
        if known is None:
            raise ValueError(f"change {entry.sequence}: this broker has no table {entry.table}")
        make = known.restore if own and known.restore is not None else known.apply
        try:
            with ExitStack() as context:
                if known.last is not None:
                    context.enter_context(known.last.receiving(number_of(entry)))
                if self.stamps is not None:
                    context.enter_context(self.stamps.receiving(stamp_of(entry)))
                make(entry.key, entry.value)
        except _MALFORMED as error:
            raise ValueError(f"change {entry.sequence} of {entry.table} {entry.key!r}: {error!r}") from error
        if entry.version is not None and known.versioned is not None:
            known.versioned.version = DataVersion(*entry.version)
