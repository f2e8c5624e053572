"""The producer: choose a queue, send, and try another broker when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.hooks import Hooks, SendOne, around_sends
from orbitmq.client.keywords import takes
from orbitmq.client.life import AsyncContext, ClientState
from orbitmq.client.model import SendResult
from orbitmq.client.namespaces import Namespace
from orbitmq.client.observe.trace import SendTrace
from orbitmq.client.producer.batching import Accumulator
from orbitmq.client.producer.callbacks import MAX_SUBMITTED, SendDone, Submitted
from orbitmq.client.producer.detector import DETECT_EVERY_S, Detector
from orbitmq.client.producer.faults import PROFILES, FaultItem, FaultTable
from orbitmq.client.producer.flow import PacedKernel
from orbitmq.client.producer.inner import make_tracer
from orbitmq.client.producer.open_batch import plain_body
from orbitmq.client.producer.options import PLAIN, PLAIN_SUBMITTED, ProducerOptions, SendOptions, in_ms
from orbitmq.client.producer.queue_choice import QueueChooser, Selector, by_hash, queue_of
from orbitmq.client.producer.request import Compression, Outgoing, OutgoingFactory
from orbitmq.client.producer.request_reply import Replies
from orbitmq.client.producer.send import RetryOptions, SendKernel
from orbitmq.client.producer.taken import taken
from orbitmq.client.producer.unsent import Unsent
from orbitmq.client.ranges import check_kind, check_number
from orbitmq.client.validation import (
    check_batch,
    check_group,
    check_is_message,
    check_message,
    check_queue,
    check_send_topic,
    check_topic,
)
from orbitmq.durations import Duration, milliseconds
from orbitmq.errors import ValidationError
from orbitmq.message.model import Message, MessageQueue, ReceivedMessage
from orbitmq.parameters import refuses_unknown
from orbitmq.runtime.system import system_runtime
from orbitmq.runtime.tasks import Background, every


@refuses_unknown
class Producer(AsyncContext):
    """Sends messages. Safe for any number of tasks of one event loop at the same time.

    ::

        async with Producer("orders", name_servers="127.0.0.1:9876") as producer:
            result = await producer.send(Message("topic", b"body", tags="new", keys="4711"))

    Args:
        group: the producer group, 1 to 120 characters.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: the value of ``NAMESRV_ADDR``, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; each member of a group needs its own. Made of
            host, process and a random number by default.
        timeout: seconds, or a timedelta, for a whole send with all its tries.
        attempt_timeout: upper limit of one try while others remain. Without it a try gets an equal share of
            the time left, so that a frozen broker never uses up the time of later tries.
        retries: further tries after a failed one, each on another broker if the topic has one.
        async_retries: the same for :meth:`submit` (retryTimesWhenSendAsyncFailed). It also counts for a
            submitted message with a chosen queue, which is sent to that queue again: set 0 where order
            matters.
        retry_codes: response codes to retry beside RocketMQ's own list.
        retry_not_stored_ok: try another broker when the status is not SEND_OK. The message is then stored
            more than once.
        max_message_bytes: larger bodies are refused here.
        compress_from_bytes: bodies from this size on are compressed.
        compression: zlib, LZ4 or ZSTD; the last two need ``orbitmq[compression]`` and 5.x consumers.
        compression_level: of zlib (0 to 9) or ZSTD (1 to 22).
        send_latency_fault_enable: avoid brokers that were slow or failed, for a while.
        fault_profile: how long: ``4.x`` (30 s to 600 s), ``5.x`` (2 s to 30 s), or ``4.7``: as ``4.x``, but a
            retry prefers the broker just tried, as in RocketMQ up to 4.7.1.
        start_detector_enable: probe brokers that failed, every 3 s, to see when they can be reached again.
        auto_batch: collect plain sends of a topic into batches; many more messages per second, each up to
            ``linger`` later. A send to a chosen queue or with a timeout of its own goes alone.
        hooks: see every try of a send, and may forbid it.
        middleware: ``await middleware(message, send)`` around every kind of send, the first one outermost. It
            gets the list with :meth:`send_batch`; with :meth:`send_oneway` ``send`` returns None.
        trace: record in RMQ_SYS_TRACE_TOPIC, or the topic named here, where each message was stored.
        namespace: topics and the group are meant inside this namespace (``namespace%topic``). Results and
            :meth:`queues` name topics in full.
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
        credentials: ``Credentials(access_key, secret_key)`` that every request is signed with, or a function
            that is called for each request and returns them.
        tls: ``Tls(ca=, cert=, key=)`` for servers that speak TLS; without it connections are plain TCP.
        max_in_flight: back pressure: the most sends in progress at a time; further sends wait. A batch counts
            as one. None for no limit but ``max_async``.
        max_in_flight_bytes: with ``max_in_flight``: the most bytes of their bodies together.
        max_async: requests of this client that wait for an answer at a time (clientAsyncSemaphoreValue);
            further ones wait, and fail if no place becomes free in time.
        callback_threads: run the callbacks of :meth:`submit` in this many threads, 0 to 64; 0 runs them on
            the event loop, which a slow callback blocks.
        default_topic_queues: queues of a topic that the first message creates.
        client: share the connections of another client instead of opening new ones. Different
            ``name_servers``, a different ``runtime`` and options about connections are then refused.
        runtime: the machine; the real one by default.
    """

    @takes(ProducerOptions)
    def __init__(self, settings: ProducerOptions) -> None:
        self._set_up(settings)

    def _set_up(self, settings: ProducerOptions) -> None:
        check_group(settings.group)
        self._namespace = Namespace(settings.namespace)
        self.group = group = self._namespace.full(settings.group)
        check_group(group)
        self._max_message_bytes = settings.max_message_bytes
        self._timeout_ms = milliseconds(settings.timeout)
        self._client = client = settings.client or _client(settings)
        self._faults = FaultTable(PROFILES[settings.fault_profile], client.runtime.random)
        self._active_faults = self._faults if settings.send_latency_fault_enable else None
        self._detector = Detector(client, self._faults) if settings.start_detector_enable else None
        self._middleware = tuple(settings.middleware)
        self._wrapped = bool(settings.middleware or settings.namespace)
        self._trace_sender, self._tracer = make_tracer(client, settings.trace)
        hooks = tuple(settings.hooks)
        if self._tracer is not None:
            hooks = (*hooks, SendTrace(self._tracer, self._namespace))
        self._hooks = Hooks(hooks) if hooks else None
        self._kernel = SendKernel(
            client,
            RetryOptions(
                self._timeout_ms,
                in_ms(settings.attempt_timeout),
                settings.retries,
                settings.async_retries,
                frozenset(settings.retry_codes),
                settings.retry_not_stored_ok,
            ),
            self._active_faults,
            restores_reachable=self._detector is not None,
            hooks=self._hooks,
            group=group,
        )
        self._paced: PacedKernel | SendKernel = self._kernel
        if settings.max_in_flight is not None:
            limits = settings.max_in_flight, settings.max_in_flight_bytes
            self._paced = PacedKernel(self._kernel, client, self._timeout_ms, *limits)
        self._outgoing = OutgoingFactory(
            group,
            client.runtime,
            default_queues=client.default_topic_queues,
            compression=Compression(
                settings.compress_from_bytes, settings.compression, settings.compression_level
            ),
            max_message_bytes=settings.max_message_bytes,
        )
        self._choosers: dict[str, QueueChooser] = {}
        threads = settings.callback_threads
        self._submitted = Submitted(client.runtime.threads.pool(threads) if threads else None)
        self._background = Background(f"producer {group}")
        self._batches: Accumulator | None = None
        # Set while the producer runs with auto_batch.
        self._collect: Callable[[Message], asyncio.Future[SendResult] | None] | None = None
        if settings.auto_batch is not None:
            self._batches = Accumulator(
                settings.auto_batch, self._outgoing, self._check, self._send_collected, self._background
            )
        self._life = ClientState(f"producer {group!r}")
        # True while the producer closes: messages submitted before are still sent.
        self._finishing = False
        self._unsent = Unsent(group, self._submitted, self._batches)

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the background work. The producer connects with the first send.

        Raises:
            ClientStateError: the producer was started before, or its client is closed or works in another
                event loop.
        """
        with self._life.starting():
            await self._client.start()
        self._client.register_producer(self.group)
        self._collect = None if self._batches is None else self._batches.add
        if self._tracer is not None:
            await self._tracer.start()
        if self._detector is not None:
            self._background.spawn(
                every(self._client.runtime.clock, DETECT_EVERY_S, self._detector.probe), "detector"
            )

    async def close(self) -> None:
        """Send submitted and collected messages, unregister from the brokers and close. Awaited sends fail.

        Submitted messages have 10 s at most, and callbacks in threads another 10 s; the number of messages
        without an answer is logged. A cancelled close continues to its end; a second call waits for that.
        """
        self._finishing = self._finishing or self._life.running
        await self._life.end(self._leave)

    async def _leave(self) -> None:
        self._collect = None
        await self._unsent.sent()
        self._finishing = False
        await self._background.stop()
        if self._tracer is not None:
            await self._tracer.close()
        if self._trace_sender is not None:
            await self._trace_sender.close()
        await self._client.unregister_producer(self.group)
        await self._client.close()
        await self._submitted.close()

    # -- sending ---------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        Args:
            queue: send to this queue; such a send has one try.
            ordering_key: send to the queue that this key hashes to, so that messages of one key stay in
                order; such a send has one try. The key travels as the property ``__SHARDINGKEY``.
            selector: ``selector(queues, message, ordering_key)`` chooses the queue instead of the hash.
            timeout: the timeout of this send, in place of the producer's.

        Raises:
            ValidationError: a broker would refuse the message.
            SendError: the message was not sent, or it is not known whether it was (kind TIMEOUT).
                ``attempts`` names every broker tried and why it failed.
            ClientStateError: the producer is not running, or was started in another event loop.
        """
        self._life.check_loop()
        # Inlined: with auto_batch a send takes a few microseconds.
        options = PLAIN
        if queue is not None or ordering_key is not None or selector is not None or timeout is not None:
            options = SendOptions(queue, ordering_key, selector, in_ms(timeout))
        if self._collect is not None and options is PLAIN and not self._wrapped:
            collected = self._collect(message)
            if collected is not None:
                return await collected
            return await self._alone(taken(message), options)
        return await self._send_taken(taken(message), options)

    async def _send_taken(self, message: Message, options: SendOptions) -> SendResult:
        """As :meth:`send`, for a message that is already a copy and may carry transaction properties."""
        if not self._wrapped:
            return await self._send(message, options)
        message = self._outward(message)
        result: SendResult = await self._through_middleware(message, partial(self._send, options=options))
        return result

    def _outward(self, message: Message) -> Message:
        """The message with the namespace in its topic; refuses an object that is no message."""
        check_is_message(message)
        if self._namespace:
            check_topic(message.topic)
        return self._namespace.outward(message)

    async def _through_middleware(self, given: Message | list[Message], send: SendOne) -> Any:
        """Run a send of any kind (one message, a list, one-way) through the middleware."""
        return await around_sends(self._middleware, send)(given)

    async def _send(self, message: Message, options: SendOptions) -> SendResult:
        collected = self._collected(message, options)
        if collected is not None:
            return await collected
        return await self._alone(message, options)

    def _alone(self, message: Message, options: SendOptions) -> Awaitable[SendResult]:
        """The send of one message outside a batch. Not a coroutine itself, since most messages need none.

        Raises:
            ValidationError, ClientStateError: as :meth:`send`.
        """
        chooser = self._check(message, submitted=options.submitted)
        out = self._outgoing.small(message, options.ordering_key)
        if out is None or options.chooses_queue:
            return self._prepared_and_sent(message, chooser, out, options)
        return self._paced.send(chooser, out, options.queue, options.timeout_ms, submitted=options.submitted)

    async def _prepared_and_sent(
        self, message: Message, chooser: QueueChooser, out: Outgoing | None, options: SendOptions
    ) -> SendResult:
        queue = options.queue
        out = out or await self._outgoing.large(message, options.ordering_key)
        if options.chooses_queue:
            queue = await self._chosen_queue(message, options)
        return await self._paced.send(chooser, out, queue, options.timeout_ms, submitted=options.submitted)

    def _collected(self, message: Message, options: SendOptions) -> asyncio.Future[SendResult] | None:
        """The future of a message that joins a batch; None for a message that has to be sent alone."""
        if self._collect is None or (options is not PLAIN and options is not PLAIN_SUBMITTED):
            return None
        return self._collect(message)

    def submit(
        self,
        message: Message,
        done: SendDone | None = None,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send without waiting; otherwise like :meth:`send`, with tries on other brokers.

        ``async_retries`` limits further tries. For messages that ``auto_batch`` collects, ``retries`` limits
        the tries of their batch.

        Args:
            done: called with the result and None, or with None and the error: on the event loop, or with
                ``callback_threads`` in a thread; never during this call. It is not called for a cancelled
                send.
            queue, ordering_key, selector, timeout: as for :meth:`send`.

        Returns:
            The task or future of the result. Cancelling it only drops the result: the message may be sent all
                the same.

        Raises:
            SendError: 50,000 submitted sends are in progress already (kind TOO_MANY_REQUESTS).
            ValidationError: ``done`` is no function. With ``auto_batch``, the message itself may be invalid,
                too; without it that error is the result.
        """
        self._life.check_loop()
        if done is not None and not callable(done):
            raise ValidationError(f"done must be a function of a result and an error, got {done!r:.80}")
        batches = self._batches
        if self._life.running:
            self._unsent.watch(self._background)
        if self._submitted.full or (batches is not None and batches.waiting >= MAX_SUBMITTED):
            raise self._kernel.too_much_under_way(message.topic, self._client.now_ms())
        options = PLAIN_SUBMITTED
        if queue is not None or ordering_key is not None or selector is not None or timeout is not None:
            options = SendOptions(queue, ordering_key, selector, in_ms(timeout), submitted=True)
        if batches is not None and not self._wrapped:
            collected = self._collected(message, options)
            if collected is not None:
                self._submitted.follow(collected, done)
                return collected
        return self._submitted.start(self._send_taken(taken(message), options), done)

    async def flush(self) -> None:
        """Send the messages that ``auto_batch`` has collected, and wait for the end of all earlier sends.

        Results and errors go to the awaited sends, futures and callbacks as always. The call takes no longer
        than the timeouts of those sends.

        Raises:
            ClientStateError: the producer is not running, or was started in another event loop.
        """
        self._life.check_here()
        await self._unsent.flushed()

    async def recall(self, topic: str, handle: str, *, timeout: Duration | None = None) -> str:
        """Take back a message that was sent for a later time, before it is delivered.

        The message needs ``delay`` or ``deliver_at``, not a delay level. The broker must allow recalls
        (``recallMessageEnable=true``): OrbitMQ's, or Apache's from 5.4 on. A recall succeeds until the second
        in which the message is due begins.

        Args:
            handle: ``SendResult.recall_handle``.

        Returns:
            The unique id of the message.

        Raises:
            ValidationError: ``handle`` is no recall handle.
            BrokerError: the recall was refused: it is too late, the message was recalled already, or the
                broker has no recalls (code 3).
            SendError, TopicNotFoundError, TransportError: the broker cannot be reached.
        """
        self._life.check_loop()
        limit_ms = in_ms(timeout) or self._timeout_ms
        check_topic(topic)
        check_kind("handle", handle, str)
        topic = self._namespace.full(topic)
        await self._kernel.route(topic, self._client.now_ms())
        return await BrokerCalls(self._client).recall(self.group, topic, handle, limit_ms)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; they are stored next to each other in one queue.

        Raises:
            ValidationError: the messages differ in topic or WAIT flag, have delays, are too large together,
                or ``queue`` belongs to another topic.
            SendError, ClientStateError: as :meth:`send`.
        """
        self._life.check_loop()
        options = SendOptions(queue, timeout_ms=in_ms(timeout))
        batch = [self._outward(taken(message)) for message in messages]
        check_batch(batch, self._max_message_bytes)
        result: SendResult = await self._through_middleware(batch, partial(self._send_batch, options=options))
        return result

    async def _send_batch(self, messages: Sequence[Message], options: SendOptions) -> SendResult:
        check_batch(messages, self._max_message_bytes)
        chooser = self._check(messages[0])
        if options.queue is not None:
            queue_of(messages[0].topic, options.queue)
        return await self._paced.send(
            chooser, self._outgoing.batch(messages), options.queue, options.timeout_ms
        )

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Send without waiting for an answer: one try, and no notice if the broker drops the message (AS-10).

        Raises:
            SendError: the message could not be handed to a connection.
            ValidationError, ClientStateError: as :meth:`send`.
        """
        self._life.check_loop()
        options = SendOptions(queue, ordering_key, timeout_ms=in_ms(timeout))
        message = self._outward(taken(message))
        await self._through_middleware(message, partial(self._send_oneway, options=options))

    async def _send_oneway(self, message: Message, options: SendOptions) -> None:
        chooser, key = self._check(message), options.ordering_key
        out = self._outgoing.small(message, key) or await self._outgoing.large(message, key)
        queue = await self._chosen_queue(message, options) if options.chooses_queue else None
        await self._kernel.oneway(chooser, out, queue, options.timeout_ms)

    async def request(
        self,
        message: Message,
        *,
        timeout: Duration,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of its consumer (``ReceivedMessage.reply``).

        Args:
            timeout: for the send and the wait together.
            queue, ordering_key: as for :meth:`send`.

        Raises:
            ReplyTimeoutError: the message is stored, but no reply came in time.
            ValidationError, SendError, ClientStateError: as :meth:`send`.
        """
        self._life.check_loop()
        check_number("timeout", timeout)
        timeout_ms = milliseconds(timeout)
        message = self._outward(taken(message))
        self._check(message)
        replies = self._client.shared(Replies)
        started = self._client.now_ms()
        marked, correlation_id = replies.marked(message, timeout_ms)
        reply = replies.expect(correlation_id)
        try:
            # The broker pushes replies only to clients that have sent it a heartbeat.
            await self._kernel.route(message.topic, started)
            await self._client.heartbeat(only_new=True)
            left_ms = self._left_ms(started, timeout_ms)
            await self._send_taken(marked, SendOptions(queue, ordering_key, timeout_ms=left_ms))
            return await replies.wait(reply, message.topic, self._left_ms(started, timeout_ms), timeout_ms)
        finally:
            replies.forget(correlation_id)

    def _left_ms(self, started: float, timeout_ms: int) -> int:
        return max(1, timeout_ms - int(self._client.now_ms() - started))

    async def reply(
        self, request: ReceivedMessage, body: bytes | str, *, timeout: Duration | None = None
    ) -> SendResult:
        """Answer a request. The reply goes through the request's broker.

        Raises:
            MessageFormatError: ``request`` is a message that expects no reply.
            SendError: the requesting client could not be reached.
            ValidationError, ClientStateError: as :meth:`send`.
        """
        message = request.reply(body)
        route = await self._kernel.route(message.topic, self._client.now_ms())
        queues = [q for q in route.publish if q.broker_name == request.broker_name]
        return await self.send(message, queue=queues[0] if queues else None, timeout=timeout)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that are writable now.

        Raises:
            SendError: no name server answers, or the topic is unknown and no broker would create it.
            ValidationError: the topic's name is invalid, or the topic belongs to the broker.
        """
        check_topic(topic)
        topic = self._namespace.full(topic)
        check_send_topic(topic)
        return list((await self._kernel.route(topic, self._client.now_ms())).publish)

    def fault_table(self) -> list[FaultItem]:
        """Latency, isolation and reachability of each broker; empty while fault tolerance is off."""
        return self._faults.snapshot(self._client.now_ms())

    # -- before the kernel -----------------------------------------------------------------------------

    def _check(self, message: Message, *, submitted: bool = False) -> QueueChooser:
        if not self._life.running and not (submitted and self._finishing):
            self._life.check_running()
        # A message with only a topic and a body can have one fault, its size.
        body = plain_body(message)
        if body is None or len(body) > self._max_message_bytes:
            check_message(message, self._max_message_bytes)
        topic = message.topic
        chooser = self._choosers.get(topic) if isinstance(topic, str) else None
        if chooser is None:
            check_send_topic(topic)
            chooser = QueueChooser(self._client.runtime.random, self._active_faults)
            self._choosers[topic] = chooser
        return chooser

    async def _send_collected(self, out: Outgoing) -> SendResult:
        return await self._paced.send(self._choosers[out.topic], out, None, None)

    async def _chosen_queue(self, message: Message, options: SendOptions) -> MessageQueue:
        if options.queue is not None:
            check_queue(options.queue)
        started = self._client.now_ms()
        route = await self._kernel.route(message.topic, started)
        queue = options.queue
        if queue is None:
            if not route.publish:
                raise self._kernel.no_writable_queue(route, started)
            queue = (options.selector or by_hash)(route.publish, message, options.ordering_key)
        return queue_of(message.topic, queue)


def _client(settings: ProducerOptions) -> ClientInstance:
    """A client instance of the producer's own."""
    return ClientInstance(
        settings.runtime or system_runtime(),
        settings.name_servers,
        client_id=settings.client_id,
        default_topic_queues=settings.default_topic_queues,
        namespace_v2=settings.namespace_v2,
        credentials=settings.credentials,
        tls=settings.tls,
        max_async=settings.max_async,
    )
