"""Let code of the user's own see, and forbid, what a producer sends (SK-13, SK-16)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.client.model import SendResult
from orbitmq.message.model import MessageQueue

log = logging.getLogger("orbitmq.client")


@dataclass(slots=True)
class SendContext:
    """One try of a send, as hooks see it.

    Attributes:
        group: the producer group.
        queue: where the message goes.
        address: ``host:port`` of the broker.
        message_id: the unique id; those of a batch joined by commas.
        body_bytes: size of the body as it travels, compressed or not.
        result: after a success.
        error: after a failure.
    """

    group: str
    queue: MessageQueue
    address: str
    message_id: str
    body_bytes: int
    result: SendResult | None = None
    error: Exception | None = None


class SendHook:
    """Subclass and override what is needed. Called for every try, in the order given to the producer."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise to forbid the send; the exception reaches the caller as it is."""

    def before(self, context: SendContext) -> None:
        """Before the request is sent. An exception is logged and changes nothing."""

    def after(self, context: SendContext) -> None:
        """After the answer or the failure. An exception is logged and changes nothing."""


class Hooks:
    """The hooks of one producer."""

    def __init__(self, hooks: Sequence[SendHook]) -> None:
        self._hooks = tuple(hooks)

    def begin(self, context: SendContext) -> None:
        """All checks, then all ``before`` calls."""
        for hook in self._hooks:
            hook.check_forbidden(context)
        for hook in self._hooks:
            try:
                hook.before(context)
            except Exception:
                log.exception("send hook %r failed before a send", hook)

    def end(self, context: SendContext, outcome: SendResult | Exception) -> None:
        """All ``after`` calls."""
        if isinstance(outcome, Exception):
            context.error = outcome
        else:
            context.result = outcome
        for hook in self._hooks:
            try:
                hook.after(context)
            except Exception:
                log.exception("send hook %r failed after a send", hook)
