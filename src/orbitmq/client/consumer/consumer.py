"""The push consumer: a group's members share the queues of its topics, and each message is handled once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

from orbitmq.client.consumer.direct import consume_directly
from orbitmq.client.consumer.group_consumer import GroupConsumer
from orbitmq.client.consumer.handling import (
    Call,
    Handler,
    TopicHandlers,
    UserCode,
    by_topic,
    by_topic_in_batches,
    calls_ended,
    in_batches,
    one_by_one,
    runs_already,
    serve,
    serve_batches,
)
from orbitmq.client.consumer.mode import ConsumeMode
from orbitmq.client.consumer.options import ConsumerOptions
from orbitmq.client.consumer.redelivery import restore_topic
from orbitmq.client.consumer.shutdown import closing_on_signals
from orbitmq.client.hooks import around_listener
from orbitmq.client.keywords import takes
from orbitmq.durations import as_seconds
from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.message.model import ReceivedMessage
from orbitmq.parameters import refuses_unknown
from orbitmq.wire.bodies.client import ConsumeMessageDirectlyResult

H = TypeVar("H", bound=Callable[..., Any])

MAX_BATCH = 10_000


@refuses_unknown
class Consumer(GroupConsumer):
    """Receives the messages of its group's topics; every message is handled by one member.

    With a handler, which may be ``async`` or plain; a plain one runs in a thread::

        async with Consumer("billing", name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders", tags="new || paid")
            await consumer.run(handle)  # until cancelled, or close() is called

    with a handler for each topic::

        @consumer.on("orders", tags="new || paid")
        async def handle(message): ...

    or message by message; requesting the next message marks the previous one as done::

        async for message in consumer:
            ...

    A message is done when the handler returns. When it raises, the message is sent back and delivered again
    after a delay that grows from 10 s to 2 h, then becomes a dead letter (``%DLQ%group``). A handler may
    settle a message itself: ``message.ack()``, ``message.retry(delay=30)``, ``message.reject()``. A message
    that was delivered but is not done when the process ends is delivered again: handle messages idempotently.

    A message whose body cannot be unpacked comes as an :class:`~orbitmq.message.model.UnreadableMessage`.
    Reading its body raises, so it is retried like any failed message and holds up no other.

    Args:
        group: the consumer group. Its members must subscribe to the same topics and tags.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: the value of ``NAMESRV_ADDR``, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; each member of a group needs its own. Made of
            host, process and a random number by default.
        consume_from: where to begin on a queue for which the group has no offset.
        consume_timestamp: for :attr:`ConsumeFrom.TIMESTAMP`, a datetime with a time zone; 30 minutes ago by
            default.
        concurrency: handler calls at a time in :meth:`run`, and the threads that plain handlers have.
        pull_batch_size: messages per pull; a broker gives 32 at most by default.
        limits: how many unfinished messages, and how many bytes, stop pulling: of one queue, and of all
            together.
        max_reconsume_times: deliveries after the first before a message becomes a dead letter; -1 for the
            group's own setting at the broker (retryMaxTimes, 16), or for no limit when ``ordered``.
        pop_batch_size: messages per pop, 1 to 32, when the broker sets the group to popping (``ByBroker``).
        pop_invisible_for: seconds for which a popped message is this member's, 5 to 300; it is renewed while
            the member has the message, so this is also how long the messages of a member that died stay
            invisible.
        ordered: the messages of a queue one after the other, each queue at one member at a time. A message
            that fails is tried again, and its queue waits for it.
        failure_pause: with ``ordered``: the pause of a queue after a failure. Less than 0.01 s counts as 0.01
            s, more than 30 s as 30 s, as in RocketMQ.
        broadcast: every member gets all messages. Progress is kept in a local file, and a failed message is
            not delivered again.
        offsets_folder: with ``broadcast``: the folder of that file, ``~/.rocketmq_offsets/<host>@DEFAULT`` by
            default. Each member on a machine needs its own folder: a second member with the same one is
            refused at its start.
        allocate: how queues are shared; all members must use the same way. With ``ByBroker()`` the broker
            shares them, and decides whether they are pulled or popped.
        consume_timeout: a message that a handler has had for longer is sent back, as if it had failed.
        close_timeout: how long :meth:`close` waits for running handler calls.
        hooks: see every message before and after it is handled.
        middleware: ``await middleware(message, handle)`` around the handlers of :meth:`run`; with batches it
            gets the list.
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

    @takes(ConsumerOptions)
    def __init__(self, settings: ConsumerOptions) -> None:
        mode = ConsumeMode(
            settings.ordered,
            settings.broadcast,
            settings.max_reconsume_times,
            as_seconds(settings.failure_pause),
            settings.offsets_folder,
            as_seconds(settings.consume_timeout),
        )
        super().__init__(settings.group, settings, mode)
        self._user_code = UserCode(self._client.runtime.threads, settings.concurrency)
        self._handlers = TopicHandlers(self._user_code.as_async)
        # The callable that runs the user's handlers in the current `run`.
        self._call: Call | None = None
        self._batch: int | None = None

    async def _user_code_ended(self) -> None:
        await calls_ended(
            self._workers, self._life.closer, as_seconds(self._settings.close_timeout), self.group
        )
        self._user_code.close()

    def on(
        self, topic: str | re.Pattern[str], tags: str = "*", *, sql: str | None = None
    ) -> Callable[[H], H]:
        """Subscribe to ``topic``, with the decorated function as the handler of its messages, redelivered
        ones included.

        Works while :meth:`run` is under way, too::

            @consumer.on("orders", tags="new || paid")
            async def handle(message): ...

            await consumer.run()

        Args:
            topic, tags, sql: as for :meth:`subscribe`. A handler of the topic's own name takes precedence
                over the handler of a pattern.

        Raises:
            ValidationError: as :meth:`subscribe`.
        """
        # Check topic and tags here, so that an invalid one raises at the caller.
        handled = topic
        if not isinstance(topic, re.Pattern):
            handled = self._namespace.short(self._membership.full_topic(topic))
        self._membership.wanted(tags, sql)

        def register(handler: H) -> H:
            self._handlers.add(handled, handler)
            # Subscribe last: a message may arrive at once.
            self.subscribe(topic, tags, sql=sql)
            return handler

        return register

    # -- receiving -------------------------------------------------------------------------------------

    async def run(
        self,
        handler: Handler | None = None,
        *,
        batch: int | None = None,
        stop_on_signals: bool = False,
    ) -> None:
        """Give every message to ``handler``, ``concurrency`` calls at a time, until the consumer closes.

        When the handler returns, the message is done, unless the handler settled it otherwise; when it
        raises, the message is delivered again later. A ``retry()`` or ``reject()`` in the handler takes
        effect when it returns, an ``ack()`` at once.

        Args:
            handler: async or plain. Without one, those of :meth:`on`.
            batch: give lists of up to this many messages, without waiting for full lists. Messages that the
                handler leaves unsettled are done when it returns, and are delivered again when it raises.
                Lists of an ordered consumer are of one queue, in order.
            stop_on_signals: close the consumer on Ctrl-C and SIGTERM, and return when it is closed; a second
                signal cancels the handlers. Only in the main thread.

        Raises:
            ClientStateError: the consumer is not running, there is no handler, or another call of this method
                is under way.
            ValidationError: ``batch`` is not 1 to 10,000.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        await self._may_begin()
        if batch is not None and not (isinstance(batch, int) and 1 <= batch <= MAX_BATCH):
            raise ValidationError(f"batch must be 1 to {MAX_BATCH:,} messages, got {batch!r}")
        if self._call is not None:
            raise ClientStateError(runs_already(self.group))
        call = self._handler(handler, batch)
        self._call, self._batch = call, batch
        try:
            async with closing_on_signals(self.close, wanted=stop_on_signals), asyncio.TaskGroup() as workers:
                for _ in range(self._settings.concurrency):
                    if batch is None:
                        work = serve(self._delivery, call)
                    else:
                        work = serve_batches(self._delivery, call, batch)
                    worker = workers.create_task(work)
                    self._workers.add(worker)
                    worker.add_done_callback(self._workers.discard)
        finally:
            self._call = None

    async def _may_begin(self) -> None:
        """Raise if the consumer is not running or in another event loop, or if a broker refuses a filter."""
        self._life.check_here()
        await self._filter_checks.ended()

    def _handler(self, handler: Handler | None, batch: int | None) -> Call:
        """The callable for the workers: the handler, or the handlers of `on`, inside the middleware."""
        if handler is not None:
            call = self._user_code.as_async(handler)
        elif self._handlers:
            call = by_topic_in_batches(self._handlers) if batch is not None else by_topic(self._handlers)
        else:
            raise ClientStateError("run() has no handler: give it one, or register some with on()")
        return around_listener(self._settings.middleware, call)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    def messages(self, *, auto_ack: bool = True) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages one by one, until the consumer closes.

        Args:
            auto_ack: requesting the next message marks the previous one as done, unless it was settled. The
                message in flight when the loop is left is not done; it may still be settled. Without
                ``auto_ack`` the user's code must settle every message.

        Raises:
            ClientStateError: the consumer is not running.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        self._life.check_running()
        return one_by_one(self._delivery, self._may_begin, auto_ack=auto_ack)

    def batches(self, at_most: int) -> AsyncGenerator[list[ReceivedMessage], None]:
        """Lists of up to ``at_most`` messages, until the consumer closes; see ``batch`` of :meth:`run`.

        Requesting the next list marks the unsettled messages of the previous one as done; leaving the loop
        does not.

        Raises:
            ClientStateError: the consumer is not running.
            ValidationError: ``at_most`` is not 1 to 10,000.
            BrokerError: as :meth:`messages`.
        """
        self._life.check_running()
        if not (isinstance(at_most, int) and 1 <= at_most <= MAX_BATCH):
            raise ValidationError(f"a batch has 1 to {MAX_BATCH:,} messages, got {at_most!r}")
        return in_batches(self._delivery, self._may_begin, at_most)

    # -- small things ------------------------------------------------------------------------------------

    async def _consume_now(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult | None:
        """Give this message to the handler at once, outside its queue; None when there is no handler."""
        if self._call is None:
            return None
        restore_topic(message, self.group, self._namespace)
        result = await consume_directly(
            self._call, message, self._client.runtime.clock, in_batch=self._batch is not None
        )
        result.order = self._mode.ordered
        return result
