"""The small texts by which the headers and properties of pop consumption describe messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.wire.errors import HeaderError

# The values of ``retry``, by the topic in which a message lies: its own, or the group's retry topic V1 or V2.
NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
# The revive queue id of an orderly pop, which has no check point.
ORDERLY_REVIVE_QUEUE: Final = 999


def retry_topic(topic: str, group: str, retry: str) -> str:
    """The topic in which a message of ``topic``, popped by ``group``, lies.

    Raises:
        HeaderError: ``retry`` is not one of the three.
    """
    if retry == NORMAL:
        return topic
    if retry == RETRY_V1:
        return f"{RETRY_PREFIX}{group}_{topic}"
    if retry == RETRY_V2:
        return f"{RETRY_PREFIX}{group}+{topic}"
    raise HeaderError(f"retry flag {retry[:20]!r}; expected 0, 1 or 2")


def normal_topic(topic: str, group: str) -> str:
    """The topic whose messages are redelivered to ``group`` in ``topic``; ``topic`` if it is no retry
    topic."""
    for separator in "+_":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


def retry_of(topic: str) -> str:
    """The value of ``retry`` for a topic, by the topic's name."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


class ExtraInfo(NamedTuple):
    """A message's property ``POP_CK``, and the field ``extraInfo`` of its acknowledgement. Times are in ms.

    ``queue_offset`` is absent in the short form.
    """

    check_point_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int | None = None

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue_id == ORDERLY_REVIVE_QUEUE

    def encode(self) -> str:
        """The fields, separated by one space each."""
        return " ".join(str(part) for part in self if part is not None)

    @classmethod
    def decode(cls, text: str) -> ExtraInfo:
        """Read seven or eight words.

        Raises:
            HeaderError: there are fewer words, or a word that must be a number is none.
        """
        words = text.split(" ")
        try:
            offset, pop_time, invisible, revive, retry, broker, queue, *rest = words
            return cls(
                int(offset),
                int(pop_time),
                int(invisible),
                int(revive),
                retry,
                broker,
                int(queue),
                int(rest[0]) if rest else None,
            )
        except ValueError as error:
            raise HeaderError(
                f"extraInfo {text[:200]!r}; expected 'checkPointOffset popTime invisibleTime reviveQueueId "
                "retry brokerName queueId queueOffset'"
            ) from error


# Keys of the tables below: the value of ``retry``, and the queue id (in order counts also
# qo<queue>%<offset>).
QueueKey = tuple[str, str]


def encode_start_offsets(offsets: Mapping[QueueKey, int]) -> str:
    """``startOffsetInfo``: the first offset that a pop took from each queue. Order counts have the same
    form."""
    return ";".join(f"{retry} {queue} {offset}" for (retry, queue), offset in offsets.items())


def decode_start_offsets(text: str) -> dict[QueueKey, int]:
    """Read ``startOffsetInfo`` or ``orderCountInfo``.

    Raises:
        HeaderError: an entry has not three words or no number, or a queue occurs twice.
    """
    found: dict[QueueKey, int] = {}
    for entry in text.split(";") if text else ():
        try:
            retry, queue, value = entry.split(" ")
            offset = int(value)
        except ValueError as error:
            raise HeaderError(
                f"startOffsetInfo has the entry {entry[:80]!r}; expected 'retry queue offsets'"
            ) from error
        if (retry, queue) in found:
            raise HeaderError(f"startOffsetInfo names queue {queue[:80]!r} twice")
        found[retry, queue] = offset
    return found


def encode_message_offsets(offsets: Mapping[QueueKey, Iterable[int]]) -> str:
    """``msgOffsetInfo``: all offsets that a pop took from each queue."""
    return ";".join(
        f"{retry} {queue} {','.join(map(str, found))}" for (retry, queue), found in offsets.items()
    )


# OrbitMQ's additional field in the answer to BATCH_ACK_MESSAGE.
MISSED: Final = "missedOffsets"


def encode_missed(missed: Mapping[int, Iterable[int]]) -> str:
    """The offsets that were not in flight, by the number of their acknowledgement in the body."""
    return ";".join(f"{number} {','.join(map(str, offsets))}" for number, offsets in missed.items())


def decode_missed(text: str) -> dict[int, list[int]]:
    """Read the text of :func:`encode_missed`.

    Raises:
        HeaderError: the text does not have that form.
    """
    try:
        pairs = [entry.split(" ") for entry in text.split(";")] if text else []
        return {int(number): [int(offset) for offset in offsets.split(",")] for number, offsets in pairs}
    except ValueError as error:
        raise HeaderError(f"{MISSED} is {text[:80]!r}; expected 'number offsets'") from error


def order_count_key(queue_id: int, queue_offset: int) -> str:
    """The second word of an ``orderCountInfo`` entry for one message."""
    return f"qo{queue_id}%{queue_offset}"
