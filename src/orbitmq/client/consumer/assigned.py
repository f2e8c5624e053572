"""The assigned-queue consumer: the user names the queues and keeps, or has kept, the offsets."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from orbitmq.client.consumer.membership import Membership
from orbitmq.client.consumer.options import AssignedOptions
from orbitmq.client.core.broker_calls import Filter, PullOptions, PullStatus
from orbitmq.client.keywords import takes
from orbitmq.client.life import InBlock, Life
from orbitmq.client.ranges import check_number
from orbitmq.client.validation import check_offset, check_queue
from orbitmq.durations import Duration, datetime, instant_ms, milliseconds
from orbitmq.errors import ClientStateError, OrbitError, ValidationError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.wire.bodies.client import ConsumerData, ConsumeType, MessageModel
from orbitmq.wire.command import Command
from orbitmq.wire.connection import not_supported

log = logging.getLogger("orbitmq.client")

_RETRY_PAUSE_S = 0.2


class _Assigned:
    """One assigned queue: its position, what is fetched beyond it, and the pull under way."""

    __slots__ = ("broker_id", "buffer", "fetch_offset", "position", "pull", "wanted")

    def __init__(self, wanted: Filter) -> None:
        self.wanted = wanted
        # None until it is known where to begin.
        self.position: int | None = None
        self.fetch_offset = 0
        # The member of the broker group that the last answer suggested.
        self.broker_id = 0
        self.buffer: deque[ReceivedMessage] = deque()
        self.pull: asyncio.Task[None] | None = None

    def move(self, offset: int) -> None:
        self.position = self.fetch_offset = offset
        self.buffer.clear()
        if self.pull is not None:
            self.pull.cancel()
            self.pull = None


class AssignedConsumer(InBlock):
    """Reads the queues it is told to read; nothing is shared with other members, nothing committed unasked.

    ::

        async with AssignedConsumer("audit", name_servers="127.0.0.1:9876") as consumer:
            queues = await consumer.queues("orders")
            consumer.assign(queues)
            await consumer.seek_to_begin(*queues)
            while messages := await consumer.poll(timeout=1):
                ...
            await consumer.commit()

    Args:
        group: under which offsets are committed. Do not use the group of a :class:`Consumer`.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: what ``NAMESRV_ADDR`` says, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; each member of a group needs another one. Made
            of host, process and a random number by default.
        consume_from: where to begin on a queue without a committed offset, when :meth:`seek` is not used.
        consume_timestamp: a datetime with a time zone, for :attr:`ConsumeFrom.TIMESTAMP`.
        pull_batch_size: messages per pull.
        namespace: topics and the group are meant inside this namespace; queues name topics in full.
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
        client: share the connections of another client instance.
        runtime: the machine; the real one by default.
    """

    @takes(AssignedOptions)
    def __init__(self, settings: AssignedOptions) -> None:
        self._membership = membership = Membership(settings.group, settings, settings.consume_timestamp)
        self.group = group = membership.group
        self._namespace, self._client = membership.namespace, membership.client
        self._calls = membership.calls
        self._options = PullOptions(group, settings.pull_batch_size)
        self._assigned: dict[MessageQueue, _Assigned] = {}
        self._next = 0
        self._life = Life(f"consumer {group!r}")

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make the consumer known. Nothing is connected before the first call.

        Raises:
            ClientStateError: it was started before, or the client has a consumer of the group already.
        """
        with self._life.starting():
            self._client.register_consumer(self.group, _AssignedMember(self._membership, self._wanted))
        await self._client.start()

    async def close(self) -> None:
        """Leave. Positions are not committed: call :meth:`commit` before."""
        await self._life.end(self._leave)

    async def _leave(self) -> None:
        self.assign(())
        await self._client.unregister_consumer(self.group)
        await self._client.close()

    # -- what is read ----------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``.

        Raises:
            TopicNotFoundError: no name server knows the topic.
            NameServerError: none of them answers.
            ValidationError: not a name of a topic.
            ClientStateError: not running.
        """
        topic = self._membership.full_topic(topic)
        self._life.check_here()
        return list((await self._client.find_route(topic, for_send=False)).subscribe)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None) -> None:
        """Read exactly these queues. Those assigned before keep their positions.

        Args:
            tags: ``*`` for all messages, else ``a || b``; ``sql`` instead: an SQL92 expression.

        Raises:
            ValidationError: the expression cannot be right, or these are no queues.
        """
        wanted = self._membership.wanted(tags, sql)
        queues = _checked(queues)
        before, self._assigned = self._assigned, {}
        for queue in dict.fromkeys(queues):
            kept = before.pop(queue, None)
            if kept is None or (kept.wanted.expression, kept.wanted.kind) != (wanted.expression, wanted.kind):
                fresh = _Assigned(wanted)
                if kept is not None and kept.position is not None:
                    fresh.move(kept.position)
                    kept.move(kept.position)
                kept = fresh
            self._assigned[queue] = kept
        for dropped in before.values():
            dropped.move(0)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return sorted(self._assigned)

    async def poll(self, max_messages: int = 32, *, timeout: Duration = 5.0) -> list[ReceivedMessage]:
        """The next messages of the assigned queues, queue by queue in order; waits when there are none.

        Returns an empty list after ``timeout``. A queue whose broker does not answer is tried again by
        the next poll, and does not hold up the others.

        Raises:
            ClientStateError: not running.
            ValidationError: a number is out of its range.
            OrbitError, TransportError: no message came and at least one queue failed; the error is the last
                one.
        """
        self._life.check_here()
        check_number("poll max_messages", max_messages, called="max_messages")
        check_number("poll timeout", timeout, called="timeout")
        deadline = self._client.now_ms() + milliseconds(timeout)
        failure: Exception | None = None
        while True:
            found = self._buffered(max_messages)
            remaining_s = (deadline - self._client.now_ms()) / 1000
            if found or remaining_s <= 0:
                if not found and failure is not None:
                    raise failure
                return found
            pulls = [self._pulling(queue, state) for queue, state in self._assigned.items()]
            if not pulls:
                await self._client.runtime.clock.sleep(remaining_s)
                continue
            done, _ = await asyncio.wait(pulls, timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED)
            errors = [e for task in done if not task.cancelled() and (e := task.exception()) is not None]
            if errors:
                failure = _expected(errors[-1])
                await self._client.runtime.clock.sleep(min(_RETRY_PAUSE_S, max(remaining_s, 0)))

    def _buffered(self, max_messages: int) -> list[ReceivedMessage]:
        """Take what is fetched, beginning with another queue each time so that none starves."""
        found: list[ReceivedMessage] = []
        states = list(self._assigned.values())
        self._next += 1
        for step in range(len(states)):
            state = states[(self._next + step) % len(states)]
            while state.buffer and len(found) < max_messages:
                message = state.buffer.popleft()
                state.position = message.queue_offset + 1
                message.topic = self._namespace.short(message.topic)
                found.append(message)
            if not state.buffer and state.position is not None:
                state.position = state.fetch_offset
        return found

    def _pulling(self, queue: MessageQueue, state: _Assigned) -> asyncio.Task[None]:
        if state.pull is None or state.pull.done():
            state.pull = asyncio.get_running_loop().create_task(self._pull(queue, state))
        return state.pull

    async def _pull(self, queue: MessageQueue, state: _Assigned) -> None:
        try:
            if state.position is None:
                await self._find_start(queue, state)
            asked_ms = self._client.now_ms()
            pulled = await self._calls.pull(
                self._options,
                queue,
                state.fetch_offset,
                state.wanted,
                broker_id=state.broker_id,
                with_filter=True,
            )
        except OrbitError:
            state.broker_id = 0
            self._client.suspect(queue.topic)
            raise
        state.broker_id = pulled.suggested_broker_id
        if pulled.status is PullStatus.OFFSET_MOVED:
            log.warning(
                "%s: offset %d is outside %d to %d, going on at %d",
                queue,
                state.fetch_offset,
                pulled.min_offset,
                pulled.max_offset,
                pulled.next_offset,
            )
        if not pulled.messages and pulled.next_offset == state.fetch_offset:
            # A slave that is behind answers at once (row MO-12); a pull that waited there goes on at once.
            waited_s = (self._client.now_ms() - asked_ms) / 1000
            await self._client.runtime.clock.sleep(max(0.0, _RETRY_PAUSE_S - waited_s))
        state.fetch_offset = pulled.next_offset
        state.buffer.extend(pulled.messages)

    # -- positions and offsets ---------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on.

        An offset outside the queue becomes the nearest one inside it, with a warning in the log.

        Raises:
            ClientStateError: the queue is not assigned.
            ValidationError: no queue, or the offset is no whole number from 0 on.
        """
        state = self._state(queue)
        check_offset(offset)
        state.move(offset)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest messages of these queues.

        Raises:
            ClientStateError: a queue is not assigned.
            OrbitError: as :meth:`min_offset`.
        """
        for queue in queues:
            self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the newest messages of these queues.

        Raises:
            ClientStateError: a queue is not assigned.
            OrbitError: as :meth:`max_offset`.
        """
        for queue in queues:
            self.seek(queue, await self.max_offset(queue))

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that :meth:`poll` gives of this queue.

        Raises:
            ClientStateError: the queue is not assigned.
            OrbitError: where to begin is not known yet, and cannot be asked: as :meth:`committed`.
        """
        state = self._state(queue)
        if state.position is None:
            await self._find_start(queue, state)
        return state.position or 0

    async def committed(self, queue: MessageQueue) -> int:
        """The group's committed offset, -1 when it has none.

        Raises:
            TopicNotFoundError, NameServerError: the route does not name the queue's broker, or is not to be
            had. BrokerError, TransportError: the broker refuses or does not answer.
        """
        check_queue(queue)
        return (await self._calls.committed(self.group, queue)).offset

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit these offsets, or the positions of all assigned queues, and wait for the brokers.

        Raises:
            ClientStateError: not running: nothing can be committed yet, or any more.
            ValidationError: no queue, or no offset; nothing is committed.
            OrbitError: as :meth:`committed`; the offsets of other queues may be committed.
        """
        self._life.check_here()
        if offsets is None:
            known = self._assigned.items()
            offsets = {queue: state.position for queue, state in known if state.position is not None}
        if not isinstance(offsets, Mapping):
            raise ValidationError(f"offsets must be a mapping of queues to offsets, got {offsets!r:.60}")
        for queue, offset in offsets.items():
            check_queue(queue)
            check_offset(offset)
        await asyncio.gather(
            *(self._calls.commit(self.group, queue, offset, wait=True) for queue, offset in offsets.items())
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of the queue; errors as :meth:`committed`."""
        check_queue(queue)
        return (await self._calls.min_offset(queue)).offset

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get; errors as :meth:`committed`."""
        check_queue(queue)
        return (await self._calls.max_offset(queue)).offset

    async def offset_by_time(self, queue: MessageQueue, at: datetime) -> int:
        """The offset of the first message stored at or after ``at``; the max offset behind all.

        Args:
            at: a datetime with a time zone.

        Raises:
            ValidationError: ``at`` has no time zone.
            OrbitError: as :meth:`committed`.
        """
        check_queue(queue)
        return (await self._calls.offset_by_time(queue, instant_ms("at", at))).offset

    async def _find_start(self, queue: MessageQueue, state: _Assigned) -> None:
        await self._client.find_route(queue.topic, for_send=False)
        await self._client.heartbeat(only_new=True)
        offset = (await self._membership.start_offset(queue)).offset
        if state.position is None:
            state.position = state.fetch_offset = offset

    def _state(self, queue: MessageQueue) -> _Assigned:
        check_queue(queue)
        state = self._assigned.get(queue)
        if state is None:
            raise ClientStateError(f"{queue} is not assigned")
        return state

    def _wanted(self) -> dict[str, Filter]:
        return {queue.topic: state.wanted for queue, state in self._assigned.items()}


def _checked(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    if isinstance(queues, MessageQueue) or not isinstance(queues, Iterable):
        raise ValidationError(f"queues must be several MessageQueue, got {queues!r:.80}")
    found = list(queues)
    for queue in found:
        check_queue(queue)
    return found


class _AssignedMember:
    """An assigned-queue consumer as the shared core and the brokers see it."""

    def __init__(self, membership: Membership, wanted: Callable[[], Mapping[str, Filter]]) -> None:
        self._membership = membership
        self._wanted = wanted

    def consumer_data(self) -> ConsumerData:
        """The data for heartbeats."""
        kind, model = ConsumeType.CONSUME_ACTIVELY, MessageModel.CLUSTERING
        return self._membership.consumer_data(kind, model, self._wanted())

    def handle_request(self, command: Command) -> Command | None:
        """The user assigns, so that other members make no difference; nothing else is answered."""
        return None if command.is_oneway else not_supported(command)

    def route_changed(self, topic: str) -> None:
        """The user assigns; pulls find the new addresses themselves."""


def _expected(error: BaseException) -> Exception:
    """The failure of a pull; anything but an ordinary exception goes up at once."""
    if not isinstance(error, Exception):
        raise error
    return error
