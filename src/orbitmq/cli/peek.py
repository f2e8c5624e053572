"""Reading a topic without a consumer group: nobody's progress is touched, nothing is registered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from orbitmq.client.core.broker_calls import BrokerCalls, Filter, PullOptions, PullStatus
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import BrokerError, NameServerError, TopicNotFoundError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.reserved import TOOLS_GROUP
from orbitmq.runtime.system import system_runtime
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode

T = TypeVar("T")

# RocketMQ's group for tools; every broker has it, so that looking makes no new group.
PULL_MESSAGES = 1024
SUSPEND_MS = 15_000
# Pulled pieces that wait to be printed; the pulls wait when there are more.
WAITING_PULLS = 16
RETRY_S = 1.0
FAILURES = (TransportError, NameServerError, TopicNotFoundError, BrokerError)
# A broker that starts, stops or is a slave that does not serve yet: another answer comes by itself.
NOT_NOW = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one queue from ``begin`` up to, not including, ``end``; without an end as they come."""

    begin: int
    end: int | None


# From where to read: ``first``, ``last``, epoch milliseconds; or of which queues what.
Begin = int | str | Mapping[MessageQueue, Span]


@dataclass(frozen=True, slots=True)
class Look:
    """From where, whether what is still to come too, and which messages."""

    begin: Begin
    follow: bool
    wanted: Filter


class Failed(NamedTuple):
    """Why a queue of a broker cannot be read (to its end)."""

    broker: str
    error: Exception


# What a queue gave; ``None``: it is read to its end.
Piece = Sequence[ReceivedMessage] | Failed | None


class Peek:
    """Reads topics. Use it as an async context manager.

    Attributes:
        lost: names of the brokers of which something is missing, when all was read.
    """

    def __init__(self, name_servers: str) -> None:
        self.runtime = system_runtime()
        self._client = ClientInstance(self.runtime, name_servers)
        self._calls = BrokerCalls(self._client)
        self._silent: set[str] = set()
        # When a broker was last said to be lost, or back: monotonic seconds.
        self._said_at: dict[str, float] = {}
        self.lost: list[str] = []

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def spans(self, topic: str, begin: int | str, *, follow: bool) -> dict[MessageQueue, Span]:
        """What :meth:`messages` would read now of each queue of ``topic``.

        Raises:
            TopicNotFoundError: no broker has it.
            BrokerError, TransportError: a broker refuses or cannot be reached.
        """
        queues = (await self._client.find_route(topic, for_send=False)).subscribe
        spans = await asyncio.gather(*(self._span(queue, begin, follow) for queue in queues))
        return dict(zip(queues, spans, strict=True))

    async def _span(self, queue: MessageQueue, begin: Begin, follow: bool) -> Span:
        if isinstance(begin, Mapping):
            return begin[queue]
        end = (await self._calls.max_offset(queue)).offset
        if begin == "last":
            start = end
        elif begin == "first":
            start = (await self._calls.min_offset(queue)).offset
        else:
            start = (await self._calls.offset_by_time(queue, int(begin))).offset
        return Span(start, None if follow else end)

    async def messages(
        self, topic: str, begin: Begin, wanted: Filter, *, follow: bool
    ) -> AsyncGenerator[Sequence[ReceivedMessage], None]:
        """The messages of all queues, in pieces; in order within each queue.

        A broker that refuses or does not answer is told on standard error. With ``follow`` it is asked again;
        else it is among ``lost``, and what the others have comes.

        Args:
            begin: ``first``, ``last``, epoch milliseconds, or some queues with what to read of them.
            follow: also what is still to come; else it ends at the present ends.

        Raises:
            TopicNotFoundError: no broker has the topic.
            BrokerError, TransportError: nothing could be read from any queue; of the first.
        """
        route = await self._client.find_route(topic, for_send=False)
        queues = begin if isinstance(begin, Mapping) else route.subscribe
        look = Look(begin, follow, wanted)
        pieces: asyncio.Queue[Piece] = asyncio.Queue(WAITING_PULLS)
        tasks = [asyncio.create_task(self._read(queue, look, pieces)) for queue in queues]
        failed: list[Failed] = []
        ended = 0
        try:
            while ended + len(failed) < len(tasks):
                piece = await pieces.get()
                if piece is None:
                    ended += 1
                elif not isinstance(piece, Failed):
                    yield piece
                elif follow or not isinstance(piece.error, FAILURES):
                    raise piece.error
                else:
                    failed.append(piece)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if failed and not ended:
            raise failed[0].error
        self._tell(failed)

    def _tell(self, failed: Sequence[Failed]) -> None:
        """A line for each broker, whose queues fail alike."""
        errors = {each.broker: each.error for each in failed}
        for broker, error in sorted(errors.items()):
            print(f"{broker}: {error}; its messages are not shown", file=sys.stderr, flush=True)
        self.lost = sorted(errors)

    async def _read(self, queue: MessageQueue, look: Look, pieces: asyncio.Queue[Piece]) -> None:
        try:
            await self._pull_all(queue, look, pieces)
        except Exception as error:  # handed to whoever reads the pieces
            await pieces.put(Failed(queue.broker_name, error))
        else:
            await pieces.put(None)

    def _say(self, broker: str, asked_at: float, error: Exception | None = None) -> None:
        """One line when a broker is lost or back, however many queues it has and tries it takes.

        What was asked before the last such line says nothing new: of its queues some answer while it stops.
        """
        known = (broker in self._silent) == (error is not None)
        if known or asked_at < self._said_at.get(broker, -inf):
            return
        self._said_at[broker] = self.runtime.clock.monotonic()
        if error is None:
            self._silent.remove(broker)
            print(f"{broker}: answers again", file=sys.stderr, flush=True)
        else:
            self._silent.add(broker)
            print(f"{broker}: {error}; trying again", file=sys.stderr, flush=True)

    async def _asked(self, broker: str, follow: bool, call: Callable[[], Awaitable[T]]) -> T:
        """What ``call`` gives; who follows asks again until it does."""
        while True:
            asked_at = self.runtime.clock.monotonic()
            try:
                answer = await call()
            except FAILURES as error:
                if not follow or (isinstance(error, BrokerError) and error.code not in NOT_NOW):
                    raise
                self._say(broker, asked_at, error)
                await self.runtime.clock.sleep(RETRY_S)
            else:
                self._say(broker, asked_at)
                return answer

    async def _pull_all(self, queue: MessageQueue, look: Look, pieces: asyncio.Queue[Piece]) -> None:
        follow, broker = look.follow, queue.broker_name
        span = await self._asked(broker, follow, lambda: self._span(queue, look.begin, follow))
        options = PullOptions(TOOLS_GROUP, PULL_MESSAGES, SUSPEND_MS if follow else 0)
        offset = span.begin
        while span.end is None or offset < span.end:
            pull = partial(self._calls.pull, options, queue, offset, look.wanted, with_filter=True)
            pulled = await self._asked(broker, follow, pull)
            found = [m for m in pulled.messages if span.end is None or m.queue_offset < span.end]
            if found:
                await pieces.put(found)
            if pulled.status is PullStatus.NO_NEW and not follow:
                return  # fewer than promised: what was left has been deleted meanwhile
            offset = pulled.next_offset
