"""The form of a dead letter, and of the message that it becomes again. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from orbitmq.broker.messaging.stored import copied
from orbitmq.message import property_names, reserved, way
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.store import NewMessage
from orbitmq.store.ports import LogPiece

_RETRY_TOPIC = property_names.RETRY_TOPIC.encode()
_ORIGIN_TOPIC = property_names.DLQ_ORIGIN_TOPIC.encode()
_REDRIVES = property_names.DLQ_REDRIVES.encode()
_REDRIVE_ID = property_names.DLQ_REDRIVE_ID.encode()
_TAGS = property_names.TAGS.encode()
# Properties that a message got on its way to the dead letters and must not have as a new message, and those
# that its next redrive writes anew.
_OF_THE_WAY = frozenset(
    name.encode()
    for name in (
        way.OF_A_RETRY
        | way.OF_A_POP
        | way.DELAYS
        | way.NOT_IN_A_NEW_WAIT
        | way.OF_A_DEAD_LETTER - {property_names.DLQ_ORIGIN_TOPIC, property_names.DLQ_ORIGIN_MESSAGE_ID}
        | {property_names.CONSUME_START_TIME, property_names.TRANSACTION_PREPARED}
    )
)
_MARK = re.compile(_REDRIVE_ID + b"\x01")


class DeadLetter:
    """A stored dead letter, and the message that it becomes.

    Its properties are read once, as bytes: there may be millions of dead letters.

    Attributes:
        topic: the topic whose message became this dead letter; ``None``: no property names it.
        redrives: how many times it was sent again so far.
    """

    __slots__ = ("_kept", "_tags", "record", "redrives", "topic")

    def __init__(self, record: Record) -> None:
        kept: list[bytes] = []
        came_from = origin = count = tags = b""
        for pair in record.properties.split(b"\x02"):
            name, _, value = pair.partition(b"\x01")
            if not name or not value:
                continue
            if name in _OF_THE_WAY:
                if name == _RETRY_TOPIC:
                    came_from = value
                elif name == _REDRIVES:
                    count = value
                continue
            if name == _ORIGIN_TOPIC:
                origin = value
            elif name == _TAGS:
                tags = value
            kept.append(pair)
        self.record = record
        self._kept = kept
        self._tags = tags
        self.topic = (came_from or origin).decode("utf-8", "replace") or None
        self.redrives = int(count) if count.isdigit() and len(count) < 10 else 0

    def again(self, topic: str, queue_id: int, group: str) -> NewMessage:
        """The message that the dead letter becomes: new for consumers, with unique id, body and tags kept."""
        record = self.record
        kept = self._kept
        kept.append(b"%s\x01%d" % (_REDRIVES, self.redrives + 1))
        kept.append(b"%s\x01%s\x02" % (_REDRIVE_ID, mark(group, record.queue_offset).encode()))
        tags = {property_names.TAGS: self._tags.decode("utf-8", "replace")}
        return copied(record, tags, topic, queue_id, encoded=b"\x02".join(kept), reconsume_times=0)


def mark(group: str, offset: int) -> str:
    """The property's value that marks a redriven message: the group and the dead letter's queue offset."""
    return f"{group}@{offset}"


def sent_offsets(piece: LogPiece, group: str) -> tuple[set[int], int]:
    """Offsets of the group's dead letters whose redriven messages are in the piece, and the piece's end."""
    found: set[int] = set()
    prefix = f"{group}@"
    behind = piece.start
    has_any = _MARK.search(piece.data()) is not None
    for record in piece.records() if has_any else ():
        behind = piece.behind(record)
        text = decode_properties(record.properties).get(property_names.DLQ_REDRIVE_ID, "")
        number = whole_number(text.removeprefix(prefix)) if text.startswith(prefix) else None
        # A message that failed once more carries the mark on its way through the retry topic, too.
        is_new = not record.topic.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
        if is_new and number is not None and not record.reconsume_times:
            found.add(number)
    return found, max(behind, piece.end)


_FIRST = itemgetter(0)

# More ranges than this make a job slow and its table large.
MAX_RANGES = 10_000


def ranges_fault(ranges: Sequence[Sequence[int]]) -> str | None:
    """Why these are not ascending ranges of offsets; ``None`` if they are."""
    if len(ranges) > MAX_RANGES:
        return f"has {len(ranges)} ranges, at most {MAX_RANGES} are taken"
    reached = 0
    for one in ranges:
        if len(one) != 2 or not reached <= one[0] < one[1]:
            return f"has {list(one)}, expected pairs of first and behind last, in order"
        reached = one[1]
    return None


class Ranges:
    """A set of offsets as ranges of any length; a set of many ranges is slow."""

    def __init__(self, ranges: Iterable[list[int]] = ()) -> None:
        self._ranges = [list(one) for one in ranges]

    def __len__(self) -> int:
        return len(self._ranges)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._ranges, offset, key=_FIRST)
        return at > 0 and offset < self._ranges[at - 1][1]

    def next_from(self, offset: int) -> int | None:
        """The lowest offset of the set that is not below ``offset``."""
        at = bisect_right(self._ranges, offset, key=_FIRST)
        if at and offset < self._ranges[at - 1][1]:
            return offset
        return self._ranges[at][0] if at < len(self._ranges) else None

    def add(self, offset: int) -> None:
        """Add an offset; offsets mostly come in ascending order."""
        ranges = self._ranges
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] += 1
            return
        at = bisect_right(ranges, offset, key=_FIRST)
        if at and offset < ranges[at - 1][1]:
            return
        ranges.insert(at, [offset, offset + 1])
        if at + 1 < len(ranges) and ranges[at + 1][0] == offset + 1:
            ranges[at][1] = ranges.pop(at + 1)[1]
        if at and ranges[at - 1][1] == offset:
            ranges[at - 1][1] = ranges.pop(at)[1]

    def drop_below(self, offset: int) -> None:
        """Forget offsets that are no longer stored."""
        self._ranges = [[max(first, offset), behind] for first, behind in self._ranges if behind > offset]

    def plain(self) -> list[list[int]]:
        """The set in plain JSON types."""
        return [list(one) for one in self._ranges]
