"""The pull consumer: the user's code polls for messages of its share of a group's queues, or of queues that
it names.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType

from orbitmq.client.consumer.delivery import HandedOut
from orbitmq.client.consumer.group_consumer import GroupConsumer
from orbitmq.client.consumer.mode import ConsumeMode
from orbitmq.client.consumer.options import PullConsumerOptions
from orbitmq.client.consumer.pop_queue import PopQueue
from orbitmq.client.consumer.process_queue import DeliveryState, ProcessQueue
from orbitmq.client.consumer.redelivery import StaysHere
from orbitmq.client.core.broker_calls import Filter
from orbitmq.client.keywords import takes
from orbitmq.client.life import State
from orbitmq.client.ranges import check_number
from orbitmq.client.validation import check_offset, check_queue
from orbitmq.durations import Duration, as_seconds, datetime, instant_ms
from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.parameters import refuses_unknown


@refuses_unknown
class PullConsumer(GroupConsumer):
    """Returns messages by polls: of its share of a group's queues, or of queues that the user names.

    ::

        async with PullConsumer("audit", name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders")
            while running:
                for message in await consumer.poll(timeout=1):
                    ...

    The messages of one :meth:`poll` are done with the next one, with :meth:`commit`, or when the block is
    left without an error, unless they were settled before: ``message.ack()``, ``message.retry()`` and
    ``message.reject()`` work as in a handler. After an error in the block, or a :meth:`close` by hand, the
    messages of the last poll are delivered again, since they were not marked as done. A group has pull
    consumers or push consumers, not both.

    Args:
        group: the consumer group. Its members must subscribe to the same topics and tags.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: the value of ``NAMESRV_ADDR``, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; each member of a group needs its own. Made of
            host, process and a random number by default.
        consume_from: where to begin on a queue for which the group has no offset.
        consume_timestamp: for :attr:`ConsumeFrom.TIMESTAMP`, a datetime with a time zone; 30 minutes ago by
            default.
        auto_commit: commit what is done every 5 s, with pulls, when a queue goes to another member and at
            close. Without it only :meth:`commit` commits.
        pull_batch_size: messages per pull; a broker gives 32 at most by default.
        limits: how many messages and bytes are pulled ahead: of one queue, and of all together.
        max_reconsume_times: deliveries after the first before a message becomes a dead letter; -1 for the
            group's own setting at the broker.
        allocate: how queues are shared; all members must use the same way.
        consume_timeout: a polled message is sent back after this time, unless it was settled or a further
            poll was made. Messages of assigned queues are not sent back: no other member would get them.
        hooks: see every message before and after it is handled.
        trace: record in RMQ_SYS_TRACE_TOPIC, or the topic named here, when each message was handled.
        on_assigned: called with the list of queues that this member has got; a plain function runs in a
            thread.
        on_revoked: called with the list of queues that this member has lost, whose offsets are committed.
        namespace: topics and the group are meant inside this namespace (``namespace%topic``).
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
        credentials: ``Credentials(access_key, secret_key)`` that every request is signed with, or a function
            that is called for each request and returns them.
        tls: ``Tls(ca=, cert=, key=)`` for servers that speak TLS; without it connections are plain TCP.
        client: share the connections of another client instance.
        runtime: the machine; the real one by default.
    """

    @takes(PullConsumerOptions)
    def __init__(self, settings: PullConsumerOptions) -> None:
        mode = ConsumeMode(
            max_reconsume_times=settings.max_reconsume_times,
            consume_timeout_s=as_seconds(settings.consume_timeout),
            pulls=True,
            auto_commit=settings.auto_commit,
        )
        super().__init__(settings.group, settings.as_consumer(), mode)
        # Unfinished messages that polls returned: the next poll marks them as done.
        self._given: HandedOut = []
        # Which of subscribe() and assign() came first; the other one is refused.
        self._subscribed = False
        self._chosen: frozenset[MessageQueue] | None = None

    async def poll(self, max_messages: int = 32, *, timeout: Duration = 5.0) -> list[ReceivedMessage]:
        """The next messages, each queue's in order; waits if there are none. Marks the messages of the last
        poll as done.

        A broker that does not answer is asked again, with a warning in the log, and does not delay other
        brokers.

        Args:
            max_messages: 1 to 10,000.
            timeout: seconds, or a timedelta, after which an empty list is returned. A consumer that is closed
                meanwhile returns it at once.

        Raises:
            ClientStateError: not running.
            ValidationError: a number is out of its range.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
            NotPermittedError: there are no messages, and a broker refuses the keys or rights of this client.
        """
        self._life.check_here()
        check_number("poll max_messages", max_messages, called="max_messages")
        check_number("poll timeout", timeout, called="timeout")
        await self._filter_checks.ended()
        await self._finish_given()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + as_seconds(timeout)
        while not (held := self._delivery.take_batch(max_messages)):
            try:
                if not await asyncio.wait_for(self._delivery.wait(), max(deadline - loop.time(), 0)):
                    return []
            except TimeoutError:
                if (refusal := self._client.refusal()) is not None:
                    raise refusal from None
                return []
        for process_queue, message in held:
            process_queue.move(message.queue_offset, DeliveryState.LOOP)
            process_queue.behind = max(process_queue.behind, message.queue_offset + 1)
        self._given += held  # append: another poll may have ended meanwhile
        return [message for _, message in held]

    # -- which queues ----------------------------------------------------------------------------------

    def subscribe(
        self, topic: str | re.Pattern[str], tags: str = "*", *, sql: str | None = None
    ) -> Awaitable[None]:
        """Read this member's share of ``topic``; replaces an earlier subscription to it.

        Parameters and errors are those of :meth:`Consumer.subscribe`.

        Raises:
            ClientStateError: :meth:`assign` names the queues.
        """
        if self._chosen is not None:
            raise ClientStateError(
                "this consumer reads the queues of assign() and cannot subscribe; make another one for that"
            )
        checked = super().subscribe(topic, tags, sql=sql)
        self._subscribed = True
        if self._life.running:
            self._read_retries()
        return checked

    def unsubscribe(self, topic: str | re.Pattern[str]) -> None:
        """Stop receiving the messages of ``topic``, or of the topics that a pattern has found."""
        if self._chosen is not None:
            raise ClientStateError("this consumer has not subscribed: assign() says what it reads")
        super().unsubscribe(topic)

    def _read_retries(self) -> None:
        # Failed messages of assigned queues are not sent to the group's retry topic.
        if self._subscribed:
            super()._read_retries()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``.

        Raises:
            TopicNotFoundError: no name server has the topic.
            NameServerError: no name server answers.
            ValidationError: not a valid topic name.
            ClientStateError: not running.
        """
        topic = self._membership.full_topic(topic)
        self._life.check_here()
        return list((await self._client.find_route(topic, for_send=False)).subscribe)

    def assign(self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None) -> None:
        """Read exactly these queues, independently of other members; before or after the start.

        Each queue begins at the offset of :meth:`seek` if that was called, else at the group's offset, else
        at ``consume_from``. Queues that were assigned before continue; with another filter they continue
        after the last polled message, and polled messages count as done.

        ``message.retry()`` makes this consumer return the message again, after 5 s or after its delay. Until
        it is done, no offset after it is committed.

        Args:
            queues: as :meth:`queues` returns them; in a namespace they carry the topic's full name.
            tags: ``*`` for all messages, else ``a || b``.
            sql: an SQL92 expression over properties instead of tags. If a broker cannot filter by it,
                :meth:`start` or :meth:`poll` raises that.

        Raises:
            ValidationError: the expression is invalid, or ``queues`` holds something else than queues.
            ClientStateError: the consumer has subscribed, or it is closed.
        """
        wanted = self._membership.wanted(tags, sql)
        chosen = frozenset(_checked(queues))
        if self._subscribed:
            raise ClientStateError(
                "this consumer shares queues with its group since it has subscribed; "
                "make another one, of another group, to assign queues"
            )
        if self._life.state is State.CLOSED:
            self._life.check_running()
        self._chosen = chosen
        changed = self._set_filter({queue.topic for queue in chosen}, wanted)
        most = self._mode.max_reconsume_times
        stays = StaysHere(self._delivery.redelivery, most if most >= 0 else None)
        self._queues.choose(chosen, changed, stays)
        self._subscriptions_changed()

    def _set_filter(self, topics: set[str], wanted: Filter) -> set[str]:
        """Set one filter for these topics and drop all other topics; returns the topics whose filter
        changed.
        """
        for topic in self._filters.keys() - topics:
            del self._filters[topic]
            self._filter_checks.forget(topic)
        changed: set[str] = set()
        for topic in sorted(topics):
            known = self._filters.get(topic)
            if known is not None and (known.expression, known.kind) == (wanted.expression, wanted.kind):
                continue
            changed.add(topic)
            self._filters[topic] = wanted
            self._client.watch(topic)
            if self._life.running:
                self._filter_checks.begin(topic, wanted)
        return changed

    def assignment(self) -> list[MessageQueue]:
        """The queues of :meth:`assign`, else those that this member works on now.

        Queue id -1 stands for all queues of a broker, which are popped.
        """
        return super().assignment() if self._chosen is None else sorted(self._chosen)

    async def _expire(self) -> None:
        # A message of an assigned queue cannot be given to another member.
        if self._chosen is None:
            await super()._expire()

    # -- commits and the end ---------------------------------------------------------------------------

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._block_ended()
        await super().__aexit__(kind, error, trace)

    async def _block_ended(self) -> None:
        """Mark the messages of the last poll as done: the user left the block without an error.

        Popped messages are given back instead: only an acknowledgement ends them, and they can be popped
        again at once.
        """
        if self._mode.auto_commit:
            popped = [each for each in self._given if isinstance(each[0], PopQueue)]
            self._given = [each for each in self._given if not isinstance(each[0], PopQueue)]
            await self._finish_given()
            self._given = popped

    async def _user_code_ended(self) -> None:
        # The user's code has finished with the messages of the last poll: popped ones may be delivered again
        # at once.
        for process_queue, message in self._given:
            process_queue.put_aside(message.queue_offset)

    async def _finish_given(self) -> None:
        given, self._given = self._given, []
        for process_queue, message in given:
            process_queue.move(message.queue_offset, DeliveryState.ENDED)
        # Messages that no broker took back left ``begun`` in the meantime; polls return them again.
        held = [(queue, message) for queue, message in given if message.queue_offset in queue.begun]
        if held:
            await self._delivery.ended(held)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Mark the messages of :meth:`poll` as done and commit that now; or commit these offsets instead.

        Args:
            offsets: by queue. This member's position does not change; its next commit without offsets commits
                its own progress.

        Raises:
            ClientStateError: the consumer is not running.
            ValidationError: a key of ``offsets`` is no queue, or a value is no offset; nothing is committed.
            OrbitError: the offset of a queue is not committed: its broker refused it or did not answer. The
                next call repeats the commit.
        """
        self._life.check_here()
        if offsets is not None:
            calls = self._membership.calls
            wanted = _checked_offsets(offsets).items()
            await asyncio.gather(*(calls.commit(self.group, *each, wait=True) for each in wanted))
            return
        await self._finish_given()
        # Offsets are committed only after brokers have accepted the messages that are to be redelivered.
        await self._settling.quiet()
        await self._offsets.commit()

    # -- positions -------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on; messages of earlier polls can no longer
        be settled.

        An offset outside the queue becomes the nearest one inside it, with a warning in the log.

        Raises:
            ClientStateError: the queue is not assigned to this member.
            ValidationError: ``queue`` is no queue, or the offset is no whole number from 0 on.
        """
        begun = self._begun(queue)
        check_offset(offset)
        if begun is None:
            self._queues.begin_at(queue, offset)
        else:
            await self._queues.move({queue: offset})

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest messages of these queues.

        Raises:
            ClientStateError: a queue is not assigned to this member.
            OrbitError: a broker did not name the offset.
        """
        for queue in queues:
            self._begun(queue)
            await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go to the end of these queues, after their newest messages; errors as :meth:`seek_to_begin`."""
        for queue in queues:
            self._begun(queue)
            await self.seek(queue, await self.max_offset(queue))

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the next message of this queue that :meth:`poll` returns.

        Raises:
            ClientStateError: the queue is not assigned to this member.
            OrbitError: the queue's start offset is not known yet, and its broker did not answer.
        """
        begun = self._begun(queue)
        if begun is None and self._queues.begin_of(queue) is None:
            self._life.check_here()
            await self._client.find_route(queue.topic, for_send=False)
            await self._client.heartbeat(only_new=True)
            first = (await self._membership.start_offset(queue)).offset
            begun = self._begun(queue)
            if begun is None and self._queues.begin_of(queue) is None:
                self._queues.begin_at(queue, first)
        if begun is not None:
            return begun.position()
        return self._queues.begin_of(queue) or 0

    async def committed(self, queue: MessageQueue) -> int:
        """The group's committed offset, -1 when it has none.

        Raises:
            TopicNotFoundError, NameServerError: the route does not name the queue's broker, or is not
                available. BrokerError, TransportError: the broker refuses or does not answer.
        """
        check_queue(queue)
        return (await self._membership.calls.committed(self.group, queue)).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of the queue; errors as :meth:`committed`."""
        check_queue(queue)
        return (await self._membership.calls.min_offset(queue)).offset

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get; errors as :meth:`committed`."""
        check_queue(queue)
        return (await self._membership.calls.max_offset(queue)).offset

    async def offset_by_time(self, queue: MessageQueue, at: datetime) -> int:
        """The offset of the first message stored at or after ``at``; the max offset if all are older.

        Args:
            at: a datetime with a time zone.

        Raises:
            ValidationError: ``at`` has no time zone.
            OrbitError: as :meth:`committed`.
        """
        check_queue(queue)
        return (await self._membership.calls.offset_by_time(queue, instant_ms("at", at))).offset

    def _begun(self, queue: MessageQueue) -> ProcessQueue | None:
        """The process queue of a queue that this member reads; None: the queue is assigned but not
        read yet.
        """
        check_queue(queue)
        found = self._queues.process_queues().get(queue)
        if found is None and queue not in (self._chosen or ()):
            raise ClientStateError(f"{queue} is not assigned to this member now")
        return found


def _checked(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    if isinstance(queues, MessageQueue) or not isinstance(queues, Iterable):
        raise ValidationError(f"queues must be several MessageQueue, got {queues!r:.80}")
    found = list(queues)
    for queue in found:
        check_queue(queue)
    return found


def _checked_offsets(offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, int]:
    if not isinstance(offsets, Mapping):
        raise ValidationError(f"offsets must be a mapping of queues to offsets, got {offsets!r:.60}")
    for queue, offset in offsets.items():
        check_queue(queue)
        check_offset(offset)
    return offsets
