"""The end of a stream's next batch, computed from offsets. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.offsets import Offsets, backlog
from orbitmq.spark.pulling.ranges import QueueRange


class Shrunk(NamedTuple):
    """A queue that now ends before the offset up to which it was read."""

    queue: MessageQueue
    read_to: int
    ends_at: int


def shrunk_queues(begin: Offsets, latest: Mapping[MessageQueue, int]) -> list[Shrunk]:
    """The queues that shrank because the topic was created again, or a broker lost its last messages."""
    return [
        Shrunk(queue, begin[queue], end)
        for queue, end in latest.items()
        if queue in begin and end < begin[queue]
    ]


def next_end(
    begin: Offsets,
    latest: Mapping[MessageQueue, int],
    first: Mapping[MessageQueue, int],
    given_up: Mapping[MessageQueue, int],
) -> Offsets:
    """The end of the next batch without limits; equals ``begin`` if no message arrived.

    A queue whose broker does not answer keeps its offset. A new queue is left out until it has a message.

    Args:
        begin: the offsets at which the batch begins.
        latest: the present ends of the queues.
        first: the first offsets of queues that are not in ``begin``.
        given_up: the offsets at which queues that shrank continue.
    """
    table = dict(begin)
    begins = dict(begin.begins) if begin.is_first else {}
    for queue, end in latest.items():
        if queue in given_up:
            table[queue] = begins[queue] = given_up[queue]
        elif queue in begin:
            table[queue] = max(end, begin[queue])
        elif queue in first and first[queue] < end:
            table[queue] = end
            begins[queue] = first[queue]
    return Offsets(table, begins=begins)


def batch_ranges(
    start: Offsets, end: Offsets, first: Mapping[MessageQueue, int] | None = None
) -> Iterator[QueueRange]:
    """The ranges that a batch reads.

    Args:
        first: the begin of queues for which neither ``start`` nor ``end`` has one (ends of version 1).
    """
    for queue in backlog(start, end):
        known = end.begins.get(queue, start.get(queue))
        low = known if known is not None else min((first or {}).get(queue, 0), end[queue])
        yield QueueRange(queue, low, end[queue])
