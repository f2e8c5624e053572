"""Gives ready messages to the user's code: handlers, batches, iteration."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any

from orbitmq.client.consumer.delivery import Delivery, HandedOut
from orbitmq.client.consumer.leases import Lease
from orbitmq.client.consumer.process_queue import DeliveryState, ProcessQueue
from orbitmq.errors import ClientStateError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import ACK, Ending, Verdict, is_open, settle
from orbitmq.runtime.line import Line
from orbitmq.runtime.seam import Threads
from orbitmq.runtime.tasks import failed_itself, is_async
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.client")

# The handler that the user gives to ``run``: a function of one message or of a list of messages, async or
# plain.
Handler = Callable[[Any], Awaitable[object] | object]
Call = Callable[[Any], Awaitable[object]]
Prepared = Callable[[], Awaitable[object]]

_YIELD_EVERY = 64


def in_threads(listener: Handler, threads: Threads) -> Call:
    """An async function that runs a plain one in these threads."""

    async def call(messages: Any) -> object:
        result = await threads.run(listener, messages)
        return await result if inspect.isawaitable(result) else result

    return call


class UserCode:
    """Turns the user's handlers into async functions.

    Args:
        threads: the machine's threads; plain handlers get a pool of their own, which closes with the
            consumer.
        most: the most calls at a time.
    """

    def __init__(self, threads: Threads, most: int) -> None:
        self._threads = threads
        self._most = most
        self._pool: Threads | None = None

    def as_async(self, listener: Handler) -> Call:
        """The handler itself if it is async, otherwise an async function that runs it in a thread."""
        if is_async(listener):
            return listener  # type: ignore[return-value]  # seen to be async
        if self._pool is None:
            # Plain handlers get their own pool: slow ones would block the pool that compresses bodies and
            # writes files.
            self._pool = self._threads.pool(self._most)
        return in_threads(listener, self._pool)

    def close(self) -> None:
        """Begin no further call; running calls may end."""
        if self._pool is not None:
            self._pool.close(wait=False)


async def calls_ended(
    calls: Collection[asyncio.Task[None]], closer: asyncio.Task[Any] | None, limit_s: float, group: str
) -> None:
    """Return when these handler calls have ended, or after ``limit_s`` with a warning.

    The call of a handler that closes its own consumer is left out: that handler waits for this function.
    """
    running = set(calls) - {closer}
    if running:
        _, late = await asyncio.wait(running, timeout=limit_s)
        if late:
            log.warning("%d handler calls of group %s still run at close", len(late), group)


def runs_already(group: str) -> str:
    """The error text of a second ``run``: two loops would share the consumer's messages at random."""
    return (
        f"run() of consumer {group!r} is under way already, and a message goes to one handler: "
        "give each topic its handler with on(), more calls at a time with concurrency=, "
        "or make a consumer for each handler"
    )


class TopicHandlers:
    """The handlers of :meth:`Consumer.on`. If several patterns match a topic, the first one counts.

    Args:
        as_async: makes an async function of a handler, when its first message comes.
    """

    def __init__(self, as_async: Callable[[Handler], Call]) -> None:
        self._as_async = as_async
        self._named: dict[str, Handler] = {}
        self._patterns: dict[re.Pattern[str], Handler] = {}
        self._calls: dict[str, Call] = {}

    def __bool__(self) -> bool:
        return bool(self._named or self._patterns)

    def add(self, topic: str | re.Pattern[str], handler: Handler) -> None:
        """Set the handler of this topic, or of all topics without a handler of their own whose whole name
        matches the pattern.
        """
        if isinstance(topic, re.Pattern):
            self._patterns[topic] = handler
        else:
            self._named[topic] = handler
        self._calls.clear()

    def get(self, topic: str) -> Call | None:
        """The handler of a topic; None when there is none."""
        call = self._calls.get(topic)
        if call is None and (handler := self._find(topic)) is not None:
            call = self._calls[topic] = self._as_async(handler)
        return call

    def _find(self, topic: str) -> Handler | None:
        if topic in self._named:
            return self._named[topic]
        matching = (one for pattern, one in self._patterns.items() if pattern.fullmatch(topic))
        return next(matching, None)


def by_topic(handlers: TopicHandlers) -> Call:
    """A callable that passes a message to its topic's handler. A message without a handler fails, and is
    delivered again.
    """

    async def call(message: ReceivedMessage) -> object:
        handler = handlers.get(message.topic)
        if handler is None:
            raise ClientStateError(f"no handler is registered for topic {message.topic!r}")
        return await handler(message)

    return call


def by_topic_in_batches(handlers: TopicHandlers) -> Call:
    """A callable for lists, which passes each topic's part of a list to the topic's handler; a failure
    concerns that part only.
    """

    async def call(batch: list[ReceivedMessage]) -> None:
        shares: dict[str, list[ReceivedMessage]] = {}
        for message in batch:
            shares.setdefault(message.topic, []).append(message)
        for topic, share in shares.items():
            handler = handlers.get(topic)
            try:
                if handler is None:
                    raise ClientStateError(f"no handler is registered for topic {topic!r}")
                result = await handler(share)
                if result is not None:
                    check_result(result)
            except BaseException as error:
                if not failed_itself(error):
                    raise
                log.warning(
                    "handler of topic %s failed on %s", topic, counted(len(share), "message"), exc_info=error
                )
                for message in share:
                    settle(message, Verdict(Ending.RETRY, error=error))

    return call


async def serve(delivery: Delivery, call: Call) -> None:
    """Give one message after the other to the handler, until the consumer closes."""
    served, ordered = 0, delivery.ordered
    while True:
        message = delivery.take()
        if message is None:
            if not await delivery.wait():
                return
            continue
        process_queue: ProcessQueue = message.owner  # type: ignore[assignment]
        try:
            result = await call(message)
            if result is not None:
                check_result(result)
        except BaseException as error:
            if not failed_itself(error):
                delivery.give_back(process_queue, message)
                delivery.release(process_queue)
                raise
            log.warning("handler failed on %s of %s", message.message_id, process_queue.queue, exc_info=error)
            await delivery.ended([(process_queue, message)], error)
        else:
            # Inlined delivery.ended(), to save a call per message.
            try:
                del message.owner
            except AttributeError:
                await delivery.ended([(process_queue, message)])
            else:
                delivery.done(process_queue, message)
                if ordered:
                    delivery.release(process_queue)
        served += 1
        if not served % _YIELD_EVERY:
            # Let pulls and heartbeats run, even beside a handler that never awaits.
            await asyncio.sleep(0)


async def serve_batches(delivery: Delivery, call: Call, at_most: int) -> None:
    """Give lists of up to this many messages to the handler, until the consumer closes (CR-01, CR-04)."""
    served = 0
    while True:
        held = delivery.take_batch(at_most)
        if not held:
            if not await delivery.wait():
                return
            continue
        try:
            result = await call([message for _, message in held])
            if result is not None:
                check_result(result)
        except BaseException as error:
            if not failed_itself(error):
                _let_go(delivery, held)
                raise
            log.warning(
                "handler failed on a batch of %d from %s", len(held), held[0][0].queue, exc_info=error
            )
            await delivery.ended(held, error)
        else:
            await delivery.ended(held)
        served += len(held)
        if served >= _YIELD_EVERY:
            served = 0
            await asyncio.sleep(0)


async def handle_leased(lease: Lease, call: Call, free: Line) -> None:
    """Give one received message to the handler, and free its place in ``free`` afterwards."""
    message = lease.message
    try:
        result = await call(message)
        if result is not None:
            check_result(result)
    except BaseException as error:
        if not failed_itself(error):
            lease.leases.drop(lease)
            raise
        log.warning("handler failed on %s", message.message_id, exc_info=error)
        settle(message, Verdict(Ending.RETRY, error=error))
    else:
        if is_open(message):
            settle(message, ACK)
    finally:
        free.leave()


async def one_by_one(
    delivery: Delivery, prepared: Prepared, *, auto_ack: bool
) -> AsyncGenerator[ReceivedMessage, None]:
    """The messages for the user's loop, after ``prepared`` has returned; see ``Consumer.messages``."""
    await prepared()
    served = 0
    while True:
        message = delivery.take()
        if message is None:
            if not await delivery.wait():
                return
            continue
        process_queue: ProcessQueue = message.owner  # type: ignore[assignment]
        if not auto_ack:
            process_queue.move(message.queue_offset, DeliveryState.LOOP)
        try:
            yield message
        except GeneratorExit:
            if auto_ack:
                _left_open(delivery, process_queue, message)
            raise
        if auto_ack:
            await delivery.ended([(process_queue, message)])
        served += 1
        if not served % _YIELD_EVERY:
            await asyncio.sleep(0)


async def in_batches(
    delivery: Delivery, prepared: Prepared, at_most: int
) -> AsyncGenerator[list[ReceivedMessage], None]:
    """The messages in lists of limited length; see ``Consumer.batches``."""
    await prepared()
    while True:
        held = delivery.take_batch(at_most)
        if not held:
            if not await delivery.wait():
                return
            continue
        try:
            yield [message for _, message in held]
        except GeneratorExit:
            for process_queue, message in held:
                _left_open(delivery, process_queue, message)
            raise
        await delivery.ended(held)
        await asyncio.sleep(0)


def _left_open(delivery: Delivery, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
    """Release the messages of a loop that was left; messages with an open delivery may be settled later."""
    if is_open(message):
        process_queue.leave_open(message.queue_offset)
    else:
        delivery.settle_now(process_queue, message, left=True)


def _let_go(delivery: Delivery, held: HandedOut) -> None:
    for process_queue, message in held:
        delivery.give_back(process_queue, message)
    delivery.release(held[0][0])


def check_result(result: object) -> None:
    """Refuse an awaitable as the result of a handler: the work in it would not be done.

    Raises:
        ClientStateError: the result is awaitable.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ClientStateError(
            "the handler returned a coroutine or future that was not awaited: write 'await' before it"
        )
