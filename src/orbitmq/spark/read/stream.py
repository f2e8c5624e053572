"""Plans the batches of a stream; the same for every version of Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from orbitmq.errors import BrokerError, OrbitError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import RetryWindow, max_offset, min_offset
from orbitmq.spark.cluster.offsets import Offsets, backlog, prorate
from orbitmq.spark.cluster.places import Start
from orbitmq.spark.errors import DataLossError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.silence import WARNING_SECONDS
from orbitmq.spark.read.batch_end import Shrunk, batch_ranges, next_end, shrunk_queues
from orbitmq.spark.read.group_progress import GroupProgress
from orbitmq.spark.read.positions import KnownOffsets, Positions
from orbitmq.spark.read.reading import tasks, tasks_for

log = logging.getLogger("orbitmq.spark")

_LEFT = "are left to the next run (availableNow)"


class Stream:
    """Plans the batches of one streaming query. It resumes from Spark's checkpoint, never from a group's
    offsets.

    Args:
        may_end: whether the run may be one with AvailableNow, which this version of Spark does not reveal.
    """

    def __init__(self, options: ReadOptions, *, may_end: bool = False) -> None:
        self._may_end = may_end
        self._options = options
        self._positions = Positions(options)
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._progress = GroupProgress(self._positions.brokers, options.group_id)
        self._away = RetryWindow(options.offset_timeout_ms)
        self._routed: set[str] = set()
        self._shown: set[MessageQueue] = set()
        self._warned = -WARNING_SECONDS
        self._waiting_since: float | None = None
        self._no_begin: OrbitError | None = None
        self._instead: str | None = None
        # Brokers that a warning has named as left out of an AvailableNow run; None for any other run.
        self._left: set[str] | None = None

    def initial(self) -> dict[str, Any]:
        """The begin of the query while no batch is committed; empty if it cannot be determined.

        Spark also calls this to repeat the first batch of a checkpoint, whose end contains the begin. Only
        the next call shows which case it is: :meth:`latest` raises the error of this call, while
        :meth:`tasks` needs no begin if the end of the batch contains it.
        """
        try:
            return self._first_place().as_first().to_json()
        except OrbitError as error:
            self._no_begin = error
            return Offsets().to_json()

    def _first_place(self) -> Offsets:
        """The begin of the query, from its options.

        A start at the first messages is possible without a silent broker: its queues appear later as new
        ones, which begin at their first message. Any other start needs the present offsets of all queues.
        """
        if self._options.starting is not Start.EARLIEST:
            return self._positions.start()
        told = self._positions.where_in_time(min_offset, every_queue=True)
        _tell_left(told, "are read from their first message on as soon as it answers")
        return told.offsets

    def prepare_available_now(self) -> None:
        """End this run at the present ends of the queues. The run leaves out brokers that do not answer."""
        told = self._positions.where_in_time(max_offset)
        _tell_left(told, _LEFT)
        self._left = set(told.silent)
        self.end_at(told.offsets)

    def end_at(self, target: Offsets) -> None:
        """End this run at ``target``.

        Args:
            target: the end. Its ``begins`` hold the start of queues that are new to the query; the start of
                other new queues is requested from the brokers.
        """
        self._target = target

    def refuse_lost_ends(self, instead: str) -> None:
        """Fail if a queue shrank, whatever the value of ``failOnDataLoss``: no offset may be read twice.

        Args:
            instead: the advice in the error's text.
        """
        self._instead = instead

    def latest(
        self, start: dict[str, Any], *, everything: bool = False, max_rows: int | None = None
    ) -> dict[str, Any]:
        """The end of the next batch. An exception here would end the query, so an unreachable cluster gives
        ``start`` as the end, until it has been unreachable for the offset timeout.

        Args:
            start: the end of the last batch.
            everything: ignore all limits.
            max_rows: most rows; ``None`` for no limit.
        """
        begin = Offsets.from_json(start)
        if self._no_begin is not None and not begin:
            raise self._no_begin
        self._positions.check_place(begin)
        if not begin.is_first:
            # Spark calls this after the batch that ended here, and also after the last batch of an
            # AvailableNow run.
            self._progress.publish(begin)
        end = self._end_in_time(begin)
        if end is None:
            return begin.to_json()
        if not everything:
            end = self._limited(begin, end, max_rows)
        rows = sum(backlog(begin, end).values())
        if dict(end) == dict(begin) or (not everything and self._is_too_little(rows)):
            return begin.to_json()
        self._waiting_since = None
        count = tasks_for(self._positions, list(batch_ranges(begin, end)))
        return Offsets(end, begins=end.begins, tasks=count).to_json()

    def _end_in_time(self, begin: Offsets) -> Offsets | None:
        """The present ends of the queues; ``None`` while the cluster is unreachable: Spark asks again.

        An AvailableNow run would take ``None`` for its end, as if everything were read, so for such a run
        this method waits.
        """
        while True:
            try:
                end = self._end(begin)
            except (UnreachableError, TopicNotFoundError, BrokerError) as error:
                # An unknown topic counts as unreachable, since a name server that was just started has no
                # topics yet.
                if self._away.is_over:
                    raise
                log.warning("the latest offsets are not known, the query waits: %s", error)
                self._away.pause()
                if self._target is None and not self._may_end:
                    return None
            else:
                self._away.succeeded()
                return end

    def _limited(self, begin: Offsets, end: Offsets, max_rows: int | None) -> Offsets:
        """The end of a batch within the limits of rows and bytes; at least one row."""
        rows = sum(backlog(begin, end).values())
        most = rows if max_rows is None else min(rows, max_rows)
        size = self._positions.bytes_of(list(batch_ranges(begin, end)))
        if size > self._options.max_bytes:
            most = min(most, max(1, rows * self._options.max_bytes // size))
        return prorate(begin, end, most)

    def report(self) -> dict[str, Any] | None:
        """The ends of the queues, for Spark's progress."""
        return None if self._latest is None else self._latest.to_json()

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the batch between two places, in the number that ``end`` fixes, even in a replay."""
        if start == end:
            return []
        begin, until = Offsets.from_json(start), Offsets.from_json(end)
        self._positions.check_place(until)
        if self._no_begin is not None and not begin:
            if not self._tells_begin(until):
                raise self._no_begin
            log.warning("the first batch is run again, its end says where it begins: %s", self._no_begin)
        ranges = list(batch_ranges(begin, until, self._positions.unknown_firsts(begin, until)))
        return tasks(self._positions, ranges, until.tasks)

    def _tells_begin(self, until: Offsets) -> bool:
        """Whether the end offsets of a first batch suffice to repeat it: they name each topic (or assigned
        queue) of the query, and the first offset of each of its queues.
        """
        assigned = self._options.assigned
        known = set(until) if assigned is not None else {queue.topic for queue in until}
        wanted = assigned if assigned is not None else set(self._options.topics)
        return bool(until) and wanted <= known and until.begins.keys() >= set(until)

    def _end(self, begin: Offsets) -> Offsets:
        """The present ends of the queues; queues of a broker that is away keep their old ends."""
        latest: Mapping[MessageQueue, int]
        begins: Mapping[MessageQueue, int] = {}
        if self._target is not None:
            # Queues that appeared after the query began are not part of the run.
            latest, begins = self._target, self._target.begins
            self._tell_not_shown(begin)
        else:
            latest, silent, missing = self._positions.latest_where_possible()
            gone = self._gone(begin, {queue.broker_name for queue in latest} | silent.keys())
            hidden = self._hidden(begin, latest)
            self._tell_silent([*map(str, silent.values()), *map(str, missing.values()), *gone, *hidden])
            if silent and not latest:
                raise next(iter(silent.values()))
        self._latest = Offsets({**begin, **latest})
        shrunk = shrunk_queues(begin, latest)
        if shrunk and self._target is not None:
            # A slave that was behind may have answered during the planning of the run.
            now = self._positions.latest_where_possible().offsets
            shrunk = shrunk_queues(
                begin, {lost.queue: now[lost.queue] for lost in shrunk if lost.queue in now}
            )
        given_up = {lost.queue: lost.ends_at for lost in shrunk if self._has_lost_its_end(lost)}
        unknown = {queue for queue in latest if queue not in begin and queue not in begins}
        first = {**self._positions.first_of(unknown), **begins}
        for queue in sorted(unknown - first.keys()) if self._target is not None else ():
            raise UnreachableError(f"the first message of {queue} is not known")
        return next_end(begin, latest, first, given_up)

    def _has_lost_its_end(self, shrunk: Shrunk) -> bool:
        if not self._positions.is_told_by_master(shrunk.queue):
            return False  # a slave that is behind
        text = (
            f"{shrunk.queue} ends at {shrunk.ends_at}, but was read up to {shrunk.read_to}: "
            f"its topic was made again, or its broker came back without its last messages"
        )
        if self._instead is not None:
            raise DataLossError(f"{text}; {self._instead}")
        self._positions.lost(text)
        return True

    def _gone(self, begin: Offsets, routed: set[str]) -> list[str]:
        """Warnings about brokers that have left the routes since the query was started.

        Name servers remove a frozen broker from the routes after two minutes; from then on it gets no
        requests.
        """
        self._routed |= routed
        gone = {queue.broker_name for queue in begin} & self._routed - routed
        return [f"the name servers do not show {name} any more" for name in sorted(gone)]

    def _tell_not_shown(self, begin: Offsets) -> None:
        """Warn once about brokers that the query reads, but that no name server listed when the run began."""
        if self._left is None or self._target is None:
            return
        there = {queue.broker_name for queue in self._target} | self._left
        for name in sorted({queue.broker_name for queue in begin} - there):
            self._left.add(name)
            log.warning("the name servers do not show %s, its queues %s", name, _LEFT)

    def _hidden(self, begin: Offsets, latest: Mapping[MessageQueue, int]) -> list[str]:
        """Warnings about queues that have left the routes since the query was started.

        The number of the topic's queues was reduced: messages in the removed queues are not read.
        """
        self._shown |= latest.keys()
        brokers = {(queue.topic, queue.broker_name) for queue in latest}
        hidden = {q for q in self._shown - latest.keys() if (q.topic, q.broker_name) in brokers}
        return [f"{queue} is no queue of its topic any more" for queue in begin if queue in hidden]

    def _tell_silent(self, reasons: Sequence[str]) -> None:
        """Log one warning a minute about queues that wait."""
        now = this_worker().clock.monotonic()
        if reasons and now - self._warned >= WARNING_SECONDS:
            self._warned = now
            log.warning("some queues wait, the others go on: %s", "; ".join(reasons))

    def _is_too_little(self, rows: int) -> bool:
        """Whether to wait: there are fewer rows than ``minRowsPerTrigger``, and ``maxTriggerDelay`` is not
        over.
        """
        if self._options.min_rows is None or self._target is not None or not rows:
            return False
        now = this_worker().clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            rows < self._options.min_rows and (now - self._waiting_since) * 1000 < self._options.max_delay_ms
        )


def _tell_left(told: KnownOffsets, what: str) -> None:
    """Warn that a run begins without some brokers and topics."""
    for name, silence in told.silent.items():
        log.warning("%s does not answer, its queues %s: %s", name, what, silence)
    for topic, error in told.missing.items():
        log.warning("queues of topic %s %s: %s", topic, what, error)
