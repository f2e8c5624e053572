"""Checks whether a client may make a call: its keys or certificate, and the rules of their user."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from orbitmq.auth.gate import AuthGate, ShownIdentity
from orbitmq.auth.needs import ANY, PUB, SUB, group_asked, topic_asked
from orbitmq.auth.refusals import WRONG_KEYS, GateError
from orbitmq.auth.rules import Asked
from orbitmq.gateway import schema, transaction_id
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.status import Code, RefusalError, refusal
from orbitmq.message.reserved import RETRY_PREFIX, is_system_topic
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.transport.audit import Audit, AuditRefusal
from orbitmq.wire.addresses import AddressError, split
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.signing import SigningKey

log = logging.getLogger("orbitmq.gateway")

# Maps a request to the rights that it needs. The request is None when a Telemetry stream begins.
Needs: TypeAlias = Callable[[Any], Iterable[Asked]]


def _sent(request: schema.SendMessageRequest) -> Iterator[Asked]:
    for message in request.messages:
        name = message.topic.name
        yield topic_asked(name, (SUB,) if name.startswith(RETRY_PREFIX) else (PUB,))


def _consumed(request: Any) -> Iterator[Asked]:
    """The rights of requests with a topic and a group."""
    yield group_asked(request.group.name, (SUB,))
    yield topic_asked(request.topic.name, (SUB,))


def _received(request: schema.ReceiveMessageRequest) -> Iterator[Asked]:
    yield group_asked(request.group.name, (SUB,))
    yield topic_asked(request.message_queue.topic.name, (SUB,))


def _route(request: schema.QueryRouteRequest) -> Iterator[Asked]:
    if not is_system_topic(request.topic.name):
        yield topic_asked(request.topic.name, ANY)


def _group(request: Any) -> Iterator[Asked]:
    """The rights of requests in which only consumers name a group."""
    if request.group.name:
        yield group_asked(request.group.name, (SUB,))


def _of_settings(command: schema.TelemetryCommand | None) -> Iterator[Asked]:
    """The rights of a Telemetry command. A producer gets the transaction checks of the topics it names."""
    if command is None or not command.HasField("settings"):
        return
    for topic in command.settings.publishing.topics:
        yield topic_asked(topic.name, (PUB,))
    subscription = command.settings.subscription
    if command.settings.HasField("subscription"):
        yield group_asked(subscription.group.name, (SUB,))
        for entry in subscription.subscriptions:
            yield topic_asked(entry.topic.name, (SUB,))


def _recalled(request: schema.RecallMessageRequest) -> Iterator[Asked]:
    yield topic_asked(request.topic.name, (PUB,))


_NEEDS: Final[Mapping[str, Needs]] = {
    "QueryRoute": _route,
    "QueryAssignment": _consumed,
    "Heartbeat": _group,
    "NotifyClientTermination": _group,
    "Telemetry": _of_settings,
    "SendMessage": _sent,
    "ReceiveMessage": _received,
    "AckMessage": _consumed,
    "ChangeInvisibleDuration": _consumed,
    "ForwardMessageToDeadLetterQueue": _consumed,
    "RecallMessage": _recalled,
}


class Rights:
    """Checks calls by the broker's gate.

    Args:
        topic_at: the topic of the message at a commit log offset; None without one.
        user_of: the user of a client id; empty if the client is unknown or sent no keys.
        clock: times the pauses of addresses that signed wrongly.
    """

    def __init__(
        self,
        gate: AuthGate,
        audit: Audit,
        broker: str,
        topic_at: Callable[[int], str | None],
        user_of: Callable[[str], str],
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._audit = audit
        self._broker = broker
        self._topic_at = topic_at
        self._user_of = user_of
        self._clock = clock
        self._log = LogLimiter(log)
        self._needs: Mapping[str, Needs] = {**_NEEDS, "EndTransaction": self._ended}

    def check(self, caller: Caller, method: str, request: object) -> None:
        """Refuse a call that this client may not make.

        Raises:
            RefusalError: UNAUTHORIZED, the keys are missing or wrong, or their user is disabled; FORBIDDEN, a
                right is missing, or another user's client has this id.
        """
        sent = caller.authorization

        def made(key: SigningKey) -> bool:
            return sent is not None and key.made_digest(sent.date_time.encode(), sent.signature)

        try:
            shown = ShownIdentity(caller.keys, made, caller.certificate.user, caller.certificate.problem)
            self._gate.check_call(shown, partial(self._rights_for, method, request), host_of(caller.address))
        except GateError as error:
            self._log.write(
                logging.WARNING,
                "not permitted",
                "gRPC call %s from %s is refused: %r",
                method,
                caller.address,
                error.remark,
            )
            self._audit.refused(AuditRefusal(caller.user, host_of(caller.address), method, error.remark))
            code = Code.UNAUTHORIZED if error.about_keys else Code.FORBIDDEN
            raise RefusalError(code, error.remark) from error
        except (RemotingError, WireError) as error:
            raise refusal(error) from error
        known = self._user_of(caller.client_id)
        if known not in ("", caller.user) and not self._gate.observing:
            # A client with another client's id would get its transaction checks, and could release its
            # messages.
            raise RefusalError(Code.FORBIDDEN, "another user's client has this client id")

    def slow(self, error: RefusalError, address: str) -> float:
        """How many seconds a refused call's connection is not read: after wrong keys, to slow guessing."""
        gate_error = error.__cause__
        if not isinstance(gate_error, GateError) or gate_error.refusal.why != WRONG_KEYS:
            return 0.0
        return self._gate.slowing.wrong(host_of(address), self._clock.monotonic())

    def pause_s(self, host: str) -> float:
        """For how many seconds new connections from a host are not read because it signed wrongly."""
        return self._gate.slowing.left(host, self._clock.monotonic())

    def _rights_for(self, method: str, request: object) -> Iterable[Asked] | None:
        needs = self._needs.get(method)
        return None if needs is None else needs(request)

    def _ended(self, request: schema.EndTransactionRequest) -> Iterator[Asked]:
        """PUB for the request's topic, and for the topic of the message that its transaction id names."""
        yield topic_asked(request.topic.name, (PUB,))
        named = transaction_id.decode(request.transaction_id, self._broker)
        topic = self._topic_at(named.log_offset)
        if topic is not None:
            yield topic_asked(topic, (PUB,))


def host_of(address: str) -> str:
    """The host of an address host:port; empty when it has none."""
    try:
        return split(address)[0]
    except AddressError:
        return ""
