"""Reading fixed ranges of queues, many pulls at a time.

The range is known before it is read, so the pulls for its parts travel together; the answers are put in
order, checked for continuity and joined into record batches. The same range gives the same rows in the same
order however often it is read.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.columns import scan_range
from orbitmq.message.errors import MessageFormatError, RecordError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.arrow import BatchMaker
from orbitmq.spark.brokers import SUBSCRIPTION_IN_HEADER, Brokers, Patience, is_busy
from orbitmq.spark.errors import DataLossError, UnreachableError
from orbitmq.spark.loss import Gap, Loss
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.partitions import QueueRange
from orbitmq.spark.tally import Tally
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse

log = logging.getLogger("orbitmq.spark")

# Offsets that one pull may cover when the broker filters: it returns fewer messages than it looks at.
FILTERED_STEP = 2048
# What a task holds of answers that are not handed out yet, those on their way included.
MEMORY_BYTES = 64 << 20
# How large an answer may be before one was seen: a message of RocketMQ's largest size.
FIRST_ANSWER_BYTES = 4 << 20


class Cursor:
    """What is still to be pulled of one range, and what came ahead of its turn. Does no I/O.

    Args:
        wanted: the range.
        step: how many offsets one pull covers at first.
        strict: every offset of the range must arrive (nothing filters at the broker).
    """

    def __init__(self, wanted: QueueRange, step: int, *, strict: bool) -> None:
        self.wanted = wanted
        self.strict = strict
        self._step = self._longest_step = step
        self._asked = wanted.low
        # In order, since what comes first is handed out first, and the rest waits in memory for it.
        self._holes: list[tuple[int, int]] = []
        self._early: dict[int, tuple[bytes, int, int]] = {}
        self._emitted = wanted.low
        self.settled = 0  # offsets that came or were given up; grows with every progress
        self.held_bytes = 0  # came, but not handed out yet

    @property
    def is_done(self) -> bool:
        """Everything was handed out."""
        return self._emitted >= self.wanted.high

    def next_request(self) -> tuple[int, int] | None:
        """The next part to ask for, as ``[low, high)``, or ``None`` when all of it is asked for."""
        if self._holes:
            return self._holes.pop(0)
        if self._asked >= self.wanted.high:
            return None
        low = self._asked
        self._asked = min(low + self._step, self.wanted.high)
        return low, self._asked

    def retry(self, low: int, high: int) -> None:
        """Nothing came for this part; ask again."""
        insort(self._holes, (low, high))

    def found(self, low: int, high: int, body: bytes, progress: int) -> tuple[int, int] | None:
        """Take the answer to one part.

        Args:
            low: start of the part.
            high: end of the part.
            body: the records that came.
            progress: where the broker says to go on; used when it filters.

        Returns:
            When there is a gap, the expected offset and the one that came instead.

        Raises:
            RecordError: the body is damaged.
        """
        scan = scan_range(body, low, high, self.strict)
        reached = scan.next_offset
        if not self.strict and scan.found < 0:
            # Records behind the part mean that all of it was looked at.
            reached = high if scan.end_position < len(body) else max(reached, min(progress, high))
        if reached > low:
            self._keep(low, reached, body[: scan.end_position], scan.records)
        if reached < high:
            insort(self._holes, (max(reached, low), high))
            if self.strict and scan.records:
                # The broker sends less at a time than we ask for: fit the parts to it.
                self._step = min(self._step, scan.records)
        elif self.strict and high - low >= self._step:
            # It might send more: one large message must not leave all later parts at a length of one.
            self._step = min(2 * self._step, self._longest_step)
        return (scan.next_offset, scan.found) if scan.found >= 0 else None

    def skip(self, low: int, to: int) -> None:
        """Give up the offsets from ``low`` up to ``to``; the rest of that hole stays wanted."""
        for i, (start, high) in enumerate(self._holes):
            if start == low:
                cut = min(max(to, low + 1), high)
                self._keep(low, cut, b"", 0)
                if cut < high:
                    self._holes[i] = (cut, high)
                else:
                    del self._holes[i]
                return

    def _keep(self, low: int, high: int, body: bytes, records: int) -> None:
        self.settled += high - low
        self.held_bytes += len(body)
        self._early[low] = (body, high, records)

    def ready(self) -> Iterator[tuple[bytes, int]]:
        """What is complete up to here: records and their number, in order, each once."""
        while (entry := self._early.pop(self._emitted, None)) is not None:
            body, self._emitted, records = entry
            self.held_bytes -= len(body)
            if records:
                yield body, records


Piece: TypeAlias = tuple[MessageQueue, bytes, int]  # records of one queue, and how many
Part: TypeAlias = tuple[Cursor, int, int]  # and its first and last offset, the last one exclusive


class RangeReader:
    """Reads the ranges of one task.

    Args:
        brokers: the way to the cluster.
        options: filter, batch size, depth, what to do about loss.

    Attributes:
        tally: what was done so far.
        gaps: what was found missing so far.
    """

    def __init__(self, brokers: Brokers, options: ReadOptions) -> None:
        self._brokers = brokers
        self._options = options
        self.tally = Tally()
        self.gaps: list[Gap] = []
        self._strict = not options.is_filtered
        self._patience = Patience(options.offset_timeout_ms)
        self._answer_bytes = FIRST_ANSWER_BYTES

    def batches(self, ranges: Sequence[QueueRange], maker: BatchMaker) -> Iterator[pa.RecordBatch]:
        """The messages of ``ranges``, in the order of the ranges, as batches of about ``batch_bytes``.

        Raises:
            DataLossError: messages of a range are gone and ``failOnDataLoss`` is on.
            UnreachableError: a broker did not answer before the deadline.
            BrokerError: a broker refuses to be read.
            MessageFormatError: a broker sent damaged records; the text names broker, queue and offset.
        """
        pieces: list[Piece] = []
        size = 0
        for piece in self._pieces(ranges):
            pieces.append(piece)
            size += len(piece[1])
            if size >= self._options.batch_bytes:
                yield _batch(pieces, maker)
                pieces, size = [], 0
        if pieces:
            yield _batch(pieces, maker)

    def _pieces(self, ranges: Sequence[QueueRange]) -> Iterator[Piece]:
        step = self._options.pull_messages if self._strict else FILTERED_STEP
        waiting = deque(Cursor(item, step, strict=self._strict) for item in ranges if item.low < item.high)
        while waiting:
            self._round(waiting)
            while waiting:
                head = waiting[0]
                for body, records in head.ready():
                    yield head.wanted.queue, body, records
                if not head.is_done:
                    break
                waiting.popleft()

    def _round(self, waiting: deque[Cursor]) -> None:
        """Send one round of pulls to the broker of the first cursor, and take what comes."""
        queue = waiting[0].wanted.queue
        address, is_master = self._address(queue)
        sent = self._parts(waiting)
        try:
            answers = self._brokers.ask(address, [self._pull(*part) for part in sent])
        except UnreachableError as error:
            for cursor, low, high in sent:
                cursor.retry(low, high)
            self._wait(error)
            self._refresh(queue)
            return
        self.tally.pulled_bytes += sum(len(answer.body) for answer in answers)
        largest = max(len(answer.body) for answer in answers)
        self._answer_bytes = max(largest, self._answer_bytes // 2, 1)
        moved = [self._take(*part, answer, address) for part, answer in zip(sent, answers, strict=True)]
        if any(moved):
            self._patience.succeeded()
        elif self._patience.is_over:
            self._give_up(sent, answers, address, is_master=is_master)
            self._patience.succeeded()
        else:
            self._pause()

    def _parts(self, waiting: deque[Cursor]) -> list[Part]:
        """What to ask for next: as much as the depth and the memory allow, always one part of the first."""
        room = MEMORY_BYTES - sum(cursor.held_bytes for cursor in waiting)
        count = max(1, min(self._options.pull_depth, room // self._answer_bytes))
        parts: list[Part] = []
        for cursor in waiting:
            if cursor.wanted.queue.broker_name != waiting[0].wanted.queue.broker_name:
                break
            while len(parts) < count and (part := cursor.next_request()) is not None:
                parts.append((cursor, *part))
        return parts

    def _address(self, queue: MessageQueue) -> tuple[str, bool]:
        """Where to read the queue, and whether that is a master."""
        while True:
            try:
                route = self._brokers.route(queue.topic)
            except (UnreachableError, TopicNotFoundError) as error:
                # A name server that just started knows no topics yet.
                self._wait(error)
                continue
            if queue in route.readable:
                address = route.readable[queue]
                return address, address in route.masters
            self._wait(UnreachableError(f"no broker serves {queue}"))
            self._refresh(queue)

    def _refresh(self, queue: MessageQueue) -> None:
        try:
            self._brokers.route(queue.topic, refresh=True)
        except (UnreachableError, TopicNotFoundError) as error:
            self._wait(error)

    def _wait(self, error: Exception) -> None:
        if self._patience.is_over:
            raise error
        self._pause()

    def _pause(self) -> None:
        self.tally.retries += 1
        self._patience.pause()

    def _give_up(self, sent: list[Part], answers: list[Command], address: str, *, is_master: bool) -> None:
        """What the broker has not sent for so long: gone if its master says so, else not to be had now.

        Raises:
            DataLossError: the master's queue ends before what was promised, and ``failOnDataLoss`` is on.
            UnreachableError: the broker is busy or behind; what it does not send may still be there.
        """
        for (cursor, low, high), answer in zip(sent, answers, strict=True):
            told = answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
            end = PullMessageResponse.from_ext(answer.ext).max_offset if told and answer.ext else None
            if end is None or not is_master or end > low:
                state = (
                    f"ends at {end}" if end is not None else f"answers {answer.code} {answer.remark or ''}"
                )
                seconds = self._options.offset_timeout_ms / 1000
                raise UnreachableError(
                    f"{address} does not send offset {low} of {cursor.wanted.queue}: it {state} "
                    f"for {seconds:g} s (offsetTimeout)"
                )
            self._lost(cursor, low, high)

    def _pull(self, cursor: Cursor, low: int, high: int) -> Command:
        queue = cursor.wanted.queue
        expression, kind = self._options.subscription
        request = PullMessageRequest(
            consumer_group=self._options.consumer_group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=low,
            max_msg_nums=high - low if self._strict else self._options.pull_messages,
            sys_flag=SUBSCRIPTION_IN_HEADER,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=expression,
            expression_type=kind,
        )
        return request.command()

    def _take(self, cursor: Cursor, low: int, high: int, answer: Command, address: str) -> bool:
        """Put one answer into its cursor; whether that was progress."""
        queue = cursor.wanted.queue
        if is_busy(answer.code) or answer.code == ResponseCode.PULL_NOT_FOUND:
            # Not there yet: the range was promised, so a broker that lacks it is behind or lost it.
            cursor.retry(low, high)
            return False
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            raise BrokerError(answer.code, answer.remark, address)
        header = PullMessageResponse.from_ext(answer.ext)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            cursor.retry(low, high)
            # Also told when an administrator has moved the group, which makes no message go away.
            if header.min_offset <= low:
                return False
            self._lost(cursor, low, min(header.min_offset, high))
            return True
        body = answer.body if answer.code == ResponseCode.SUCCESS else b""
        before = cursor.settled
        try:
            gap = cursor.found(low, high, body, header.next_begin_offset)
        except RecordError as error:
            raise RecordError(f"{address} sent for {queue} from offset {low} on: {error}") from error
        if gap is not None:
            expected, came = gap
            if came < expected:
                raise DataLossError(f"{address} sent offset {came} of {queue} in place of {expected}")
            self._lost(cursor, expected, came)
        return cursor.settled > before

    def _lost(self, cursor: Cursor, low: int, to: int) -> None:
        to = min(to, cursor.wanted.high)
        text = f"offsets {low} to {to - 1} of {cursor.wanted.queue} are not there any more"
        if self._options.on_loss is Loss.FAIL:
            raise DataLossError(f"{text}; failOnDataLoss=false skips them, rows gives a row for each gap")
        log.warning("%s, skipped", text)
        self.tally.skipped += to - low
        self.gaps.append(Gap(cursor.wanted.queue, low, to - low))
        cursor.skip(low, to)


def _batch(pieces: Sequence[Piece], maker: BatchMaker) -> pa.RecordBatch:
    runs: list[tuple[str, int]] = []
    for queue, _, records in pieces:
        if runs and runs[-1][0] == queue.broker_name:
            runs[-1] = (queue.broker_name, runs[-1][1] + records)
        else:
            runs.append((queue.broker_name, records))
    try:
        return maker.batch(b"".join(body for _, body, _ in pieces), runs)
    except MessageFormatError:
        for queue, body, records in pieces:
            try:
                maker.batch(body, [(queue.broker_name, records)])
            except MessageFormatError as error:
                where = f"topic {queue.topic}, broker {queue.broker_name}"
                raise RecordError(f"{where}: {error}; onBadMessage=null or raw goes on") from error
        raise
