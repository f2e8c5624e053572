"""The push consumer: a group's members share the queues of its topics, and each message is handled once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, Unpack

from orbitmq.client.consumer.admin_requests import PushMember
from orbitmq.client.consumer.assigned_queues import AssignedQueues
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.filter_checks import Checked, FilterChecks
from orbitmq.client.consumer.membership import Membership, tag_filter
from orbitmq.client.consumer.mode import ConsumeMode, assemble
from orbitmq.client.consumer.offsets import LocalOffsets
from orbitmq.client.consumer.options import ConsumerKeywords, ConsumerOptions
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.consumer.queue_locks import FIRST_RENEWAL_S, RENEW_EVERY_S
from orbitmq.client.consumer.rebalance import Rebalancer
from orbitmq.client.consumer.redelivery import restore_topic
from orbitmq.client.core.broker_calls import Filter, PullOptions
from orbitmq.client.hooks import ConsumeHooks, around_listener
from orbitmq.client.keywords import shows_keywords
from orbitmq.client.life import Life, State
from orbitmq.client.observe.trace import ConsumeTrace
from orbitmq.client.producer.inner import InnerSender, make_tracer
from orbitmq.errors import ClientStateError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.reserved import INNER_PRODUCER_GROUP, retry_topic
from orbitmq.runtime.tasks import Background, every

log = logging.getLogger("orbitmq.client")

Listener = Callable[[ReceivedMessage], Awaitable[object] | object]

COMMIT_EVERY_S = 5.0
EXPIRY_CHECK_S = 60.0
_YIELD_EVERY = 64


class Consumer:
    """Receives the messages of its group's topics; every message is handled by one member.

    With a listener, which may be ``async`` or plain; a plain one runs in a thread::

        async with Consumer("billing", name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders", tags="new || paid")
            await consumer.run(handle)  # until cancelled, or close() is called

    or message by message; asking for the next one marks the one before as done::

            async for message in consumer:
                ...

    A message is done when the listener returns. When it raises, the message is sent back and comes again
    after a delay that grows from 10 s to 2 h, then becomes a dead letter (``%DLQ%group``). What was
    delivered but is not done when the process ends is delivered again: handle messages idempotently.

    A message whose body cannot be unpacked comes as an :class:`~orbitmq.message.model.UnreadableMessage`,
    which raises when its body is asked for; so it takes the way of failed messages and holds up no other.

    Args:
        group: the consumer group. Its members must subscribe to the same topics and tags.
        name_servers: ``host:port;host:port``.
        consume_from: where to begin on a queue for which the group has no offset.
        consume_timestamp_ms: for :attr:`ConsumeFrom.TIMESTAMP`.
        concurrency: listener calls at a time in :meth:`run`.
        pull_batch_size: messages per pull; a broker gives 32 at most by default.
        limits: when a queue is not pulled because its messages are not finished.
        max_reconsume_times: deliveries after the first before a message becomes a dead letter; -1 for 16, or
            for no limit when ``ordered``.
        ordered: the messages of a queue one after the other, each queue at one member at a time. A message
            that fails is tried again, and its queue waits for it.
        suspend_ms: with ``ordered``: the pause of a queue after a failure, 10 to 30,000 ms.
        broadcast: every member gets all messages. Progress is kept in a local file, and a failed message
            does not come again.
        offsets_folder: with ``broadcast``: where that file is, ``~/.rocketmq_offsets/<host>@DEFAULT`` by
            default. Members on one machine need one each.
        allocate: how queues are shared; all members must use the same way.
        consume_timeout_s: a message that the listener has had for longer is sent back, as if it had failed.
        close_timeout_s: how long :meth:`close` waits for running listener calls.
        hooks: see every message before and after it is handled.
        middleware: ``await middleware(message, handle)`` around the listener of :meth:`run`.
        trace: record in RMQ_SYS_TRACE_TOPIC, or the topic named here, what was handled when.
        namespace: topics and the group are meant inside this namespace (``namespace%topic``).
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
        client: share the connections of another client instance.
        runtime: the machine; the real one by default.
    """

    @shows_keywords(ConsumerOptions)
    def __init__(self, group: str, **options: Unpack[ConsumerKeywords]) -> None:
        settings = ConsumerOptions(**options)
        self._membership = membership = Membership(
            group,
            name_servers=settings.name_servers,
            consume_from=settings.consume_from,
            consume_timestamp_ms=settings.consume_timestamp_ms,
            namespace=settings.namespace,
            namespace_v2=settings.namespace_v2,
            client=settings.client,
            runtime=settings.runtime,
        )
        self.group = group = membership.group
        self._namespace, self._client = membership.namespace, membership.client
        self._settings = settings
        self._sender = InnerSender(self._client, INNER_PRODUCER_GROUP)
        self._trace_sender, self._tracer = make_tracer(self._client, settings.trace)
        hooks = tuple(settings.hooks)
        if self._tracer is not None:
            hooks = (*hooks, ConsumeTrace(self._tracer, self._namespace))
        self._hooks = ConsumeHooks(group, hooks, self._client.runtime.clock) if hooks else None
        self._filters: dict[str, Filter] = {}
        self._filter_checks = FilterChecks(membership)
        self._background = Background(f"consumer {group}")
        self._in_flight: dict[int, Delivery] = {}
        self._running = 0
        self._served = 0
        self._idle = asyncio.Event()
        self._listener: Callable[[ReceivedMessage], Awaitable[object]] | None = None
        self._life = Life(f"consumer {group!r}")
        self._mode = ConsumeMode(
            settings.ordered,
            settings.broadcast,
            settings.max_reconsume_times,
            settings.suspend_ms,
            settings.offsets_folder,
        )
        self._assemble()

    def _assemble(self) -> None:
        calls, group, settings = self._membership.calls, self.group, self._settings
        parts = assemble(
            self._mode, self._client, calls, group, self._namespace, self._sender.send, self._lock_lost
        )
        self._offsets, self._delivery, self._locks = parts.offsets, parts.delivery, parts.locks
        self._queues = AssignedQueues(
            self._client,
            calls,
            self._background,
            self._offsets,
            self._delivery,
            self._filters,
            PullOptions(group, settings.pull_batch_size, commits=not settings.broadcast),
            settings.limits or FlowLimits(),
            self._start_offset,
            self._locks,
        )
        allocate = None if settings.broadcast else settings.allocate
        self._rebalancer = Rebalancer(self._client, calls, group, self._queues, allocate)
        self._member = PushMember(
            self._membership,
            self._mode,
            self._filters,
            self._queues,
            self._offsets,
            rebalance_soon=self._rebalancer.soon,
            consume=self._consume_now,
        )

    async def _start_offset(self, queue: MessageQueue) -> int:
        if not self._settings.broadcast:
            return await self._membership.start_offset(queue)
        known = self._offsets.get(queue)
        if known >= 0:
            return known
        return await self._membership.first_offset(queue)

    async def _lock_lost(self, queue: MessageQueue) -> None:
        await self._queues.drop(queue)
        self._rebalancer.soon()

    # -- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to work. Subscriptions may be made before or after.

        Raises:
            ClientStateError: it was started before, or the client has a consumer of the group already.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        self._life.move(State.RUNNING)
        try:
            self._client.register_consumer(self.group, self._member)
        except ClientStateError:
            self._life.move(State.CLOSED)
            raise
        self._member.started_ms = self._now_ms()
        await self._client.start()
        try:
            await self._filter_checks.check_all(self._filters)
        except BaseException:
            await self.close()
            raise
        clock = self._client.runtime.clock
        if self._tracer is not None:
            await self._tracer.start()
        if isinstance(self._offsets, LocalOffsets):
            await self._offsets.load()
        else:
            self._filters.setdefault(retry_topic(self.group), tag_filter("*", self._now_ms()))
            self._client.watch(retry_topic(self.group))
        if self._locks is not None:
            renewals = every(clock, RENEW_EVERY_S, self._locks.renew, first_s=FIRST_RENEWAL_S)
            self._background.spawn(renewals, "locks")
        self._background.spawn(self._rebalancer.run(), "rebalance")
        self._background.spawn(every(clock, COMMIT_EVERY_S, self._offsets.commit_periodically), "commit")
        self._background.spawn(every(clock, EXPIRY_CHECK_S, self._expire), "expiry")

    async def close(self) -> None:
        """Stop pulling, let running listener calls end, commit the offsets and leave the group."""
        if self._life.move(State.CLOSED) is not State.RUNNING:
            return
        self._delivery.closed = True
        self._delivery.ready.put_nowait(None)
        self._filter_checks.close()
        await self._background.stop()
        await self._listeners_ended()
        await self._queues.close()
        await self._client.unregister_consumer(self.group)
        if self._tracer is not None:
            await self._tracer.close()
        for sender in (self._sender, self._trace_sender):
            if sender is not None:
                await sender.close()
        await self._client.close()

    async def _listeners_ended(self) -> None:
        if not self._running:
            return
        self._idle.clear()
        timer = asyncio.get_running_loop().call_later(self._settings.close_timeout_s, self._idle.set)
        await self._idle.wait()
        timer.cancel()
        if self._running:
            log.warning("%d listener calls of group %s still run at close", self._running, self.group)

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Checked:
        """Receive the messages of ``topic``; replaces an earlier subscription to it.

        Args:
            tags: ``*`` for all, else ``a || b``.
            sql: an SQL92 expression over properties instead of tags. The topic's brokers are asked whether
                they can filter by it: await what this call returns to hear a refusal here; else
                :meth:`start`, :meth:`run` or the iteration raises it before the first message.

        Raises:
            ValidationError: the topic or the expression cannot be right.
            BrokerError: when awaited: a broker does not filter by SQL92 expressions (code 1), or this one is
                broken (code 23, with the place of the mistake).
        """
        topic = self._membership.full_topic(topic)
        self._filters[topic] = wanted = self._membership.wanted(tags, sql)
        self._client.watch(topic)
        self._subscriptions_changed()
        return self._filter_checks.begin(topic, wanted) if self._life.running else Checked()

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving the messages of ``topic``."""
        self._filter_checks.forget(self._namespace.full(topic))
        if self._filters.pop(self._namespace.full(topic), None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._life.running:
            self._background.spawn(self._announce(), "announce")

    async def _announce(self) -> None:
        # The brokers must know what we want before we pull it.
        await self._client.heartbeat()
        await self._queues.drop_unwanted()
        self._rebalancer.soon()

    # -- receiving -------------------------------------------------------------------------------------

    async def run(self, listener: Listener) -> None:
        """Give every message to ``listener``, up to ``concurrency`` at a time, until the consumer closes.

        The listener's return means done; an exception means again later (behaviour CR-02).

        Raises:
            ClientStateError: the consumer is not running.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        self._life.check_running()
        await self._filter_checks.ended()
        is_async = inspect.iscoroutinefunction(_callable(listener))
        call: Callable[[ReceivedMessage], Any] = listener if is_async else self._in_thread(listener)
        self._listener = call = around_listener(self._settings.middleware, call)
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._settings.concurrency):
                workers.create_task(self._work(call))

    def _in_thread(self, listener: Listener) -> Callable[[ReceivedMessage], Awaitable[object]]:
        async def call(message: ReceivedMessage) -> object:
            result = await self._client.runtime.threads.run(listener, message)
            return await result if inspect.isawaitable(result) else result

        return call

    async def _work(self, listener: Callable[[ReceivedMessage], Any]) -> None:
        while (delivery := await self._next()) is not None:
            process_queue, message = delivery
            self._running += 1
            try:
                await listener(message)
            except Exception as error:
                log.warning("listener failed on %s of %s: %r", message.message_id, process_queue.queue, error)
                await self._failed(process_queue, message, error)
            else:
                self._done(process_queue, message)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    async def messages(self, *, auto_ack: bool = True) -> AsyncIterator[ReceivedMessage]:
        """The messages one by one, until the consumer closes.

        Args:
            auto_ack: asking for the next message marks the one before as done, unless :meth:`ack`,
                :meth:`retry` or :meth:`process` settled it. The message that is in flight when the loop
                is left is not done. Without it every message must be settled.

        Raises:
            ClientStateError: the consumer is not running.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        self._life.check_running()
        await self._filter_checks.ended()
        while (delivery := await self._next()) is not None:
            message = delivery[1]
            self._in_flight[id(message)] = delivery
            yield message
            if auto_ack:
                self._settle(message)

    def ack(self, message: ReceivedMessage) -> None:
        """This message is done. One that was settled already, or was sent back meanwhile, changes nothing."""
        self._settle(message)

    async def retry(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have this message delivered again. When no broker takes it back, it comes again from here.

        Args:
            delay_level: 0 lets the broker choose by the number of deliveries; 1 to 18 is a level of its
                delay table; below 0 makes the message a dead letter at once.
        """
        await self._retry(message, None, delay_level)

    async def _retry(self, message: ReceivedMessage, error: Exception | None, delay_level: int = 0) -> None:
        delivery = self._in_flight.pop(id(message), None)
        if delivery is not None:
            await self._failed(*delivery, error, delay_level)

    @contextlib.asynccontextmanager
    async def process(self, message: ReceivedMessage) -> AsyncIterator[ReceivedMessage]:
        """``async with consumer.process(message):`` - done at the end, delivered again after an exception.

        The exception is logged and does not leave the block, so that a loop over messages goes on.
        """
        try:
            yield message
        except Exception as error:
            log.warning("processing of %s failed: %r", message.message_id, error)
            await self._retry(message, error)
        else:
            self._settle(message)

    def _settle(self, message: ReceivedMessage) -> None:
        delivery = self._in_flight.pop(id(message), None)
        if delivery is not None:
            self._done(*delivery)

    async def _next(self) -> Delivery | None:
        """The next message to handle; None when the consumer is closed."""
        ready = self._delivery.ready
        while True:
            delivery = await ready.get()
            if delivery is None or not self._life.running:
                ready.put_nowait(None)  # for the others that wait
                return None
            process_queue, message = delivery
            if self._delivery.may_begin(process_queue, message):
                process_queue.begin(message.queue_offset, self._now_ms())
                if self._hooks is not None:
                    self._hooks.begin(process_queue.queue, message)
                self._served += 1
                if not self._served % _YIELD_EVERY:
                    # A listener that never waits must not keep pulls and heartbeats from running.
                    await asyncio.sleep(0)
                return delivery

    def _done(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        if self._hooks is not None:
            self._hooks.end(message)
        self._delivery.finished(process_queue, message)

    async def _failed(
        self,
        process_queue: ProcessQueue,
        message: ReceivedMessage,
        error: Exception | None,
        delay_level: int = 0,
    ) -> None:
        if self._hooks is not None:
            self._hooks.end(message, error or ClientStateError("the message shall come again"))
        await self._delivery.failed(process_queue, message, delay_level)

    async def _expire(self) -> None:
        before_ms = self._now_ms() - int(self._settings.consume_timeout_s * 1000)
        for process_queue in self._queues.process_queues().values():
            for message in await self._delivery.expire(process_queue, before_ms):
                log.warning(
                    "%s of %s takes too long, it is sent back", message.message_id, process_queue.queue
                )

    # -- offsets ---------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit what is done, now; it is done every 5 s and at close anyway. Failures are logged."""
        await self._offsets.commit()

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member works on now."""
        return sorted(self._queues.process_queues())

    # -- small things ------------------------------------------------------------------------------------

    async def _consume_now(self, message: ReceivedMessage) -> bool | None:
        """Give this message to the listener, beside the queues; None when there is no listener."""
        if self._listener is None:
            return None
        restore_topic(message, self.group, self._namespace)
        try:
            await self._listener(message)
        except Exception as error:
            log.warning("listener failed on %s, consumed on request: %r", message.message_id, error)
            return False
        return True

    def _now_ms(self) -> int:
        return self._client.runtime.clock.now_ms()


def _callable(listener: Listener) -> Callable[..., Any]:
    """The function whose kind decides: of an object with ``__call__``, that method."""
    if inspect.isfunction(listener) or inspect.ismethod(listener):
        return listener
    call: Callable[..., Any] = getattr(listener, "__call__", listener)  # noqa: B004
    return call
