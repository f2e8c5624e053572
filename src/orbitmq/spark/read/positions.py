"""Resolves places such as ``earliest`` to the offsets of all queues."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster.brokers import Brokers, Missing, RetryWindow, max_offset, min_offset
from orbitmq.spark.cluster.offsets import Offsets, begin_of
from orbitmq.spark.cluster.places import EARLIEST_OFFSET, LATEST_OFFSET, AtOffsets, AtTime, Place, Start
from orbitmq.spark.cluster.times import TimeSearch
from orbitmq.spark.errors import DataLossError, OffsetError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.pulling.silence import Silence
from orbitmq.spark.read.filters import FilterCheck
from orbitmq.spark.read.sizes import FEW_ROWS, Sizes
from orbitmq.wire.command import Command

log = logging.getLogger("orbitmq.spark")

# The largest step back of a broker's clock between two messages of a queue for which a search allows.
CLOCK_MARGIN_MS = 10_000

T = TypeVar("T")


class KnownOffsets(NamedTuple):
    """One offset of each queue whose broker answered.

    Attributes:
        offsets: offsets by queue.
        silent: the errors of brokers that do not answer, by broker name.
        missing: the errors of topics without a route or an assigned queue, by topic name.
    """

    offsets: Offsets
    silent: Mapping[str, UnreachableError]
    missing: Mapping[str, Missing]


class Positions:
    """Requests the begins and ends of queues from the brokers.

    Args:
        options: topics and name servers.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.brokers = Brokers(options.name_servers, options.request_timeout_ms, identity=options.identity)
        self._sizes = Sizes(self.brokers, options.consumer_group)
        self._times = TimeSearch(self.brokers, options.consumer_group)
        self._filter = FilterCheck(self.brokers, options)

    def bytes_of(self, ranges: Sequence[QueueRange]) -> int:
        """The approximate size of the messages of ``ranges`` in the brokers, from a sample of each queue."""
        if sum(item.rows for item in ranges) <= FEW_ROWS:
            return 0
        return self._sizes.bytes_of(ranges, self._owners(ranges))

    def check_filter(self, ranges: Sequence[QueueRange]) -> None:
        """Check that the brokers of ``ranges`` can filter by the option sql; each broker is asked once.

        Raises:
            OptionError: a broker cannot.
            UnreachableError: a broker did not answer, or was missing at the name servers, for
                ``offsetTimeout``, and in a stream no other broker answers, either.
        """
        if self.options.sql is None:
            return
        queues = {(item.queue.topic, item.queue.broker_name): item.queue for item in ranges}
        for (_, broker_name), queue in sorted(queues.items()):
            self._planned_with_retries(partial(self._check_filter_at, queue), broker_name)

    def _check_filter_at(self, queue: MessageQueue) -> None:
        """Check the filter at the broker of a queue, with a fresh route if the known one has no address for
        it.
        """
        at = self.brokers.route(queue.topic).readable.get(queue)
        if at is None:
            at = self.brokers.route(queue.topic, refresh=True).readable.get(queue)
        if at is None:
            raise UnreachableError(f"no broker serves {queue}")
        try:
            self._filter.check(queue.topic, at)
        except UnreachableError:
            self.brokers.route(queue.topic, refresh=True)
            raise

    def narrowed(
        self, ranges: Iterable[QueueRange], low_ms: int | None, high_ms: int | None
    ) -> list[QueueRange]:
        """The parts of ``ranges`` that hold every message stored from one time, included, to another,
        excluded.

        They may hold a few other messages, since a broker's clock may have been set back.
        """
        left = {item.queue: item for item in ranges}
        owners = self._owners(left.values())
        for bound, is_low in ((low_ms, True), (high_ms, False)):
            if bound is None or not left:
                continue
            at_ms = max(1, bound - CLOCK_MARGIN_MS if is_low else bound + CLOCK_MARGIN_MS)
            first = {queue: item.low for queue, item in left.items()}
            last = {queue: item.high for queue, item in left.items()}
            times = dict.fromkeys(left, at_ms)
            found = self._with_retries(partial(self._times.first_at, owners, times, first, last))
            cut = (
                QueueRange(q, found[q], item.high) if is_low else QueueRange(q, item.low, found[q])
                for q, item in left.items()
            )
            left = {item.queue: item for item in cut if item.rows > 0}
        return list(left.values())

    def _owners(self, ranges: Iterable[QueueRange]) -> dict[MessageQueue, str]:
        """The addresses of the queues of ``ranges``, by the known routes."""
        queues = {item.queue for item in ranges}
        readable: dict[MessageQueue, str] = {}
        for topic in {queue.topic for queue in queues}:
            readable |= self.brokers.route(topic).readable
        return {queue: at for queue, at in readable.items() if queue in queues}

    def latest_where_possible(self) -> KnownOffsets:
        """The offset after the last message of every readable queue whose broker answers.

        Raises:
            UnreachableError, TopicNotFoundError: no topic has a route.
        """
        return self._where_possible(*self._queues_where_possible(), max_offset)

    def _where_possible(
        self,
        queues: dict[MessageQueue, str],
        missing: Mapping[str, Missing],
        request: Callable[[MessageQueue], Command],
    ) -> KnownOffsets:
        found, failures = self.brokers.offsets_where_possible(queues, request)
        silent = {q.broker_name: failures[at] for q, at in sorted(queues.items()) if at in failures}
        return KnownOffsets(Offsets(found), silent, missing)

    def first_of(self, queues: set[MessageQueue]) -> dict[MessageQueue, int]:
        """The first offsets of queues whose brokers answer."""
        if not queues:
            return {}
        owners = {queue: at for queue, at in self._queues_where_possible()[0].items() if queue in queues}
        return self.brokers.offsets_where_possible(owners, min_offset)[0]

    def check_place(self, place: Offsets) -> None:
        """Check that the offsets of a checkpoint belong to the topics in the options.

        Raises:
            OffsetError: the checkpoint names only other topics.
        """
        pattern = self.options.topic_pattern
        topics = {queue.topic for queue in place}
        if pattern is not None:
            ours = {topic for topic in topics if re.fullmatch(pattern, topic)}
        else:
            ours = topics & set(self.options.topics)
        if topics and not ours:
            raise OffsetError(
                f"the checkpoint is that of a query of {', '.join(sorted(topics))}, this one reads "
                f"{self._what()}: give it another checkpointLocation"
            )

    def is_told_by_master(self, queue: MessageQueue) -> bool:
        """Whether the queue's offsets come from a master; a slave's may only be behind."""
        address = self.brokers.route(queue.topic).readable.get(queue, "")
        return self.brokers.is_master(queue.topic, address)

    def start(self) -> Offsets:
        """The offsets at which the query begins, by its options.

        Raises:
            OffsetError: the options name a queue that does not exist.
            DataLossError: the options name an offset outside of the queue, and ``failOnDataLoss`` is on.
            UnreachableError: for longer than the planning of a query waits, the cluster did not answer, or
                only a slave that is behind did.
        """
        return self._with_retries(lambda: self._resolve(self.options.starting, Start.EARLIEST))

    def end(self) -> Offsets:
        """The offsets at which a batch query ends, by its options. Errors as with :meth:`start`."""
        return self._with_retries(lambda: self._resolve(self.options.ending, Start.LATEST))

    def _with_retries(self, resolve: Callable[[], T]) -> T:
        """The result of ``resolve``, with retries while the cluster does not answer."""
        window = RetryWindow(self.options.plan_timeout_ms)
        while True:
            try:
                return resolve()
            except UnreachableError:
                if window.is_over:
                    raise
                window.pause()

    def _planned_with_retries(self, resolve: Callable[[], T], broker_name: str | None = None) -> T:
        """The result of ``resolve`` for a batch with a planned end, which needs all its brokers; with
        retries.

        Args:
            broker_name: the broker that ``resolve`` asks; ``None`` if there are several.
        """
        silence = Silence(self.brokers, self.options, RetryWindow(self.options.plan_timeout_ms))
        while True:
            try:
                return resolve()
            except (UnreachableError, TopicNotFoundError) as error:
                # A name server that was just started has no topics yet.
                silence.wait_or_raise(error, broker_name)

    def where_in_time(
        self,
        request: Callable[[MessageQueue], Command],
        *,
        every_queue: bool = False,
        every_broker: bool = True,
    ) -> KnownOffsets:
        """One offset of every readable queue whose broker answers within ``offsetTimeout``.

        Args:
            every_queue: whether a topic without a route, or a missing assigned queue, is an error at once, as
                at the begin of a query: the name may be wrong.
            every_broker: wait for every broker, not only for the first answer.

        Raises:
            OffsetError: the option assign names a queue that does not exist.
            TopicNotFoundError: a topic does not exist.
            UnreachableError: no broker answered within that time.
        """
        window = RetryWindow(self.options.plan_timeout_ms)
        while True:
            if every_queue:
                queues, missing = self._with_retries(self._queues), dict[str, Missing]()
                self._check_assigned(queues)
            else:
                queues, missing = self._with_retries(self._queues_where_possible)
            told = self._where_possible(queues, missing, request)
            is_enough = not told.silent or (bool(told.offsets) and not every_broker)
            if is_enough or window.is_over:
                break
            window.pause()
        if told.silent and not told.offsets:
            raise next(iter(told.silent.values()))
        return told

    def _resolve(self, place: Place, other: Start) -> Offsets:
        """The offsets of ``place``; queues that it does not name are at ``other``."""
        queues = self._queues()
        self._check_assigned(queues)
        first = self.brokers.offsets(queues, min_offset)
        if place is Start.EARLIEST:
            return Offsets(first)
        last = self.brokers.offsets(queues, max_offset)
        if place is Start.LATEST:
            return Offsets(last)
        if isinstance(place, AtTime):
            return Offsets(self._at_time(place, queues, first, last, other))
        if isinstance(place, AtOffsets):
            named = place.queues
        else:
            named = self.brokers.committed(self.options.consumer_group, queues)
        self._check_known(named, queues, f"{_option(other)}Offsets")
        others = first if other is Start.EARLIEST else last
        standing = {EARLIEST_OFFSET: first, LATEST_OFFSET: last}
        table: dict[MessageQueue, int] = {}
        for queue in queues:
            offset = named.get(queue, others[queue])
            at = standing[offset][queue] if offset in standing else offset
            table[queue] = self._within(queue, at, first[queue], last[queue])
        return Offsets(table)

    def _at_time(
        self,
        place: AtTime,
        queues: dict[MessageQueue, str],
        first: Mapping[MessageQueue, int],
        last: Mapping[MessageQueue, int],
        other: Start,
    ) -> dict[MessageQueue, int]:
        """The offset of the first message stored at a time or later, in each queue.

        For the start of a read, a topic without such a message is an error, since the time may be a mistake,
        unless startingTimestampStrategy=latest. A queue without such a message begins at its end if another
        queue has one.
        """
        self._check_known(place.queues, queues, f"{_option(other)}OffsetsByTimestamp")
        times = {queue: place.queues.get(queue, place.at_ms) for queue in queues}
        asked = {queue: at for queue, at in times.items() if at is not None}
        found = self._times.first_at(queues, asked, first, last)
        if other is Start.EARLIEST and self.options.time_strategy == "error":
            topics = {queue.topic for queue in found}
            late = topics - {queue.topic for queue, offset in found.items() if offset < last[queue]}
            filled = {queue.topic for queue in found if first[queue] < last[queue]}
            option = "startingTimestamp" if place.at_ms is not None else "startingOffsetsByTimestamp"
            for topic in sorted(late & filled):
                raise OffsetError(
                    f"topic {topic} has no message as new as {option}; "
                    "startingTimestampStrategy=latest begins at its end"
                )
        others = first if other is Start.EARLIEST else last
        return {queue: found.get(queue, others[queue]) for queue in queues}

    def _check_known(
        self, named: Iterable[MessageQueue], queues: Mapping[MessageQueue, str], option: str
    ) -> None:
        for queue in named:
            if queue not in queues:
                raise OffsetError(
                    f"option {option} names {queue}, which is not a readable queue of {self._what()}"
                )

    def _check_assigned(self, queues: Mapping[MessageQueue, str]) -> None:
        missing = sorted(queue for queue in self.options.assigned or () if queue not in queues)
        if missing:
            raise OffsetError(f"option assign names {missing[0]}, which is not a readable queue")

    def _what(self) -> str:
        pattern = self.options.topic_pattern
        return f"topicPattern {pattern!r}" if pattern else ", ".join(self.options.topics)

    def _within(self, queue: MessageQueue, offset: int, first: int, last: int) -> int:
        if first <= offset <= last:
            return offset
        if offset < first:
            if not self.is_told_by_master(queue):
                raise UnreachableError(
                    f"a slave has not got offset {offset} of {queue}, it begins at {first}"
                )
            self.lost(f"offset {offset} of {queue} is gone, the first one left is {first}")
            return first
        if not self.is_told_by_master(queue):
            raise UnreachableError(f"a slave has not got offset {offset} of {queue} yet, it ends at {last}")
        self.lost(f"offset {offset} of {queue} is not there, the queue ends at {last}")
        return last

    def lost(self, text: str) -> None:
        """Report a loss: as an error with ``failOnDataLoss``, else as a warning.

        Raises:
            DataLossError: with ``failOnDataLoss``.
        """
        if self.options.fail_on_loss:
            raise DataLossError(f"{text}; failOnDataLoss=false goes on with what is there")
        log.warning("%s", text)

    def checked_ends(self, start: Offsets, end: Offsets) -> Offsets:
        """``end`` of a batch query, never before ``start``.

        Raises:
            DataLossError: a queue's end is before its begin, and ``failOnDataLoss`` is on.
        """
        table: dict[MessageQueue, int] = {}
        for queue, offset in end.items():
            begin = begin_of(start, end, queue)
            if offset < begin:
                text = f"{queue} ends at {offset}, before the begin of the read at {begin}"
                self.lost(text)
            table[queue] = max(offset, begin)
        return Offsets(table)

    def unknown_firsts(self, start: Offsets, end: Offsets) -> Mapping[MessageQueue, int]:
        """The brokers' first offsets of the queues for which neither ``start`` nor ``end`` has one.

        Raises:
            UnreachableError: a broker does not answer for ``offsetTimeout``, and in a stream no other broker
                answers, either.
        """
        unknown = {q for q, offset in end.items() if offset and q not in start and q not in end.begins}
        if not unknown:
            return {}

        def firsts() -> dict[MessageQueue, int]:
            queues, missing = self._queues_where_possible()
            for queue in sorted(unknown - queues.keys()):
                raise missing.get(queue.topic) or UnreachableError(f"no broker serves {queue}")
            owners = {queue: at for queue, at in queues.items() if queue in unknown}
            return self.brokers.offsets(owners, min_offset)

        return self._planned_with_retries(firsts)

    def _queues(self) -> dict[MessageQueue, str]:
        # Each call requests fresh routes: queues are added and brokers move while a query runs.
        found = self.brokers.readable(self._topics(), refresh=True)
        return self._assigned(found)

    def _queues_where_possible(self) -> tuple[dict[MessageQueue, str], dict[str, Missing]]:
        """The :meth:`_queues` of topics that have a route, and the errors of the other topics by name.

        Raises:
            UnreachableError, TopicNotFoundError: no topic has a route.
        """
        found, missing = self.brokers.readable_where_possible(self._topics(), refresh=True)
        if not found:
            for error in missing.values():
                raise error
        for queue in sorted((self.options.assigned or frozenset()) - found.keys()):
            missing.setdefault(queue.topic, UnreachableError(f"no broker serves {queue}"))
        return self._assigned(found), missing

    def _assigned(self, queues: dict[MessageQueue, str]) -> dict[MessageQueue, str]:
        """The queues among ``queues`` that the option assign names; all of them without that option."""
        chosen = self.options.assigned
        return queues if chosen is None else {queue: at for queue, at in queues.items() if queue in chosen}

    def _topics(self) -> tuple[str, ...]:
        pattern = self.options.topic_pattern
        if pattern is None:
            return self.options.topics
        topics = self.brokers.topics_like(pattern)
        if not topics:
            raise TopicNotFoundError(pattern, f"no topic has a name that matches topicPattern={pattern!r}")
        return topics


def _option(other: Start) -> str:
    """The first part of the names of the options for this place."""
    return "starting" if other is Start.EARLIEST else "ending"
