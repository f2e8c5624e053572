"""Hooks: code of the user that runs for each send and delivery, and may forbid sends (SK-13, SK-16)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from orbitmq.client.model import SendResult
from orbitmq.durations import EPOCH, datetime, instant
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.settling import ACK, Ending, Verdict
from orbitmq.runtime.seam import Clock

log = logging.getLogger("orbitmq.client")

# One message gives a SendResult, or None if it is sent one-way; a list of messages gives one SendResult.
SendOne = Callable[[Any], Awaitable[Any]]
# ``await middleware(message, send)`` sends by ``await send(message)``: once, several times, or never.
SendMiddleware = Callable[[Any, SendOne], Awaitable[Any]]
# ``await middleware(message, handle)`` does the same around a handler, with one message or a batch's list. An
# exception counts as the handler's failure.
HandleOne = Callable[[Any], Awaitable[object]]
ConsumeMiddleware = Callable[[Any, HandleOne], Awaitable[object]]


@dataclass(slots=True)
class SendContext:
    """One try of a send, as hooks see it.

    Attributes:
        group: the producer group.
        queue: the queue that the message goes to.
        address: ``host:port`` of the broker.
        message_id: the unique id; the ids of a batch joined by commas.
        body_bytes: size of the body on the wire, compressed or not.
        properties_text: the properties on the wire; empty for a batch, whose messages have their own.
        begun: when the try began.
        took: its duration in seconds, after the end of the try.
        result: the result after a success; None for a one-way send, which has no answer.
        error: the exception after a failure; :class:`asyncio.CancelledError` when the send was cancelled.
    """

    group: str
    queue: MessageQueue
    address: str
    message_id: str
    body_bytes: int
    properties_text: str = ""
    begun: datetime = EPOCH
    took: float = 0.0
    result: SendResult | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The end of a transaction, as hooks see it.

    Attributes:
        group: the producer group.
        topic: the topic that the message goes to when it is committed.
        message_id: the unique id of the message.
        transaction_id: the broker's id of the transaction.
        state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``, RocketMQ's names.
        address: ``host:port`` of the broker that stores the half message.
        from_check: whether this is the answer to a broker's check-back.
        at: when the transaction ended.
    """

    group: str
    topic: str
    message_id: str
    transaction_id: str
    state: str
    address: str
    from_check: bool
    at: datetime


class SendHook:
    """Base class for hooks of sends: override the methods you need. They run for every try, in the order of
    the producer's list.
    """

    def check_forbidden(self, context: SendContext) -> None:
        """Raise to forbid the send; the exception reaches the caller unchanged."""

    def before(self, context: SendContext) -> None:
        """Before the request is sent. An exception is logged and changes nothing."""

    def after(self, context: SendContext) -> None:
        """After the answer, the failure or the cancellation; once for every try whose ``before`` ran (SK-16).

        An exception is logged and changes nothing.
        """

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Before END_TRANSACTION is sent. An exception is logged and changes nothing."""


class Hooks:
    """The hooks of one producer."""

    def __init__(self, hooks: Sequence[SendHook]) -> None:
        self._hooks = tuple(hooks)

    def begin(self, context: SendContext) -> None:
        """Run all checks, then all ``before`` calls."""
        for hook in self._hooks:
            hook.check_forbidden(context)
        for hook in self._hooks:
            try:
                hook.before(context)
            except Exception:
                log.exception("send hook %r failed before a send", hook)

    def end(self, context: SendContext, outcome: SendResult | BaseException | None) -> None:
        """Run all ``after`` calls."""
        if isinstance(outcome, BaseException):
            context.error = outcome
        else:
            context.result = outcome
        for hook in self._hooks:
            try:
                hook.after(context)
            except Exception:
                log.exception("send hook %r failed after a send", hook)

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Run all ``end_transaction`` calls."""
        for hook in self._hooks:
            try:
                hook.end_transaction(context)
            except Exception:
                log.exception("send hook %r failed at the end of a transaction", hook)


class ConsumeReturnType(IntEnum):
    """How a delivery ended, by RocketMQ's numbers (CR-19). RETURNNULL does not occur: a handler that returns
    nothing is done.
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


def return_type(verdict: Verdict, took: float, timeout_s: float) -> ConsumeReturnType:
    """The outcome of a delivery, by its verdict and its duration (CR-19)."""
    if verdict.error is not None:
        return ConsumeReturnType.EXCEPTION
    if took >= timeout_s:
        return ConsumeReturnType.TIME_OUT
    return ConsumeReturnType.SUCCESS if verdict.ending is Ending.ACK else ConsumeReturnType.FAILED


@dataclass(slots=True)
class ConsumeContext:
    """One delivery of a message, as hooks see it.

    Attributes:
        group: the consumer group.
        queue: the queue of the message.
        message: the message.
        begun: when the handler got the message.
        took: duration in seconds, after the end of the delivery.
        outcome: success, failure, exception or timeout, after the end of the delivery.
        success: whether the message is done, after the end of the delivery; also True for a delivery that
            took too long.
        reason: the user's reason for a failure.
        error: the handler's exception.
    """

    group: str
    queue: MessageQueue
    message: ReceivedMessage
    begun: datetime
    took: float = 0.0
    outcome: ConsumeReturnType | None = None
    success: bool = False
    reason: str = ""
    error: BaseException | None = None


class ConsumeHook:
    """Base class for hooks of deliveries: override the methods you need. They run for every delivery, in the
    order of the consumer's list.
    """

    def before(self, context: ConsumeContext) -> None:
        """Before the listener gets the message. An exception is logged and changes nothing."""

    def after(self, context: ConsumeContext) -> None:
        """After the message is done or has failed. An exception is logged and changes nothing."""


class ConsumeHooks:
    """The hooks of one consumer, and the deliveries in progress.

    Args:
        timeout_s: a delivery that takes longer counts as a timeout.
    """

    def __init__(self, group: str, hooks: Sequence[ConsumeHook], clock: Clock, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._group = group
        self._hooks = tuple(hooks)
        self._clock = clock
        # The deliveries in progress; the flow limits bound their number.
        self._open: dict[int, tuple[ConsumeContext, float]] = {}

    def begin(self, queue: MessageQueue, message: ReceivedMessage) -> None:
        """Run all ``before`` calls."""
        context = ConsumeContext(self._group, queue, message, instant(self._clock.now_ms()))
        self._open[id(message)] = context, self._clock.monotonic()
        for hook in self._hooks:
            try:
                hook.before(context)
            except Exception:
                log.exception("consume hook %r failed before a message", hook)

    def end(self, message: ReceivedMessage, verdict: Verdict = ACK) -> None:
        """Run all ``after`` calls, once per delivery."""
        found = self._open.pop(id(message), None)
        if found is None:
            return
        context, begun = found
        context.took = self._clock.monotonic() - begun
        context.outcome = return_type(verdict, context.took, self._timeout_s)
        context.success = verdict.ending is Ending.ACK
        context.error = verdict.error
        context.reason = verdict.reason or (str(verdict.error) if verdict.error is not None else "")
        for hook in self._hooks:
            try:
                hook.after(context)
            except Exception:
                log.exception("consume hook %r failed after a message", hook)


def around_sends(middleware: Sequence[SendMiddleware], send: SendOne) -> SendOne:
    """``send`` wrapped in this middleware, the first one outermost."""
    for layer in reversed(middleware):
        send = partial(_sent_through, layer, send)
    return send


async def _sent_through(layer: SendMiddleware, send: SendOne, message: Any) -> Any:
    return await layer(message, send)


def around_listener(middleware: Sequence[ConsumeMiddleware], listener: HandleOne) -> HandleOne:
    """``listener`` wrapped in this middleware, the first one outermost."""
    for layer in reversed(middleware):
        listener = partial(_handled_through, layer, listener)
    return listener


async def _handled_through(layer: ConsumeMiddleware, handle: HandleOne, message: ReceivedMessage) -> object:
    return await layer(message, handle)
