"""Where a query stands in every queue, as JSON that Spark compares as text.

The form is ``{"v":1,"t":{topic:{broker:{queue:offset}}}}``: start inclusive, end exclusive, keys sorted, no
negative numbers. Equal offsets must be equal text, or Spark runs empty batches for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.message.model import MessageQueue
from orbitmq.spark.errors import OffsetError

VERSION = 1


class Offsets(Mapping[MessageQueue, int]):
    """An immutable map from queue to offset."""

    __slots__ = ("_table",)

    def __init__(self, table: Mapping[MessageQueue, int] | None = None) -> None:
        self._table = dict(sorted(table.items())) if table else {}
        for queue, offset in self._table.items():
            if offset < 0:
                raise OffsetError(f"offset {offset} of {queue} is negative")

    def __getitem__(self, queue: MessageQueue) -> int:
        return self._table[queue]

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __hash__(self) -> int:
        return hash(tuple(self._table.items()))

    def __repr__(self) -> str:
        return f"Offsets({self.text()})"

    def total(self) -> int:
        """The sum of all offsets."""
        return sum(self._table.values())

    def to_json(self) -> dict[str, Any]:
        """The dict that Spark writes into its checkpoint; keys are inserted in sorted order."""
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for queue, offset in self._table.items():
            brokers = topics.setdefault(queue.topic, {})
            brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
        return {"t": topics, "v": VERSION}

    def text(self) -> str:
        """The canonical text."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, value: Any) -> Offsets:
        """Read what :meth:`to_json` made, in any order of keys.

        Raises:
            OffsetError: another version, or not this form.
        """
        if not isinstance(value, dict) or value.get("v") != VERSION or not isinstance(value.get("t"), dict):
            raise OffsetError(f'offsets must be {{"v":{VERSION},"t":{{...}}}}, got {json.dumps(value)[:200]}')
        table: dict[MessageQueue, int] = {}
        for topic, brokers in value["t"].items():
            for broker, queues in _entries(brokers, topic):
                for queue_id, offset in _entries(queues, f"{topic}/{broker}"):
                    place = f"{topic}/{broker}/{queue_id}"
                    if not queue_id.isdigit() or type(offset) is not int:
                        raise OffsetError(f"offset of {place} is {offset!r}, not a whole number")
                    table[MessageQueue(topic, broker, int(queue_id))] = offset
        return cls(table)

    def no_less_than(self, floor: Offsets) -> Offsets:
        """The later place of each queue; queues of either side are kept."""
        table = dict(self._table)
        for queue, offset in floor.items():
            table[queue] = max(offset, table.get(queue, 0))
        return Offsets(table)

    def no_more_than(self, ceiling: Offsets) -> Offsets:
        """The earlier place of each queue that ``ceiling`` knows; other queues are dropped."""
        return Offsets({q: min(offset, ceiling[q]) for q, offset in self._table.items() if q in ceiling})


def _entries(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OffsetError(f"offsets of {place} are {value!r}, not an object")
    yield from value.items()


def backlog(start: Offsets, end: Offsets) -> dict[MessageQueue, int]:
    """Rows between two places, for the queues that have any. A queue missing in ``start`` begins at 0."""
    rows = {queue: offset - start.get(queue, 0) for queue, offset in end.items()}
    return {queue: count for queue, count in rows.items() if count > 0}


def prorate(start: Offsets, end: Offsets, max_rows: int) -> Offsets:
    """An end with at most ``max_rows`` rows after ``start``, shared among the queues by their backlog.

    Every call with backlog moves on by ``min(max_rows, backlog)`` rows, so a small queue is never starved
    for ever and no batch is empty while there is work.
    """
    waiting = backlog(start, end)
    total = sum(waiting.values())
    if total <= max_rows:
        return end
    shares = {queue: count * max_rows // total for queue, count in waiting.items()}
    left = max_rows - sum(shares.values())
    # Rounding leaves fewer rows than there are queues: the largest remainders take one each.
    by_remainder = sorted(waiting, key=lambda queue: (-(waiting[queue] * max_rows % total), queue))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    moved = {queue: start.get(queue, 0) + shares.get(queue, 0) for queue in end}
    return Offsets(moved).no_less_than(Offsets({q: o for q, o in start.items() if q in end}))
