"""The push consumer: a group's members share the queues of its topics, and each message is handled once."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from orbitmq.client import operator_requests
from orbitmq.client.allocation import Allocation, average
from orbitmq.client.broker_calls import BrokerCalls, Filter, PullOptions
from orbitmq.client.instance import ClientInstance
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.queue_reader import FlowLimits, QueueReader
from orbitmq.client.rebalance import Rebalancer
from orbitmq.client.redelivery import Redelivery, restore_topic, retry_topic
from orbitmq.client.start_offset import start_offset
from orbitmq.client.subscriptions import sql_filter, subscription_data, tag_filter
from orbitmq.client.validation import check_group, check_topic
from orbitmq.errors import ClientStateError, OrbitError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.system import system_runtime
from orbitmq.runtime.tasks import Background, every
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

log = logging.getLogger("orbitmq.client")

Listener = Callable[[ReceivedMessage], Awaitable[object] | object]
_Delivery = tuple[ProcessQueue, ReceivedMessage]

COMMIT_EVERY_S = 5.0
# After this a message that no broker took back is given to the listener again (CR-09).
LOCAL_RETRY_S = 5.0
# How long a queue that goes to another member waits for the messages in hand. Shorter than the pause that the
# other makes before it asks for the offset (rebalance.HAND_OVER_S), so that it does not get them again.
HAND_IN_S = 0.15
_YIELD_EVERY = 64
EXPIRY_CHECK_S = 60.0
TIMEOUT_DELAY_LEVEL = 3


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

    Args:
        group: the consumer group. Its members must subscribe to the same topics and tags.
        name_servers: ``host:port;host:port``.
        consume_from: where to begin on a queue for which the group has no offset.
        consume_timestamp_ms: for :attr:`ConsumeFrom.TIMESTAMP`.
        concurrency: listener calls at a time in :meth:`run`.
        pull_batch_size: messages per pull; a broker gives 32 at most by default.
        limits: when a queue is not pulled because its messages are not finished.
        max_reconsume_times: deliveries after the first before a message becomes a dead letter, -1 for 16.
        allocate: how queues are shared; all members must use the same way.
        consume_timeout_s: a message that the listener has had for longer is sent back, as if it had failed.
        close_timeout_s: how long :meth:`close` waits for running listener calls.
        client: share the connections of another client instance.
        runtime: the machine; the real one by default.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str = "127.0.0.1:9876",
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        consume_timestamp_ms: int | None = None,
        concurrency: int = 20,
        pull_batch_size: int = 32,
        limits: FlowLimits | None = None,
        max_reconsume_times: int = -1,
        allocate: Allocation = average,
        consume_timeout_s: float = 900.0,
        close_timeout_s: float = 10.0,
        client: ClientInstance | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._client = client or ClientInstance(runtime or system_runtime(), name_servers)
        self._calls = BrokerCalls(self._client)
        self._consume_from = consume_from
        self._consume_timestamp_ms = consume_timestamp_ms
        self._concurrency = concurrency
        self._options = PullOptions(group, pull_batch_size)
        self._limits = limits or FlowLimits()
        self._consume_timeout_s = consume_timeout_s
        self._close_timeout_s = close_timeout_s
        self._allocate = allocate
        self._redelivery = Redelivery(self._client, self._calls, group, max_reconsume_times)
        self._offsets = OffsetStore(self._calls, group)
        self._filters: dict[str, Filter] = {}
        self._readers: dict[MessageQueue, tuple[QueueReader, asyncio.Task[None]]] = {}
        self._taking: set[MessageQueue] = set()
        self._ready: asyncio.Queue[_Delivery | None] = asyncio.Queue()
        self._in_hand: dict[int, _Delivery] = {}
        self._running = 0
        self._served = 0
        self._idle = asyncio.Event()
        self._rebalancer: Rebalancer | None = None
        self._background = Background(f"consumer {group}")
        self._listener: Callable[[ReceivedMessage], Awaitable[object]] | None = None
        self.started_ms = 0
        self._state = "new"

    # -- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to work. Subscriptions may be made before or after."""
        if self._state != "new":
            raise ClientStateError(f"consumer {self.group!r} was started already")
        self._client.register_consumer(self.group, self)
        self._state = "running"
        self.started_ms = self._now_ms()
        await self._client.start()
        self._filters.setdefault(retry_topic(self.group), tag_filter("*", self._now_ms()))
        self._client.watch(retry_topic(self.group))
        self._rebalancer = Rebalancer(self._client, self._calls, self.group, self, self._allocate)
        self._background.spawn(self._rebalancer.run(), "rebalance")
        clock = self._client.runtime.clock
        self._background.spawn(every(clock, COMMIT_EVERY_S, self._offsets.commit_periodically), "commit")
        self._background.spawn(every(clock, EXPIRY_CHECK_S, self._expire), "expiry")

    async def close(self) -> None:
        """Stop pulling, let running listener calls end, commit the offsets and leave the group."""
        if self._state != "running":
            self._state = "closed"
            return
        self._state = "closed"
        self._ready.put_nowait(None)
        await self._background.stop()
        await self._listeners_ended()
        for reader, _ in self._readers.values():
            reader.held.dropped = reader.held.released = True
        await self._offsets.commit()
        await self._client.unregister_consumer(self.group)
        await self._redelivery.close()
        await self._client.close()

    async def _listeners_ended(self) -> None:
        if not self._running:
            return
        self._idle.clear()
        timer = asyncio.get_running_loop().call_later(self._close_timeout_s, self._idle.set)
        await self._idle.wait()
        timer.cancel()
        if self._running:
            log.warning("%d listener calls of group %s still run at close", self._running, self.group)

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> None:
        """Receive the messages of ``topic``; replaces an earlier subscription to it.

        Args:
            tags: ``*`` for all, else ``a || b``.
            sql: an SQL92 expression over properties instead of tags.

        Raises:
            ValidationError: the topic or the expression cannot be right.
        """
        check_topic(topic)
        now = self._now_ms()
        self._filters[topic] = tag_filter(tags, now) if sql is None else sql_filter(sql, now)
        self._client.watch(topic)
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving the messages of ``topic``."""
        if self._filters.pop(topic, None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._state == "running":
            self._background.spawn(self._announce(), "announce")

    async def _announce(self) -> None:
        # The brokers must know what we want before we pull it.
        await self._client.heartbeat()
        for queue in [queue for queue in self._readers if queue.topic not in self._filters]:
            await self.drop(queue)
        if self._rebalancer is not None:
            self._rebalancer.soon()

    # -- receiving -------------------------------------------------------------------------------------

    async def run(self, listener: Listener) -> None:
        """Give every message to ``listener``, up to ``concurrency`` at a time, until the consumer closes.

        The listener's return means done; an exception means again later (behaviour CR-02).
        """
        self._check_running()
        is_async = inspect.iscoroutinefunction(_callable(listener))
        call: Callable[[ReceivedMessage], Any] = listener if is_async else self._in_thread(listener)
        self._listener = call
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._concurrency):
                workers.create_task(self._work(call))

    def _in_thread(self, listener: Listener) -> Callable[[ReceivedMessage], Awaitable[object]]:
        async def call(message: ReceivedMessage) -> object:
            result = await self._client.runtime.threads.run(listener, message)
            return await result if inspect.isawaitable(result) else result

        return call

    async def _work(self, listener: Callable[[ReceivedMessage], Any]) -> None:
        while (delivery := await self._next()) is not None:
            held, message = delivery
            self._running += 1
            try:
                await listener(message)
            except Exception as error:
                log.warning("listener failed on %s of %s: %r", message.message_id, held.queue, error)
                await self._again(held, message)
            else:
                self._finished(held, message)
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
                :meth:`retry` or :meth:`process` settled it. The one in hand when the loop is left is not
                done. Without it every message must be settled.
        """
        self._check_running()
        while (delivery := await self._next()) is not None:
            message = delivery[1]
            self._in_hand[id(message)] = delivery
            yield message
            if auto_ack:
                self._settle(message)

    def ack(self, message: ReceivedMessage) -> None:
        """This message is done."""
        self._settle(message)

    async def retry(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have this message delivered again.

        Args:
            delay_level: 0 lets the broker choose by the number of deliveries; 1 to 18 is a level of its
                delay table; below 0 makes the message a dead letter at once.
        """
        delivery = self._in_hand.pop(id(message), None)
        if delivery is not None:
            await self._again(*delivery, delay_level)

    @contextlib.asynccontextmanager
    async def process(self, message: ReceivedMessage) -> AsyncIterator[ReceivedMessage]:
        """``async with consumer.process(message):`` - done at the end, delivered again after an exception.

        The exception is logged and does not leave the block, so that a loop over messages goes on.
        """
        try:
            yield message
        except Exception as error:
            log.warning("processing of %s failed: %r", message.message_id, error)
            await self.retry(message)
        else:
            self._settle(message)

    def _settle(self, message: ReceivedMessage) -> None:
        delivery = self._in_hand.pop(id(message), None)
        if delivery is not None:
            self._finished(*delivery)

    async def _next(self) -> _Delivery | None:
        """The next message to handle; None when the consumer is closed."""
        while True:
            delivery = await self._ready.get()
            if delivery is None or self._state != "running":
                self._ready.put_nowait(None)  # for the others that wait
                return None
            if not delivery[0].dropped:
                delivery[0].begin(delivery[1].queue_offset, self._now_ms())
                self._served += 1
                if not self._served % _YIELD_EVERY:
                    # A listener that never waits must not keep pulls and heartbeats from running.
                    await asyncio.sleep(0)
                return delivery

    def _finished(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        offset = held.finish(message.queue_offset)
        if offset >= 0 and not held.released:
            self._offsets.update(held.queue, offset)

    async def _again(self, held: ProcessQueue, message: ReceivedMessage, delay_level: int = 0) -> None:
        if held.released or message.queue_offset not in held:
            return  # someone else's now, or sent back already because it took too long (CR-06)
        if await self._redelivery.send_back(message, delay_level):
            self._finished(held, message)
            return
        held.put_aside(message.queue_offset)
        message.reconsume_times += 1
        if self._state == "running":
            self._background.spawn(self._deliver_later(held, message), "local retry")

    async def _expire(self) -> None:
        """Send back what the listener has had for too long, so that it no longer holds the offset (CR-15)."""
        before_ms = self._now_ms() - int(self._consume_timeout_s * 1000)
        for held in self.held().values():
            for message in held.overdue(before_ms):
                log.warning("%s of %s takes too long, sending it back", message.message_id, held.queue)
                if await self._redelivery.send_back(message, TIMEOUT_DELAY_LEVEL):
                    self._finished(held, message)

    async def _deliver_later(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        await self._client.runtime.clock.sleep(LOCAL_RETRY_S)
        self._deliver(held, message)

    def _deliver(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        restore_topic(message, self.group)
        self._ready.put_nowait((held, message))

    # -- offsets ---------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit what is done, now; it is done every 5 s and at close anyway."""
        await self._offsets.commit()

    def assignment(self) -> list[MessageQueue]:
        """The queues that are ours now."""
        return sorted(self._readers)

    # -- for the shared core and the rebalancer ----------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say about this consumer."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere(self._consume_from.value),
            subscription_data_set=[
                subscription_data(t, wanted) for t, wanted in sorted(self._filters.items())
            ],
        )

    def handle_request(self, command: Command) -> Command | Awaitable[Command | None] | None:
        """What a broker asks or tells."""
        return operator_requests.answer(self, command)

    def members_changed(self) -> None:
        """Rebalance at once."""
        if self._rebalancer is not None:
            self._rebalancer.soon()

    def route_changed(self, topic: str) -> None:
        """Rebalance at once when it is a topic of ours."""
        if topic in self._filters:
            self.members_changed()

    def topics(self) -> Iterable[str]:
        return sorted(self._filters)

    def owned(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._readers if queue.topic == topic}

    async def take(self, queue: MessageQueue) -> bool:
        """Find out where to begin and start to pull; False when the offset cannot be had now."""
        if queue in self._readers or queue in self._taking:
            return True
        self._taking.add(queue)
        try:
            offset = await start_offset(
                self._calls, self.group, queue, self._consume_from, self._consume_timestamp_ms
            )
        except (OrbitError, TransportError, WireError) as error:
            log.info("group %s cannot begin with %s now: %s", self.group, queue, error)
            return False
        finally:
            self._taking.discard(queue)
        self._begin(queue, self._offsets.claim(queue, offset))
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        held = ProcessQueue(queue, offset)
        reader = QueueReader(
            self._client,
            self._calls,
            self._options,
            self._limits,
            held,
            lambda: self._filters.get(queue.topic) or Filter(),
            self._deliver,
            self._offsets,
        )
        task = self._background.spawn(
            reader.run(), f"pull {queue.topic} {queue.broker_name}[{queue.queue_id}]"
        )
        self._readers[queue] = reader, task

    async def drop(self, queue: MessageQueue) -> None:
        """Another member has the queue now: stop at once, and leave the offset behind what was in hand."""
        reader, task = self._readers.pop(queue)
        held = reader.held
        held.dropped = True
        task.cancel()
        clock = self._client.runtime.clock
        until = clock.monotonic() + HAND_IN_S
        while held.in_hand and clock.monotonic() < until:
            await clock.sleep(0.005)
        held.released = True
        await self._offsets.commit([queue])
        self._offsets.release(queue)

    def held(self) -> dict[MessageQueue, ProcessQueue]:
        return {queue: reader.held for queue, (reader, _) in sorted(self._readers.items())}

    def progress(self, queue: MessageQueue) -> int:
        return self._offsets.get(queue)

    async def consume_now(self, message: ReceivedMessage) -> bool | None:
        """Give this message to the listener, beside the queues; None when there is no listener."""
        if self._listener is None:
            return None
        restore_topic(message, self.group)
        try:
            await self._listener(message)
        except Exception as error:
            log.warning("listener failed on %s, consumed on request: %r", message.message_id, error)
            return False
        return True

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from other offsets, as an operator ordered (RESET_CONSUMER_CLIENT_OFFSET)."""
        for queue, offset in offsets.items():
            found = self._readers.pop(queue, None)
            if found is None:
                continue
            found[0].held.dropped = found[0].held.released = True
            found[1].cancel()
            self._offsets.update(queue, offset, increase_only=False)
            await self._offsets.commit([queue])
            self._begin(queue, offset)

    # -- small things ------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._client.runtime.clock.now_ms()

    def _check_running(self) -> None:
        if self._state != "running":
            raise ClientStateError(f"consumer {self.group!r} is not running; use 'async with' or start()")


def _callable(listener: Listener) -> Callable[..., Any]:
    """The function whose kind decides: of an object with ``__call__``, that method."""
    if inspect.isfunction(listener) or inspect.ismethod(listener):
        return listener
    call: Callable[..., Any] = getattr(listener, "__call__", listener)  # noqa: B004
    return call
