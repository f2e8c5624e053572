"""Where the next batch of a stream ends. Does no I/O: offsets in, offsets out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.offsets import Offsets, backlog
from orbitmq.spark.pulling.ranges import QueueRange


class Shrunk(NamedTuple):
    """A queue that ends before the place up to which it was read."""

    queue: MessageQueue
    read_to: int
    ends_at: int


def shrunk_queues(begin: Offsets, latest: Mapping[MessageQueue, int]) -> list[Shrunk]:
    """The queues that lost their end: the topic was made again, or a broker came back with less."""
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
    """The end of the next batch when there is no limit; the same offsets as ``begin`` when nothing came.

    A queue that nobody could tell about keeps its place. A new queue is left out until it holds a message.

    Args:
        begin: where the batch begins.
        latest: where queues end now.
        first: the first message of queues that ``begin`` does not know.
        given_up: where to go on in queues that lost their end.
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
    """What a batch reads.

    Args:
        first: where queues begin of which neither place tells it (ends of the first form).
    """
    for queue in backlog(start, end):
        known = end.begins.get(queue, start.get(queue))
        low = known if known is not None else min((first or {}).get(queue, 0), end[queue])
        yield QueueRange(queue, low, end[queue])
