"""Serves Telemetry, the stream on which a client sends its settings, and gets settings and commands back."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, GroupChanged, RightsChanged
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.gateway import schema, settings
from orbitmq.gateway.call import NO_HEADERS, Call, CallError, CallListener, GrpcStatus
from orbitmq.gateway.caller import Caller, Callers
from orbitmq.gateway.clients import GrpcClients, log
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.outbox import Room, StreamOutbox
from orbitmq.gateway.peer import CONSUMERS, MAX_TOPICS
from orbitmq.gateway.presence import not_served
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import RefusalError, of_grpc
from orbitmq.gateway.subscriptions import wanted_of
from orbitmq.gateway.unary import ok, refused
from orbitmq.message import reserved
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.errors import RemotingError

SERVED: Final = frozenset({ClientType.PRODUCER, *CONSUMERS})
# How many clients of a group get their new settings in one turn of the event loop.
_SLICE: Final = 100
# Only settings up to this length share an object among streams.
_SHARED_BYTES: Final = 1024
_TOO_MUCH: Final = "this connection's settings and answers are more than can be held; read them, send fewer"


class _ClientStream:
    """The stream of a client, and the settings that the client sent and got on it.

    The outbox exists only while commands wait in it or are being written, and after the stream's end.

    Attributes:
        sent: the client's own settings, encoded, whose bytes are counted; None until it has sent them.
        digest: the digest of the settings that the client got last.
        group: the consumer's group; empty without one.
    """

    __slots__ = ("_call", "_outbox", "_telemetry", "digest", "group", "sent", "who")

    def __init__(self, telemetry: Telemetry, who: Caller, call: Call) -> None:
        self._telemetry = telemetry
        self._call = call
        self._outbox: StreamOutbox | None = None
        self.who = who
        self.sent: bytes | None = None
        self.digest = b""
        self.group = ""

    # -- as the listener of its call -------------------------------------------------------------------

    def received(self, message: bytes) -> None:
        if self._outbox is None or not self._outbox.closed:
            self._telemetry.received(self, message)

    def ended(self) -> None:
        self.close()

    def wrote(self) -> None:
        if self._outbox is not None:
            self._outbox.wrote()
            self._forget_outbox()

    def lost(self) -> None:
        self._box().lost()
        self._telemetry.lost(self)

    # -- commands for the client -----------------------------------------------------------------------

    def answer(self, command: schema.TelemetryCommand) -> bool:
        """See :meth:`StreamOutbox.answer`."""
        taken = self._box().answer(command)
        self._forget_outbox()
        return taken

    def ask(self, command: schema.TelemetryCommand) -> bool:
        """See :meth:`StreamOutbox.ask`."""
        taken = self._box().ask(command)
        self._forget_outbox()
        return taken

    def close(self, error: CallError | None = None) -> None:
        """See :meth:`StreamOutbox.close`."""
        self._box().close(error)

    def _box(self) -> StreamOutbox:
        if self._outbox is None:
            self._outbox = StreamOutbox(self._telemetry.room, self._call)
        return self._outbox

    def _forget_outbox(self) -> None:
        if self._outbox is not None and self._outbox.idle:
            self._outbox = None

    # -- settings --------------------------------------------------------------------------------------

    def take(self, sent: schema.Settings) -> None:
        """Keep the client's own settings.

        Raises:
            CallError: the connection would hold too much.
        """
        self.forget()
        data = sent.SerializeToString()
        if not self._call.keep(len(data)):
            raise _no_room()
        self.sent = _shared(data) if len(data) <= _SHARED_BYTES else data

    def forget(self) -> None:
        """Drop the client's settings."""
        if self.sent is not None:
            self._call.keep(-len(self.sent))
            self.sent = None

    def send_settings(self, answer: schema.Settings) -> None:
        """Send settings to the client.

        Raises:
            CallError: the connection would hold too much.
        """
        self.digest = _shared(_digest(answer))
        if not self.answer(new(schema.TelemetryCommand, status=ok(), settings=answer)):
            raise _no_room()


class Telemetry:
    """Serves the Telemetry streams. They have no tasks.

    Attributes:
        room: the bytes for questions, shared by all streams.
    """

    def __init__(
        self,
        config: BrokerConfig,
        events: Events,
        groups: SubscriptionGroups,
        clients: GrpcClients,
        callers: Callers,
    ) -> None:
        self._config = config
        self._groups = groups
        self._clients = clients
        self._callers = callers
        self._log = LogLimiter(log)
        self.room = Room()
        # The streams of consumers, by group.
        self._consumers: dict[str, dict[_ClientStream, None]] = {}
        self._changed: dict[str, None] = {}
        self._streams: dict[_ClientStream, None] = {}
        events.subscribe(GroupChanged, self._group_changed)
        events.subscribe(RightsChanged, self._rights_changed)

    def open(self, call: Call) -> CallListener | None:
        """Begin a client's stream, which lasts until either side ends it."""
        try:
            who = self._callers.of(call, None)
        except RefusalError as error:
            call.go_on(partial(_refuse, error))
            return None
        call.metadata = NO_HEADERS
        stream = _ClientStream(self, who, call)
        self._streams[stream] = None
        return stream

    def lost(self, stream: _ClientStream) -> None:
        """Forget a stream that has ended."""
        del self._streams[stream]
        self._clients.ended(stream.who.client_id, stream)
        self._join(stream, "")
        stream.forget()

    async def send_changes(self) -> None:
        """Send the consumers of changed groups their settings again."""
        changed, self._changed = self._changed, {}
        for group in changed:
            for number, stream in enumerate(list(self._consumers.get(group, ()))):
                if number % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                if stream.sent is None or stream not in self._consumers.get(group, ()):
                    continue
                answer = self._answer(parse(schema.Settings, stream.sent))
                if _digest(answer) != stream.digest:
                    with suppress(CallError):  # no room: the client does not read its stream
                        stream.send_settings(answer)

    # -- what clients send -----------------------------------------------------------------------------

    def received(self, stream: _ClientStream, message: bytes) -> None:
        """Handle a command of a client. A refused command ends the stream."""
        who = stream.who
        try:
            self._take(stream, parse(schema.TelemetryCommand, message))
        except RefusalError as error:
            stream.answer(new(schema.TelemetryCommand, status=refused(error)))
            self._log.write(
                logging.WARNING,
                "telemetry refused",
                "gRPC client %s at %s: %s",
                who.client_id,
                who.address,
                error,
            )
            stream.close(CallError(of_grpc(error.code), error.message))
        except CallError as error:
            stream.close(error)

    def _take(self, stream: _ClientStream, command: schema.TelemetryCommand) -> None:
        self._callers.check(stream.who, "Telemetry", command)
        self._clients.seen(stream.who.client_id)
        if command.HasField("settings"):
            self._settings(stream, command.settings)
        else:
            self._clients.answered(stream.who.client_id, command)

    def _settings(self, stream: _ClientStream, sent: schema.Settings) -> None:
        """Answer a client's settings at once, even if its topics or groups are refused.

        Without an answer some clients would wait for ever.

        Raises:
            RefusalError: the client's type is not served.
            CallError: the connection would hold too much.
        """
        kind = _kind(sent)
        if kind not in SERVED:
            raise not_served(kind)
        who = stream.who
        try:
            stream.who = self._clients.opened(who, stream).shared(who)
            self._note(who, kind, sent)
        except RemotingError as error:
            text = "gRPC client %s at %s: %s"
            self._log.write(logging.WARNING, "settings", text, who.client_id, who.address, error)
        stream.take(sent)
        self._join(stream, sent.subscription.group.name if sent.HasField("subscription") else "")
        stream.send_settings(self._answer(sent))

    def _answer(self, sent: schema.Settings) -> schema.Settings:
        group = self._group(sent.subscription.group.name) if sent.HasField("subscription") else None
        return settings.answered(sent, group, self._config.body_limit)

    def _group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.find(name) if reserved.group_fault(name) is None else None

    def _note(self, who: Caller, kind: int, sent: schema.Settings) -> None:
        if kind == ClientType.PRODUCER:
            names = [topic.name for topic in sent.publishing.topics[:MAX_TOPICS]]
            self._clients.produces(who, [name for name in names if reserved.topic_fault(name) is None])
            return
        wanted = wanted_of(
            entry
            for entry in sent.subscription.subscriptions[:MAX_TOPICS]
            if reserved.topic_fault(entry.topic.name) is None
        )
        group = sent.subscription.group.name
        if reserved.group_fault(group) is None:
            self._clients.consumes(who, kind, group, wanted)

    # -- groups ----------------------------------------------------------------------------------------

    def _join(self, stream: _ClientStream, group: str) -> None:
        """Note the group of the stream's consumer; empty: no group."""
        if stream.group == group:
            return
        members = self._consumers.get(stream.group, {})
        members.pop(stream, None)
        if not members:
            self._consumers.pop(stream.group, None)
        stream.group = group
        if group:
            self._consumers.setdefault(group, {})[stream] = None

    def _rights_changed(self, event: RightsChanged) -> None:
        """End the streams of a user whose rights changed: clients open new streams, which are checked."""
        for stream in list(self._streams):
            if stream.who.user == event.user:
                stream.close()

    def _group_changed(self, event: GroupChanged) -> None:
        if event.group in self._consumers:
            self._changed[event.group] = None


async def _refuse(error: RefusalError, call: Call) -> None:
    """Send the refusal to a client that may not open a stream."""
    await call.write(new(schema.TelemetryCommand, status=refused(error)).SerializeToString())
    raise CallError(of_grpc(error.code), error.message) from error


@lru_cache(maxsize=1000)
def _shared(data: bytes) -> bytes:
    """The shared copy of these bytes: streams with equal settings, such as a group's, keep one object."""
    return data


def _no_room() -> CallError:
    return CallError(GrpcStatus.RESOURCE_EXHAUSTED, _TOO_MUCH)


def _digest(settings: schema.Settings) -> bytes:
    return blake2b(settings.SerializeToString(), digest_size=16).digest()


def _kind(sent: schema.Settings) -> int:
    """The type of the client; older clients show it only by whether they send subscriptions."""
    if sent.client_type != ClientType.UNSPECIFIED:
        return sent.client_type
    return ClientType.SIMPLE_CONSUMER if sent.HasField("subscription") else ClientType.PRODUCER
