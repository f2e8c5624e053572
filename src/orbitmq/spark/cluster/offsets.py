"""The position of a query in every queue, as JSON that Spark compares as text.

The form is ``{"t":{topic:{broker:{queue:offset}}},"v":1}``: start inclusive, end exclusive, keys sorted, no
negative numbers. Equal offsets must be equal text, or Spark runs empty batches for ever.

A batch must give the same rows whenever and wherever it is read. Therefore the end of a batch may also hold,
as ``"v":2``, ``from`` (a table like ``t``: the begin of the batch in queues without a previous end) and ``n``
(the number of tasks that read the batch). Spark stores only the ends of batches; ``from`` holds the begin of
a query.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.spark.errors import OffsetError

VERSION = 1
VERSION_WITH_BEGINS = 2


class Offsets(Mapping[MessageQueue, int]):
    """An immutable map from queue to offset.

    Args:
        table: the offsets.
        begins: the begin of the batch that ends at these offsets, for queues without a previous end.
        tasks: the number of tasks that read that batch; ``None`` if it is not fixed.
    """

    __slots__ = ("_table", "begins", "tasks")

    def __init__(
        self,
        table: Mapping[MessageQueue, int] | None = None,
        *,
        begins: Mapping[MessageQueue, int] | None = None,
        tasks: int | None = None,
    ) -> None:
        self._table = dict(sorted(table.items())) if table else {}
        self.begins = dict(sorted(begins.items())) if begins else {}
        self.tasks = tasks
        for queue, offset in (*self._table.items(), *self.begins.items()):
            if offset < 0:
                raise OffsetError(f"offset {offset} of {queue} is negative")
        if tasks is not None and tasks < 1:
            raise OffsetError(f"{tasks} tasks cannot read a batch")

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

    @property
    def is_first(self) -> bool:
        """Whether these offsets are the begin of a query: no batch ends here, and Spark does not
        store them.
        """
        return self.tasks is None and bool(self._table) and self.begins == self._table

    def as_first(self) -> Offsets:
        """These offsets marked as the begin of a query."""
        return Offsets(self._table, begins=self._table)

    def to_json(self) -> dict[str, Any]:
        """The dict that Spark writes into its checkpoint; keys are inserted in sorted order."""
        if self.tasks is None and not self.begins:
            return {"t": _nested(self._table), "v": VERSION}
        tasks = {} if self.tasks is None else {"n": self.tasks}
        table = {"t": _nested(self._table), "v": VERSION_WITH_BEGINS}
        return {"from": _nested(self.begins), **tasks, **table}

    def text(self) -> str:
        """The canonical text."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, value: Any) -> Offsets:
        """Read the dict of :meth:`to_json`, with its keys in any order.

        Raises:
            OffsetError: the value has another version or form.
        """
        if isinstance(value, dict) and isinstance(value.get("v"), int) and value["v"] > VERSION_WITH_BEGINS:
            raise OffsetError(
                f"offsets of version {value['v']} are of a later OrbitMQ, this one reads {VERSION} and "
                f"{VERSION_WITH_BEGINS}: go on with that one, or give the query a new checkpointLocation"
            )
        if (
            not isinstance(value, dict)
            or value.get("v") not in (VERSION, VERSION_WITH_BEGINS)
            or not isinstance(value.get("t"), dict)
        ):
            raise OffsetError(f'offsets must be {{"v":{VERSION},"t":{{...}}}}, got {json.dumps(value)[:200]}')
        tasks = value.get("n")
        if tasks is not None and type(tasks) is not int:
            raise OffsetError(f"the number of tasks is {tasks!r}, not a whole number")
        return cls(queue_table(value["t"]), begins=queue_table(value.get("from", {})), tasks=tasks)


def _nested(table: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in table.items():
        topics.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return topics


def queue_table(topics: Any) -> dict[MessageQueue, int]:
    """The number of each queue, from ``{topic:{broker:{queue:number}}}``.

    Raises:
        OffsetError: ``topics`` has another form.
    """
    table: dict[MessageQueue, int] = {}
    for topic, brokers in _entries(topics, "the topics"):
        for broker, queues in _entries(brokers, topic):
            for queue_id, offset in _entries(queues, f"{topic}/{broker}"):
                place = f"{topic}/{broker}/{queue_id}"
                number = whole_number(queue_id, INT32)
                if number is None or type(offset) is not int:
                    raise OffsetError(f"offset of {place} is {offset!r}, not a whole number")
                table[MessageQueue(topic, broker, number)] = offset
    return table


def _entries(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OffsetError(f"offsets of {place} are {value!r}, not an object")
    yield from value.items()


def backlog(start: Offsets, end: Offsets) -> dict[MessageQueue, int]:
    """Number of rows between two offsets, for queues that have any. A queue with an unknown begin begins at
    0.
    """
    rows = {queue: offset - begin_of(start, end, queue) for queue, offset in end.items()}
    return {queue: count for queue, count in rows.items() if count > 0}


def begin_of(start: Offsets, end: Offsets, queue: MessageQueue) -> int:
    """The first offset of the batch in a queue; 0 if neither its start nor its end names one."""
    return end.begins.get(queue, start.get(queue, 0))


def prorate(start: Offsets, end: Offsets, max_rows: int) -> Offsets:
    """The end of a batch with at most ``max_rows`` rows after ``start``, divided among the queues by their
    backlog.

    Every call with a backlog advances by ``min(max_rows, backlog)`` rows, so no batch is empty while there is
    work. Each queue gets at least one row, however large the backlog of others is; if there are more queues
    than rows, the queues take turns.
    """
    waiting = backlog(start, end)
    total = sum(waiting.values())
    if total <= max_rows:
        return end
    if max_rows <= len(waiting):
        # The sum of all offsets grows by max_rows with this batch, so the next batch begins after this one's
        # last queue.
        first, queues = start.total() % len(waiting), sorted(waiting)
        shares = dict.fromkeys([*queues[first:], *queues[:first]][:max_rows], 1)
    else:
        rest, total_rest = max_rows - len(waiting), total - len(waiting)
        shares = {queue: 1 + (count - 1) * rest // total_rest for queue, count in waiting.items()}
        left = max_rows - sum(shares.values())
        # Rounding leaves fewer rows than there are queues: each of the largest remainders gets one.
        by_remainder = sorted(waiting, key=lambda q: (-((waiting[q] - 1) * rest % total_rest), q))
        for queue in by_remainder[:left]:
            shares[queue] += 1
    moved = {queue: begin_of(start, end, queue) + shares.get(queue, 0) for queue in end}
    return Offsets(moved, begins=end.begins, tasks=end.tasks)
