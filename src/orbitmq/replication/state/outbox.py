"""The sending side: the changes, and which of them still have to be sent over one link (no I/O)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from orbitmq.broker.change_feed import SECRET, ChangeFeed, FeedEntry
from orbitmq.replication.state.frames import Ack, Changes, encode

MAX_ENTRIES = 500
# A frame is longer only when it has a single entry; the link takes up to 4 MiB.
FRAME_BYTES = 1 << 20
# How many frames of whole tables a link may have sent without an acknowledgement.
WINDOW = 8


class Outbox:
    """Changes that no frame contains yet: the last one of each key, in the order of these last changes."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._changed: dict[tuple[str, str], object] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def note(self, table: str, key: str, value: object) -> None:
        """Note that ``key`` has changed; ``value`` is the live object, ``None``: the key is gone."""
        place = (table, key)
        self._changed.pop(place, None)
        self._changed[place] = value

    def take(self) -> list[FeedEntry]:
        """All waiting changes, as entries for the present end of the log."""
        changed, self._changed = self._changed, {}
        sequence = self._feed.sequence
        return [self._feed.entry(sequence, table, key, value) for (table, key), value in changed.items()]


def everything(feed: ChangeFeed, *, recorded: bool = False) -> Iterator[FeedEntry]:
    """All that the tables hold, read step by step while the iterator goes on.

    Most tables give a list of their content when their turn comes. A later change is sent at once as a
    separate change, so the list must not send that key again with its former value. Deletions that a table
    records belong to its content.

    Args:
        recorded: whether to read only the tables that record when a key was changed.
    """
    changed: dict[tuple[str, str], object] = {}
    end = feed.subscribe(lambda table, key, value: changed.__setitem__((table, key), value))
    try:
        for name, table in feed.tables().items():
            if table.items is not None and (table.last is not None or not recorded):
                for key, listed in table.items():
                    value = changed.get((name, key), listed)
                    if value is not None:
                        yield feed.entry(feed.sequence, name, key, value)
            if table.last is not None:
                for key in table.last.deleted(name):
                    if (name, key) not in changed:
                        yield feed.entry(feed.sequence, name, key, None)
    finally:
        end()


class SendingLink:
    """Which changes of the tables one follower has been sent.

    Args:
        sealed: whether users and rules may be sent to the follower.

    Attributes:
        number: of the last frame made for the follower.
        received: number of the last frame that the follower has received.
        applied: the sequence up to which the follower has made the changes.
        sent: the sequence up to which frames were made for the follower.
        full_sends: how many tasks send the follower the whole tables, or wait to do so.
        turn: the lock of these tasks: one sends at a time.
    """

    def __init__(self, *, sealed: bool) -> None:
        self._sealed = sealed
        self.number = 0
        self.received = 0
        self.applied = 0
        self.sent = 0
        self.full_sends = 0
        self.turn = asyncio.Lock()
        self._looked_at = 0

    @property
    def waits(self) -> bool:
        """Whether the follower has not made all changes yet."""
        return self.full_sends > 0 or self.applied < self.sent

    @property
    def is_owed(self) -> bool:
        """Whether the follower has not acknowledged the last frame."""
        return self.received < self.number

    def is_stuck(self) -> bool:
        """Whether a frame sent before the previous call is still not acknowledged."""
        stuck = self.received < self._looked_at
        self._looked_at = self.number
        return stuck

    @property
    def has_room(self) -> bool:
        """Whether more of the tables may be sent."""
        return self.number - self.received < WINDOW

    def frames(
        self,
        term: int,
        sequence: int,
        entries: list[FeedEntry],
        *,
        begins: bool = False,
        ends: bool = False,
        asked: bool = False,
        acted_in: int = 0,
        anew: bool = False,
        locks_in_s: float | None = None,
        forgotten: int = 0,
    ) -> Iterator[bytes]:
        """The payloads of the next frames with these entries; one at least."""
        if not self._sealed:
            entries = [entry for entry in entries if entry.table not in SECRET]
        sent = max(self.sent, sequence)
        frame = Changes(
            self.number + 1, term, sent, entries, begins, ends, asked, locks_in_s, acted_in, anew, forgotten
        )
        payload = encode(frame)
        if len(entries) > 1 and (len(entries) > MAX_ENTRIES or len(payload) > FRAME_BYTES):
            half = len(entries) // 2
            yield from self.frames(
                term, self.sent, entries[:half], begins=begins, asked=asked, acted_in=acted_in, anew=anew
            )
            yield from self.frames(
                term,
                sequence,
                entries[half:],
                ends=ends,
                asked=asked,
                anew=anew,
                locks_in_s=locks_in_s,
                forgotten=forgotten,
            )
            return
        self.number = frame.number
        self.sent = frame.sequence
        yield payload

    def acknowledged(self, ack: Ack) -> bool:
        """Note an acknowledgement; ``False``: it names frames that were not sent."""
        if not self.received <= ack.received <= self.number or ack.applied > self.sent:
            return False
        self.received = ack.received
        self.applied = max(self.applied, ack.applied)
        return True
