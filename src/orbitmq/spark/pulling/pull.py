"""Reads fixed ranges of queues, with many pulls at a time.

The range is known before it is read, so the pulls for its parts are sent together, and the next ones are in
flight while arrived records are decoded. The answers are put in order, checked for continuity and joined into
record batches. The same range gives the same rows in the same order however often it is read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.errors import MessageFormatError, RecordError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Buffer
from orbitmq.spark.cluster.brokers import SUBSCRIPTION_IN_HEADER, Brokers, RetryWindow, is_busy
from orbitmq.spark.cluster.connections import Conversation
from orbitmq.spark.errors import DataLossError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.cursor import PULL_BYTES, Cursor, Part, PartSize
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.pulling.silence import Silence
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from orbitmq.wire.refusals import error_of

log = logging.getLogger("orbitmq.spark")

# Most bytes of answers that arrived before their turn. Further answers are dropped and requested again.
MEMORY_BYTES = 64 << 20
# Most bytes in flight to a task: enough to keep the broker busy while the task decodes, and few enough to
# stay in the processor's cache.
FLIGHT_BYTES = 4 << 20


class Piece(NamedTuple):
    """Records of one queue, and their number."""

    queue: MessageQueue
    records: Buffer
    rows: int


class _Asked(NamedTuple):
    """A pull in flight."""

    cursor: Cursor
    part: Part


class _Flight:
    """The pulls in flight to one broker."""

    def __init__(self, broker_name: str, address: str, conversation: Conversation) -> None:
        self.broker_name = broker_name
        self.address = address
        self._conversation = conversation
        self._asked: dict[int, _Asked] = {}
        # True after an empty answer: no pull is sent until all answers in flight have arrived.
        self.is_held = False
        self.empty: list[tuple[_Asked, Command]] = []  # empty answers that arrived meanwhile
        self.has_progress = False

    def __len__(self) -> int:
        return len(self._asked)

    def send(self, pulls: Sequence[_Asked], commands: Sequence[Command]) -> None:
        """Send pulls.

        Raises:
            UnreachableError: the connection broke.
        """
        try:
            numbers = self._conversation.send(commands)
        except UnreachableError:
            for cursor, part in pulls:
                cursor.retry(part)
            raise
        self._asked.update(zip(numbers, pulls, strict=True))

    def receive(self) -> tuple[_Asked, Command, Buffer]:
        """The next answer and its records.

        Raises:
            UnreachableError: no answer in time, or the connection broke.
        """
        number, answer, body = self._conversation.receive()
        return self._asked.pop(number), answer, body

    def give_up(self) -> None:
        """Give up the connection; its parts in flight are requested again."""
        for cursor, part in self._asked.values():
            cursor.retry(part)
        self._asked.clear()
        self.close()

    def close(self) -> None:
        self._conversation.close()


class RangeReader:
    """Reads the ranges of one task.

    Args:
        brokers: the cluster.
        options: filter, batch size, number of pulls in flight, behaviour after a loss.
    """

    def __init__(self, brokers: Brokers, options: ReadOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._strict = not options.is_filtered
        self._window = RetryWindow(options.offset_timeout_ms)
        self._silence = Silence(brokers, options, self._window)
        self._answer_bytes = PULL_BYTES
        self._held_bytes = 0
        self._flight: _Flight | None = None

    def batches(self, ranges: Sequence[QueueRange], maker: BatchMaker) -> Iterator[pa.RecordBatch]:
        """The messages of ``ranges``, in the order of the ranges, as batches of about ``batch_bytes``.

        Raises:
            DataLossError: messages of a range are lost and ``failOnDataLoss`` is on.
            UnreachableError: a broker did not answer before the deadline, and in a stream no other broker
                answers, either.
            BrokerError: a broker refuses to be read from.
            MessageFormatError: a broker sent damaged records; the text names broker, queue and offset.
        """
        pieces: list[Piece] = []
        size = 0
        for piece in self.pieces(ranges):
            pieces.append(piece)
            size += len(piece.records)
            if size >= self._options.batch_bytes:
                yield _batch(pieces, maker)
                pieces, size = [], 0
        if pieces:
            yield _batch(pieces, maker)

    def pieces(self, ranges: Sequence[QueueRange]) -> Iterator[Piece]:
        """The stored records of ``ranges``, in order. Errors as with :meth:`batches`."""
        size = PartSize(self._options.pull_messages, strict=self._strict)
        waiting = deque(Cursor(item, size, strict=self._strict) for item in ranges if item.low < item.high)
        try:
            while waiting:
                self._advance(waiting)
                while waiting:
                    head = waiting[0]
                    for records, count in head.ready():
                        self._held_bytes -= len(records)
                        yield Piece(head.wanted.queue, records, count)
                    if not head.is_done:
                        break
                    waiting.popleft()
        finally:
            self._land()

    # -- one answer at a time --------------------------------------------------------------------

    def _advance(self, waiting: deque[Cursor]) -> None:
        """Send the next requests, and process one answer from the broker of the first cursor."""
        queue = waiting[0].wanted.queue
        if self._flight is not None and self._flight.broker_name != queue.broker_name:
            self._land()
        flight = self._flight
        address = self._address(queue) if flight is None else flight.address
        try:
            flight = flight or self._take_off(queue, address)
            self._ask(flight, waiting)
            asked, answer, body = flight.receive()
        except UnreachableError as error:
            self._broke(queue, error)
            return
        self._take(flight, asked, answer, body, waiting)
        if flight.is_held and not len(flight):
            self._retry_after(flight)
        try:
            self._ask(flight, waiting)
        except UnreachableError as error:
            self._broke(queue, error)

    def _take_off(self, queue: MessageQueue, address: str) -> _Flight:
        # Arrow's pool reuses the memory of earlier answers, without clearing it.
        conversation = self._brokers.converse(address, pa.allocate_buffer)
        self._flight = _Flight(queue.broker_name, address, conversation)
        return self._flight

    def _broke(self, queue: MessageQueue, error: UnreachableError) -> None:
        """Handle a missing answer or a broken connection: after a pause, look up the broker again."""
        if self._flight is not None:
            self._flight.give_up()
            self._flight = None
        self._wait(queue, error)
        self._refresh(queue)

    def _land(self) -> None:
        if self._flight is not None:
            self._flight.close()
            self._flight = None

    def _ask(self, flight: _Flight, waiting: deque[Cursor]) -> None:
        """Send the next pulls if at most half of the allowed pulls are in flight."""
        window = max(1, min(self._options.pull_depth, FLIGHT_BYTES // max(1, self._answer_bytes)))
        if flight.is_held or 2 * len(flight) > window:
            return
        room = window - len(flight)
        pulls: list[_Asked] = []
        for cursor in waiting:
            if len(pulls) == room or cursor.wanted.queue.broker_name != flight.broker_name:
                break
            while len(pulls) < room and (part := cursor.next_part()) is not None:
                pulls.append(_Asked(cursor, part))
        if pulls:
            flight.send(pulls, [self._pull(*pull) for pull in pulls])

    def _pull(self, cursor: Cursor, part: Part) -> Command:
        queue = cursor.wanted.queue
        expression, kind = self._options.subscription
        request = PullMessageRequest(
            consumer_group=self._options.consumer_group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=part.low,
            max_msg_nums=part.limit,
            max_msg_bytes=PULL_BYTES,
            sys_flag=SUBSCRIPTION_IN_HEADER,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=expression,
            expression_type=kind,
        )
        return request.command()

    def _take(
        self, flight: _Flight, asked: _Asked, answer: Command, body: Buffer, waiting: deque[Cursor]
    ) -> None:
        """Store one answer in its cursor."""
        cursor, part = asked
        self._answer_bytes = max(len(body), self._answer_bytes * 7 // 8)
        early = cursor is not waiting[0] or not cursor.is_next(part)
        if early and self._held_bytes + len(body) > MEMORY_BYTES:
            cursor.retry(part)
            # The part that is needed first is in flight: it must not wait behind parts that would be dropped
            # again.
            flight.is_held = flight.has_progress = True
            return
        before = cursor.held_bytes
        if self._is_progress(flight, asked, answer, body):
            flight.has_progress = True
            self._window.succeeded()
        else:
            # A slave that is behind gets the request again after a pause.
            flight.is_held = True
            flight.empty.append((asked, answer))
        self._held_bytes += cursor.held_bytes - before

    def _is_progress(self, flight: _Flight, asked: _Asked, answer: Command, body: Buffer) -> bool:
        cursor, part = asked
        queue = cursor.wanted.queue
        if is_busy(answer.code) or answer.code == ResponseCode.PULL_NOT_FOUND:
            # The broker lacks messages of a promised range: it is behind, or has lost them.
            cursor.retry(part)
            return False
        if answer.code not in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):
            fields = {"topic": queue.topic, "consumerGroup": self._options.consumer_group}
            sent = self._brokers.identity.command(RequestCode.PULL_MESSAGE, fields)
            raise error_of(sent, answer, flight.address)
        header = PullMessageResponse.from_ext(answer.ext)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            cursor.retry(part)
            # Brokers also send this code after an administrator has moved the group; then no message is lost.
            if header.min_offset <= part.low or not self._is_master(queue, flight.address):
                return False
            self._lost(cursor, part.low, min(header.min_offset, part.high))
            return True
        records = body if answer.code == ResponseCode.SUCCESS else b""
        before = cursor.settled
        try:
            gap = cursor.found(part, records, header.next_begin_offset)
        except RecordError as error:
            raise RecordError(
                f"{flight.address} sent for {queue} from offset {part.low} on: {error}"
            ) from error
        if gap is not None:
            expected, came = gap
            if came < expected:
                raise DataLossError(f"{flight.address} sent offset {came} of {queue} in place of {expected}")
            self._lost(cursor, expected, came)
        return cursor.settled > before

    # -- when no records arrive ----------------------------------------------------------------------------

    def _retry_after(self, flight: _Flight) -> None:
        """After empty answers, wait a little, unless other answers had messages."""
        if not flight.has_progress:
            if self._window.is_over:
                self._give_up(flight)
                self._window.succeeded()
            else:
                self._window.pause()
        flight.empty.clear()
        flight.is_held = flight.has_progress = False

    def _give_up(self, flight: _Flight) -> None:
        """Give up messages that the broker has not sent in time: they are lost if the master's answer shows
        that.

        Raises:
            DataLossError: the master's queue ends before the promised end, and ``failOnDataLoss`` is on.
            UnreachableError: the broker is busy or behind; the messages may still exist.
        """
        for (cursor, part), answer in flight.empty:
            told = answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
            header = PullMessageResponse.from_ext(answer.ext) if told and answer.ext else None
            queue = cursor.wanted.queue
            if header is None or header.max_offset > part.low or not self._is_master(queue, flight.address):
                state = f"answers {answer.code} {answer.remark or ''}"
                if header is not None:
                    behind = header.min_offset > part.low
                    state = f"begins at {header.min_offset}" if behind else f"ends at {header.max_offset}"
                seconds = self._options.offset_timeout_ms / 1000
                raise UnreachableError(
                    f"{flight.address} does not send offset {part.low} of {queue}: it {state} "
                    f"for {seconds:g} s (offsetTimeout)"
                )
            self._lost(cursor, part.low, part.high)

    def _is_master(self, queue: MessageQueue, address: str) -> bool:
        """Whether the broker can prove that messages are lost: only a master can; a slave may be behind."""
        try:
            return self._brokers.is_master(queue.topic, address)
        except (UnreachableError, TopicNotFoundError):
            # The flight may have begun with another topic, and a new name server learns of this topic late.
            return False

    def _address(self, queue: MessageQueue) -> str:
        """The address to read the queue from."""
        while True:
            try:
                route = self._brokers.route(queue.topic)
            except (UnreachableError, TopicNotFoundError) as error:
                # A name server that was just started has no topics yet.
                self._wait(queue, error)
                continue
            if queue in route.readable:
                return route.readable[queue]
            self._wait(queue, UnreachableError(f"no broker serves {queue}"))
            self._refresh(queue)

    def _refresh(self, queue: MessageQueue) -> None:
        try:
            self._brokers.route(queue.topic, refresh=True)
        except (UnreachableError, TopicNotFoundError) as error:
            self._wait(queue, error)

    def _wait(self, queue: MessageQueue, error: UnreachableError | TopicNotFoundError) -> None:
        self._silence.wait_or_raise(error, queue.broker_name)

    def _lost(self, cursor: Cursor, low: int, to: int) -> None:
        to = min(to, cursor.wanted.high)
        text = f"offsets {low} to {to - 1} of {cursor.wanted.queue} are not there any more"
        if self._options.fail_on_loss:
            raise DataLossError(f"{text}; failOnDataLoss=false skips them")
        log.warning("%s, skipped", text)
        cursor.skip(low, to)


def _batch(pieces: Sequence[Piece], maker: BatchMaker) -> pa.RecordBatch:
    runs: list[tuple[str, int]] = []
    for queue, _, count in pieces:
        if runs and runs[-1][0] == queue.broker_name:
            runs[-1] = (queue.broker_name, runs[-1][1] + count)
        else:
            runs.append((queue.broker_name, count))
    try:
        return maker.batch([piece.records for piece in pieces], runs)
    except MessageFormatError:
        for queue, records, count in pieces:
            try:
                maker.batch([records], [(queue.broker_name, count)])
            except MessageFormatError as error:
                where = f"topic {queue.topic}, broker {queue.broker_name}"
                raise RecordError(f"{where}: {error}; onBadMessage=null or raw goes on") from error
        raise
