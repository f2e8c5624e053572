"""The pull consumer: a member of a group like the push consumer, that asks for messages when it wants."""

from __future__ import annotations

import asyncio
from types import TracebackType

from orbitmq.client.consumer.delivery import Held
from orbitmq.client.consumer.group_consumer import GroupConsumer
from orbitmq.client.consumer.mode import ConsumeMode
from orbitmq.client.consumer.options import PullConsumerOptions
from orbitmq.client.consumer.pop_queue import PopQueue
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.keywords import takes
from orbitmq.client.ranges import check_number
from orbitmq.client.validation import check_offset, check_queue
from orbitmq.durations import Duration, as_seconds
from orbitmq.errors import ClientStateError
from orbitmq.message.model import MessageQueue, ReceivedMessage


class PullConsumer(GroupConsumer):
    """Gets its share of the group's queues and gives their messages when asked, list by list.

    ::

        async with PullConsumer("audit", name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders")
            while running:
                for message in await consumer.poll(timeout=1):
                    ...

    The messages of one :meth:`poll` are done with the next one, with :meth:`commit`, or when the block is
    left without an error, unless they were settled before: ``message.ack()``, ``message.retry()`` and
    ``message.reject()`` work as in a handler. After an error in the block, or a :meth:`close` by hand, the
    messages of the last poll come again: they were not marked as done. A group has pull consumers or push
    consumers, not both.

    Args:
        group: the consumer group. Its members must subscribe to the same topics and tags.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: what ``NAMESRV_ADDR`` says, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; each member of a group needs another one. Made
            of host, process and a random number by default.
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
        consume_timeout: a polled message is sent back when it is not settled, and no further poll is made,
            for this time.
        hooks: see every message before and after it is handled.
        trace: record in RMQ_SYS_TRACE_TOPIC, or the topic named here, what was handled when.
        on_assigned: called with the list of queues that this member has got; a plain function runs in a
            thread.
        on_revoked: called with the list of queues that it has no longer, whose offsets are committed.
        namespace: topics and the group are meant inside this namespace (``namespace%topic``).
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
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
        # Messages that polls returned and that are not done yet: the next poll marks them as done.
        self._given: Held = []

    async def poll(self, max_messages: int = 32, *, timeout: Duration = 5.0) -> list[ReceivedMessage]:
        """The next messages, each queue's in order; waits when there are none. Those of the last poll are
        done.

        Args:
            max_messages: 1 to 10,000.
            timeout: seconds, or a timedelta; after so long an empty list is returned; also when the consumer
                is closed meanwhile.

        Raises:
            ClientStateError: not running.
            ValidationError: a number is out of its range.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
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
                return []
        for process_queue, message in held:
            process_queue.loose.add(message.queue_offset)
        self._given += held  # another poll may have ended meanwhile
        return [message for _, message in held]

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
        # Nobody works on what the last poll gave: what was popped of it may come again at once.
        for process_queue, message in self._given:
            process_queue.put_aside(message.queue_offset)

    async def _finish_given(self) -> None:
        given, self._given = self._given, []
        for process_queue, message in given:
            process_queue.loose.discard(message.queue_offset)
        # One that no broker took back was put aside meanwhile, and comes again here.
        held = [(queue, message) for queue, message in given if message.queue_offset in queue.begun]
        if held:
            await self._delivery.ended(held)

    async def commit(self) -> None:
        """Mark the messages of :meth:`poll` as done and commit that now.

        Raises:
            ClientStateError: not running: nothing can be committed yet, or any more.
            OrbitError: the offset of a queue is not committed: its broker refused it or did not answer. The
                next call tries it again.
        """
        self._life.check_here()
        await self._finish_given()
        # Their offsets count once a broker has back what is to come again.
        await self._settling.quiet()
        await self._offsets.commit()

    # -- positions -------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """The next :meth:`poll` reads ``queue`` from ``offset`` on; settling what it gave before is too late.

        An offset outside the queue becomes the nearest one inside it.

        Raises:
            ClientStateError: the queue is not assigned to this member.
            ValidationError: no queue, or the offset is no whole number from 0 on.
        """
        self._process_queue(queue)
        check_offset(offset)
        await self._queues.move({queue: offset})

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest messages of these queues.

        Raises:
            ClientStateError: a queue is not assigned to this member.
            OrbitError: its broker did not say where that is.
        """
        for queue in queues:
            self._process_queue(queue)
            await self.seek(queue, (await self._membership.calls.min_offset(queue)).offset)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the newest messages of these queues; errors as :meth:`seek_to_begin`."""
        for queue in queues:
            self._process_queue(queue)
            await self.seek(queue, (await self._membership.calls.max_offset(queue)).offset)

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that :meth:`poll` gives of this queue.

        Raises:
            ClientStateError: the queue is not assigned to this member.
        """
        return self._process_queue(queue).position()

    async def committed(self, queue: MessageQueue) -> int:
        """The group's committed offset, -1 when it has none.

        Raises:
            OrbitError: no broker said.
        """
        check_queue(queue)
        return (await self._membership.calls.committed(self.group, queue)).offset

    def _process_queue(self, queue: MessageQueue) -> ProcessQueue:
        check_queue(queue)
        found = self._queues.process_queues().get(queue)
        if found is None:
            raise ClientStateError(f"{queue} is not assigned to this member now")
        return found
