"""Reading a topic without a consumer group: no group's progress changes, and nothing is registered at
brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TypeVar

from orbitmq.client.consumer.membership import Membership
from orbitmq.client.consumer.options import MemberOptions, ReaderOptions, ReaderStart
from orbitmq.client.consumer.ready import ReadyLine
from orbitmq.client.core.broker_calls import PullOptions, PullStatus
from orbitmq.client.keywords import takes
from orbitmq.client.life import AsyncContext, ClientState
from orbitmq.client.model import ConsumeFrom
from orbitmq.durations import since_1970_ms
from orbitmq.errors import (
    BrokerError,
    NameServerError,
    NotAllReadError,
    TopicNotFoundError,
)
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.reserved import TOOLS_GROUP
from orbitmq.parameters import refuses_unknown
from orbitmq.runtime.line import Line
from orbitmq.runtime.tasks import Background
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")

PULL_MESSAGES = 1024
SUSPEND_MS = 15_000
# Most lists of messages that wait for the loop that reads them; further pulls wait.
WAITING_PULLS = 16
RETRY_S = 1.0
# Most consecutive pulls without messages before the end offset that the broker has named.
EMPTY_PULLS = 15
FAILURES = (TransportError, NameServerError, TopicNotFoundError, BrokerError)
# Answers of a broker that is starting or stopping, or of a slave that does not serve yet: a later try may
# succeed.
NOT_NOW = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Messages of one queue, and how far the queue is read.

    Attributes:
        messages: in the order of the queue; empty if none of the messages read passed the filter.
        next_offset: all messages below this offset were returned, or did not pass the filter. A later reader
            may ``start`` there.
    """

    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    next_offset: int


@dataclass(frozen=True, slots=True)
class _Ended:
    """Marks a queue as read to its end, or as failed."""

    broker: str
    error: Exception | None = None


@refuses_unknown
class Reader(AsyncContext):
    """Reads the messages of a topic, in order within each queue. It belongs to no group and commits nothing.

    ::

        async with Reader("orders", name_servers="127.0.0.1:9876") as reader:
            async for message in reader:
                ...

    The iteration ends at the queues' ends of the time when it began; with ``follow=True`` it never ends.
    Queues added to the topic later are not read.

    Args:
        topic: the topic, which may be a dead letter topic, ``%DLQ%group``.
        start: :attr:`ConsumeFrom.FIRST` or :attr:`ConsumeFrom.LAST`; a datetime with a time zone: at the
            first message stored then or later; or a mapping of queues to offsets, as :meth:`offsets` returns
            it: then only these queues are read.
        tags: ``*`` for all messages, else ``a || b``.
        sql: an SQL92 expression over properties instead of tags.
        follow: continue with messages that arrive later.
        on_broker: called with a broker's name and an error when the broker does not answer, and with its name
            and None when it answers again; by default both are logged.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: the value of ``NAMESRV_ADDR``, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client. Made of host, process and a random number by
            default.
        namespace: the topic is meant inside this namespace.
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
        credentials: ``Credentials(access_key, secret_key)`` that every request is signed with, or a function
            that is called for each request and returns them.
        tls: ``Tls(ca=, cert=, key=)`` for servers that speak TLS; without it connections are plain TCP.
        client: share the connections of another client instance.
        runtime: the machine; the real one by default.

    Attributes:
        topic: the topic that is read.
    """

    @takes(ReaderOptions)
    def __init__(self, settings: ReaderOptions) -> None:
        self._settings = settings
        self._membership = membership = Membership(
            TOOLS_GROUP,  # Every broker has this group, so that reading creates no new one.
            MemberOptions(
                name_servers=settings.name_servers,
                client_id=settings.client_id,
                namespace=settings.namespace,
                namespace_v2=settings.namespace_v2,
                credentials=settings.credentials,
                tls=settings.tls,
                client=settings.client,
                runtime=settings.runtime,
            ),
        )
        self.topic = topic = settings.topic
        self._full_topic = membership.full_topic(topic)
        self._wanted = membership.wanted(settings.tags, settings.sql)
        self._client, self._calls = membership.client, membership.calls
        self._clock = self._client.runtime.clock
        self._life = ClientState(f"reader of {topic!r}")
        self._background = Background(f"reader of {topic}")
        # The message lines of the running iterations.
        self._iterations: set[ReadyLine[ReadStep | _Ended]] = set()
        self._silent: set[str] = set()
        # Time of the last report of a broker as lost or back, in monotonic seconds.
        self._said_at: dict[str, float] = {}

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the client. It connects only when the first message is requested.

        Raises:
            ClientStateError: the reader was started before, or its client is closed or works in another event
                loop.
        """
        with self._life.starting():
            await self._client.start()

    async def close(self) -> None:
        """End all iterations and close the connections."""
        await self._life.end(self._leave)

    async def _leave(self) -> None:
        await self._background.stop()
        for pieces in self._iterations:
            pieces.close()
        await self._client.close()

    # -- reading ---------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    async def messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages one by one, until the end or until the reader closes; see :meth:`steps`."""
        batches = self.batches()
        try:
            async for batch in batches:
                for message in batch:
                    yield message
        finally:
            await batches.aclose()

    async def batches(self) -> AsyncGenerator[Sequence[ReceivedMessage], None]:
        """Lists of messages, each of one queue; the same as :meth:`steps` without the offsets."""
        async with aclosing(self.steps()) as steps:
            async for step in steps:
                if step.messages:
                    yield step.messages

    async def steps(self) -> AsyncGenerator[ReadStep, None]:
        """Lists of messages, each of one queue, with the queue's next offset, at which a program can resume
        later. Each new iteration begins at ``start``.

        With ``follow``, requests to a broker that does not answer are repeated. Without it, the error is
        raised after the messages of the other brokers.

        Raises:
            TopicNotFoundError: no broker has the topic.
            NotAllReadError: some brokers refused or did not answer; all messages of the other brokers were
                returned.
            OrbitError: no queue could be read; the error of the first one.
            ClientStateError: the reader is not running.
        """
        self._life.check_here()
        queues = await self._queues()
        self._life.check_here()  # raises if the reader was closed meanwhile
        pieces: ReadyLine[ReadStep | _Ended] = ReadyLine()
        room = Line(WAITING_PULLS)
        self._iterations.add(pieces)
        tasks = [self._background.spawn(self._read(queue, pieces, room), f"pull {queue}") for queue in queues]
        unread, failed = len(tasks), list[_Ended]()
        try:
            while unread and not pieces.closed:
                piece = pieces.pop()
                if piece is None:
                    await pieces.wait()
                elif isinstance(piece, _Ended):
                    unread -= 1
                    if piece.error is not None:
                        if self._settings.follow or not isinstance(piece.error, FAILURES):
                            raise piece.error
                        failed.append(piece)
                else:
                    room.leave()
                    yield piece
        finally:
            self._iterations.discard(pieces)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = {ended.broker: ended.error for ended in failed if ended.error is not None}
        if pieces.closed or not errors:
            return
        if len(failed) == len(tasks):
            raise next(iter(errors.values()))
        raise NotAllReadError(self.topic, dict(sorted(errors.items())))

    async def offsets(self, start: ReaderStart = ConsumeFrom.LAST) -> dict[MessageQueue, int]:
        """The offset of each queue for a start place; a later reader may ``start`` at these offsets.

        Raises:
            TopicNotFoundError: no broker has the topic.
            OrbitError: a broker refused or did not answer.
            ClientStateError: the reader is not running.
        """
        self._life.check_here()
        start = ReaderOptions(self.topic, start=start).start  # the options' checks apply
        if isinstance(start, Mapping):
            return dict(start)
        route = await self._client.find_route(self._full_topic, for_send=False)
        found = await asyncio.gather(*(self._offset(queue, start) for queue in route.subscribe))
        return dict(zip(route.subscribe, found, strict=True))

    # -- one queue -------------------------------------------------------------------------------------

    async def _queues(self) -> list[MessageQueue]:
        if isinstance(self._settings.start, Mapping):
            return list(self._settings.start)
        return list((await self._client.find_route(self._full_topic, for_send=False)).subscribe)

    async def _offset(self, queue: MessageQueue, start: ReaderStart) -> int:
        if isinstance(start, Mapping):
            return start[queue]
        if start is ConsumeFrom.LAST:
            return (await self._calls.max_offset(queue)).offset
        if isinstance(start, ConsumeFrom):
            return (await self._calls.min_offset(queue)).offset
        return (await self._calls.offset_by_time(queue, since_1970_ms(start))).offset

    async def _read(self, queue: MessageQueue, pieces: ReadyLine[ReadStep | _Ended], room: Line) -> None:
        try:
            await self._pull_all(queue, pieces, room)
        except Exception as error:  # the iteration raises it
            pieces.put(_Ended(queue.broker_name, error))
        else:
            pieces.put(_Ended(queue.broker_name))

    async def _pull_all(self, queue: MessageQueue, pieces: ReadyLine[ReadStep | _Ended], room: Line) -> None:
        follow, broker = self._settings.follow, queue.broker_name
        end = inf
        if not follow:
            end = (await self._asked(broker, partial(self._calls.max_offset, queue))).offset
        offset = await self._asked(broker, partial(self._offset, queue, self._settings.start))
        options = PullOptions(TOOLS_GROUP, PULL_MESSAGES, SUSPEND_MS if follow else 0, with_filter=True)
        empty = 0
        while offset < end:
            asked_at = self._clock.monotonic()
            pull = partial(self._calls.pull, options, queue, offset, self._wanted)
            pulled = await self._asked(broker, pull)
            found = [message for message in pulled.messages if message.queue_offset < end]
            for message in found:
                message.topic = self._membership.namespace.short(message.topic)
            if found or pulled.next_offset > offset:
                await room.enter()
                pieces.put(ReadStep(queue, found, int(min(pulled.next_offset, end))))
            if pulled.status is PullStatus.NO_NEW and not follow:
                return  # fewer messages than announced: the rest was deleted meanwhile
            if pulled.next_offset != offset:
                offset, empty = pulled.next_offset, 0
                continue
            # A slave that is behind answers at once (row MO-12), which is slowed down here; a long poll is
            # repeated at once.
            empty += 1
            if empty == EMPTY_PULLS and not follow:
                nothing = f"it gives nothing from offset {offset} on of {queue}, which ends at {end}"
                raise BrokerError(ResponseCode.PULL_RETRY_IMMEDIATELY, nothing, broker)
            await self._clock.sleep(max(0.0, RETRY_S - (self._clock.monotonic() - asked_at)))

    async def _asked(self, broker: str, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call``; with ``follow``, a failed call is repeated until it succeeds."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                answer = await call()
            except FAILURES as error:
                if not self._settings.follow or (
                    isinstance(error, BrokerError) and error.code not in NOT_NOW
                ):
                    raise
                self._say(broker, asked_at, error)
                await self._clock.sleep(RETRY_S)
            else:
                self._say(broker, asked_at)
                return answer

    def _say(self, broker: str, asked_at: float, error: Exception | None = None) -> None:
        """Call ``on_broker`` once when a broker is lost or back, not for each of its queues and tries.

        Results of requests sent before the last such call do not count: a stopping broker still answers some
            of them.
        """
        known = (broker in self._silent) == (error is not None)
        if known or asked_at < self._said_at.get(broker, -inf):
            return
        self._said_at[broker] = self._clock.monotonic()
        if error is None:
            self._silent.remove(broker)
        else:
            self._silent.add(broker)
        if self._settings.on_broker is not None:
            self._settings.on_broker(broker, error)
        elif error is None:
            log.info("%s answers again", broker)
        else:
            log.warning("%s does not answer, the reader of %s tries again: %s", broker, self.topic, error)
