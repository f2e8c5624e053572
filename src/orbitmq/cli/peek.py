"""Reading a topic without a consumer group: nobody's progress is touched, nothing is registered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from orbitmq.client.core.broker_calls import BrokerCalls, Filter, PullOptions, PullStatus
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import BrokerError, NameServerError, TopicNotFoundError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.reserved import TOOLS_GROUP
from orbitmq.runtime.system import system_runtime
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode

# RocketMQ's group for tools; every broker has it, so that looking makes no new group.
PULL_MESSAGES = 1024
SUSPEND_MS = 15_000
# Pulled pieces that wait to be printed; the pulls wait when there are more.
WAITING_PULLS = 16
RETRY_S = 1.0
# A broker that starts, stops or is a slave that does not serve yet: another answer comes by itself.
NOT_NOW = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one queue from ``begin`` up to, not including, ``end``; without an end as they come."""

    begin: int
    end: int | None


class Peek:
    """Reads queues from given offsets. Use it as an async context manager."""

    def __init__(self, name_servers: str) -> None:
        self.runtime = system_runtime()
        self._client = ClientInstance(self.runtime, name_servers)
        self._calls = BrokerCalls(self._client)
        self._lost: set[str] = set()

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def spans(self, topic: str, begin: int | str, *, follow: bool) -> dict[MessageQueue, Span]:
        """What to read of each queue of ``topic``.

        Args:
            begin: ``first``, ``last``, or epoch milliseconds.
            follow: also what is still to come.

        Raises:
            TopicNotFoundError: no broker has it.
        """
        route = await self._client.find_route(topic, for_send=False)
        spans = await asyncio.gather(*(self._span(queue, begin, follow) for queue in route.subscribe))
        return dict(zip(route.subscribe, spans, strict=True))

    async def _span(self, queue: MessageQueue, begin: int | str, follow: bool) -> Span:
        end = await self._calls.max_offset(queue)
        if begin == "last":
            start = end
        elif begin == "first":
            start = await self._calls.min_offset(queue)
        else:
            start = await self._calls.offset_by_time(queue, int(begin))
        return Span(start, None if follow else end)

    async def messages(
        self, spans: Mapping[MessageQueue, Span], wanted: Filter
    ) -> AsyncGenerator[Sequence[ReceivedMessage], None]:
        """The messages of all queues, in pieces; in order within each queue. Ends when every span does."""
        pieces: asyncio.Queue[Sequence[ReceivedMessage] | BaseException | None] = asyncio.Queue(WAITING_PULLS)
        tasks = [
            asyncio.create_task(self._read(queue, span, wanted, pieces)) for queue, span in spans.items()
        ]
        left = len(tasks)
        try:
            while left:
                piece = await pieces.get()
                if piece is None:
                    left -= 1
                elif isinstance(piece, BaseException):
                    raise piece
                else:
                    yield piece
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self,
        queue: MessageQueue,
        span: Span,
        wanted: Filter,
        pieces: asyncio.Queue[Sequence[ReceivedMessage] | BaseException | None],
    ) -> None:
        try:
            await self._pull_all(queue, span, wanted, pieces)
        except Exception as error:  # handed to whoever reads the pieces
            await pieces.put(error)
        else:
            await pieces.put(None)

    def _say_lost(self, broker: str, error: Exception) -> None:
        """One line, however many queues it has and tries it takes."""
        if broker not in self._lost:
            self._lost.add(broker)
            print(f"{broker}: {error}; trying again", file=sys.stderr, flush=True)

    def _say_back(self, broker: str) -> None:
        if broker in self._lost:
            self._lost.remove(broker)
            print(f"{broker}: answers again", file=sys.stderr, flush=True)

    async def _pull_all(
        self,
        queue: MessageQueue,
        span: Span,
        wanted: Filter,
        pieces: asyncio.Queue[Sequence[ReceivedMessage] | BaseException | None],
    ) -> None:
        follow = span.end is None
        options = PullOptions(TOOLS_GROUP, PULL_MESSAGES, SUSPEND_MS if follow else 0)
        offset = span.begin
        while span.end is None or offset < span.end:
            try:
                pulled = await self._calls.pull(options, queue, offset, wanted, with_filter=True)
            except (TransportError, NameServerError, TopicNotFoundError, BrokerError) as error:
                if not follow or (isinstance(error, BrokerError) and error.code not in NOT_NOW):
                    raise
                self._say_lost(queue.broker_name, error)
                await self.runtime.clock.sleep(RETRY_S)
                continue
            self._say_back(queue.broker_name)
            found = [m for m in pulled.messages if span.end is None or m.queue_offset < span.end]
            if found:
                await pieces.put(found)
            if pulled.status is PullStatus.NO_NEW and not follow:
                return  # fewer than promised: what was left has been deleted meanwhile
            offset = pulled.next_offset
