"""The sending side: what changed, and what one link still has to be told (no I/O)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from orbitmq.broker.change_feed import ChangeFeed, Entry
from orbitmq.replication.state.frames import Ack, Changes, encode

MAX_ENTRIES = 500
# A frame may be longer only when one entry is; the link takes up to 4 MiB.
FRAME_BYTES = 1 << 20
# Frames that a link may have without an acknowledgement while it is told all that the tables hold.
WINDOW = 8


class Outbox:
    """Changes that no frame has told yet: the last one of each key, in the order of the last changes."""

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._changed: dict[tuple[str, str], object] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def note(self, table: str, key: str, value: object) -> None:
        """``key`` has changed; ``value`` is live, ``None``: it is gone."""
        place = (table, key)
        self._changed.pop(place, None)
        self._changed[place] = value

    def take(self) -> list[Entry]:
        """All that waits, as entries that hold from the present end of the log on."""
        changed, self._changed = self._changed, {}
        sequence = self._feed.sequence
        return [self._feed.entry(sequence, table, key, value) for (table, key), value in changed.items()]


def everything(feed: ChangeFeed) -> Iterator[Entry]:
    """All that the tables hold, read while the iterator goes on.

    Most tables give a list of what they hold when they are begun. What changes later is told at once as a
    change of its own, so it must not come once more with its value of then.
    """
    changed: dict[tuple[str, str], object] = {}
    end = feed.subscribe(lambda table, key, value: changed.__setitem__((table, key), value))
    try:
        for name, table in feed.tables().items():
            if table.items is not None:
                for key, listed in table.items():
                    value = changed.get((name, key), listed)
                    if value is not None:
                        yield feed.entry(feed.sequence, name, key, value)
    finally:
        end()


class SendingLink:
    """What one follower has been told.

    Attributes:
        number: of the last frame that was made for it.
        received: number of the last frame that it has.
        applied: sequence up to which it has made the changes.
        told: sequence up to which frames were made for it.
        telling: how many times it is being told everything now, or waits for that.
        turn: held by who tells it everything.
    """

    def __init__(self) -> None:
        self.number = 0
        self.received = 0
        self.applied = 0
        self.told = 0
        self.telling = 0
        self.turn = asyncio.Lock()
        self._looked_at = 0

    @property
    def waits(self) -> bool:
        """Whether it has not made all changes yet."""
        return self.telling > 0 or self.applied < self.told

    @property
    def is_owed(self) -> bool:
        """Whether it has not answered the last frame."""
        return self.received < self.number

    def is_stuck(self) -> bool:
        """Whether it has not answered all yet that it was sent before the last call."""
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
        entries: list[Entry],
        *,
        begins: bool = False,
        ends: bool = False,
        asked: bool = False,
        acted_in: int = 0,
        anew: bool = False,
        locks_in_s: float | None = None,
    ) -> Iterator[bytes]:
        """The payloads of the next frames, which tell these entries; one at least."""
        told = max(self.told, sequence)
        frame = Changes(self.number + 1, term, told, entries, begins, ends, asked, locks_in_s, acted_in, anew)
        payload = encode(frame)
        if len(entries) > 1 and (len(entries) > MAX_ENTRIES or len(payload) > FRAME_BYTES):
            half = len(entries) // 2
            yield from self.frames(
                term, self.told, entries[:half], begins=begins, asked=asked, acted_in=acted_in, anew=anew
            )
            yield from self.frames(
                term, sequence, entries[half:], ends=ends, asked=asked, anew=anew, locks_in_s=locks_in_s
            )
            return
        self.number = frame.number
        self.told = frame.sequence
        yield payload

    def acknowledged(self, ack: Ack) -> bool:
        """Note an acknowledgement; ``False``: it speaks of frames that were not sent."""
        if not self.received <= ack.received <= self.number or ack.applied > self.told:
            return False
        self.received = ack.received
        self.applied = max(self.applied, ack.applied)
        return True
