"""How a dead letter looks, and the message that it becomes again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orbitmq.broker.messaging.stored import copied
from orbitmq.message import property_names, reserved
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.store import NewMessage
from orbitmq.store.ports import LogPiece

# What a message got on its way to the dead letters and must not have when it is new again.
_OF_THE_WAY = (
    property_names.RETRY_TOPIC,
    property_names.ORIGIN_MESSAGE_ID,
    property_names.DELAY,
    property_names.REAL_TOPIC,
    property_names.REAL_QUEUE_ID,
    property_names.RECONSUME_TIME,
    property_names.MAX_RECONSUME_TIMES,
    property_names.CONSUME_START_TIME,
    property_names.POP_CK,
    property_names.POP_CK_OFFSET,
    property_names.FIRST_POP_TIME,
    property_names.POP_REVIVED_FROM,
    property_names.DLQ_REASON,
    property_names.DLQ_CLIENT,
    *property_names.TIMER_PROPERTIES,
)
_MARK = re.compile(property_names.DLQ_REDRIVE_ID.encode() + b"\x01")


def origin_topic(properties: dict[str, str]) -> str | None:
    """The topic whose message became this dead letter."""
    return properties.get(property_names.RETRY_TOPIC) or properties.get(property_names.DLQ_ORIGIN_TOPIC)


def redrives(properties: dict[str, str]) -> int:
    """How often the message was sent again already."""
    count = properties.get(property_names.DLQ_REDRIVES, "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else 0


def mark(group: str, offset: int) -> str:
    """What tells in the log which dead letter a message was: the group and the dead letter's queue offset."""
    return f"{group}@{offset}"


def redriven(record: Record, properties: dict[str, str], topic: str, queue_id: int, group: str) -> NewMessage:
    """The message that a dead letter becomes: new for its consumers, with its unique id, body and tags."""
    kept = {name: value for name, value in properties.items() if name not in _OF_THE_WAY}
    kept[property_names.DLQ_REDRIVES] = str(redrives(properties) + 1)
    kept[property_names.DLQ_REDRIVE_ID] = mark(group, record.queue_offset)
    return copied(record, kept, topic, queue_id, reconsume_times=0)


def sent_offsets(piece: LogPiece, group: str) -> tuple[set[int], int]:
    """Offsets of the group's dead letters that records of the piece were; and the log offset behind it."""
    found: set[int] = set()
    prefix = f"{group}@"
    behind = piece.start
    has_any = _MARK.search(piece.data()) is not None
    for record in piece.records() if has_any else ():
        behind = piece.behind(record)
        text = decode_properties(record.properties).get(property_names.DLQ_REDRIVE_ID, "")
        number = text.removeprefix(prefix)
        # A message that failed once more carries the mark on its way through the retry topic.
        is_new = not record.topic.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
        if is_new and number != text and number.isdigit() and not record.reconsume_times:
            found.add(int(number))
    return found, max(behind, piece.end)


class Ranges:
    """A set of offsets as ranges, which may be long but not many."""

    def __init__(self, ranges: Iterable[list[int]] = ()) -> None:
        self._ranges = [list(one) for one in ranges]

    def __len__(self) -> int:
        return len(self._ranges)

    def __contains__(self, offset: int) -> bool:
        return any(first <= offset < behind for first, behind in reversed(self._ranges))

    def add(self, offset: int) -> None:
        """Add an offset; the order in which they come is mostly rising."""
        if offset in self:
            return
        at = len(self._ranges)
        while at and self._ranges[at - 1][0] > offset:
            at -= 1
        self._ranges.insert(at, [offset, offset + 1])
        if at + 1 < len(self._ranges) and self._ranges[at + 1][0] == offset + 1:
            self._ranges[at][1] = self._ranges.pop(at + 1)[1]
        if at and self._ranges[at - 1][1] == offset:
            self._ranges[at - 1][1] = self._ranges.pop(at)[1]

    def drop_below(self, offset: int) -> None:
        """Forget what is no longer stored."""
        self._ranges = [[max(first, offset), behind] for first, behind in self._ranges if behind > offset]

    def plain(self) -> list[list[int]]:
        """As JSON has it."""
        return [list(one) for one in self._ranges]
