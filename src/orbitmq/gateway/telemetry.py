"""Telemetry: the stream on which a client sends its settings, and gets those of this broker back."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.gateway import schema, settings, subscriptions
from orbitmq.gateway.call import Call, CallError
from orbitmq.gateway.caller import Caller, caller
from orbitmq.gateway.clients import CONSUMERS, GrpcClients, log
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code, RefusalError, of_grpc
from orbitmq.gateway.unary import ok, refused
from orbitmq.message import reserved
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import Background, outcome
from orbitmq.wire.errors import RemotingError

# What waits for a client that does not read; of more the oldest is dropped.
MAX_WAITING: Final = 32
# Of a producer's topics so many are noted.
MAX_TOPICS: Final = 1000
SERVED: Final = frozenset({ClientType.PRODUCER, *CONSUMERS})


class Outbox:
    """The commands for one Telemetry stream. A client that does not read them holds up no other client."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, command: schema.TelemetryCommand) -> None:
        """Send a command behind those that wait."""
        self._waiting.append(command.SerializeToString())
        self._changed.set()

    def close(self) -> None:
        """End the stream when the waiting commands are written."""
        self._closed = True
        self._changed.set()

    async def pump(self, call: Call) -> None:
        """Write commands as they are put, until the outbox is closed or the client is gone."""
        while True:
            while self._waiting:
                await call.write(self._waiting.popleft())
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()


class Telemetry:
    """Serves the streams.

    Args:
        background: of the service; what clients send is read there.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        groups: SubscriptionGroups,
        clients: GrpcClients,
        background: Background,
    ) -> None:
        self._config = config
        self._clock = clock
        self._groups = groups
        self._clients = clients
        self._background = background
        self._log = LogLimiter(log)

    async def serve(self, call: Call) -> None:
        """One stream, until either side ends it."""
        outbox = Outbox()
        try:
            who = caller(call)
        except RefusalError as error:
            await call.write(new(schema.TelemetryCommand, status=refused(error)).SerializeToString())
            raise CallError(of_grpc(error.code), error.message) from error
        reading = self._background.spawn(self._read(call, who, outbox), "telemetry")
        try:
            await outbox.pump(call)
        finally:
            self._clients.ended(who.client_id, outbox)
            reading.cancel()
        refusal = outcome(reading)
        if refusal is not None:
            raise refusal

    async def _read(self, call: Call, who: Caller, outbox: Outbox) -> CallError | None:
        """Take the client's commands; returns how the stream ends, None: with OK."""
        try:
            while (data := await call.read()) is not None:
                self._take(who, parse(schema.TelemetryCommand, data), outbox)
        except RefusalError as error:
            outbox.put(new(schema.TelemetryCommand, status=refused(error)))
            self._log.write(
                logging.INFO,
                "telemetry refused",
                "gRPC client %s at %s: %s",
                who.client_id,
                who.address,
                error,
            )
            return CallError(of_grpc(error.code), error.message)
        except CallError as error:
            return error
        finally:
            outbox.close()
        return None

    def _take(self, who: Caller, command: schema.TelemetryCommand, outbox: Outbox) -> None:
        self._clients.seen(who.client_id)
        if command.HasField("settings"):
            self._settings(who, command.settings, outbox)

    def _settings(self, who: Caller, sent: schema.Settings, outbox: Outbox) -> None:
        """Answer at once, whatever is wrong with topics and groups: clients wait for it, some for ever.

        Raises:
            RefusalError: the client is of a kind that is not served.
        """
        kind = _kind(sent)
        if kind not in SERVED:
            raise RefusalError(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                f"client_type {kind} is not served: producers, push consumers and simple consumers are",
            )
        group = None
        if sent.HasField("subscription"):
            name = sent.subscription.group.name
            group = self._groups.find(name) if reserved.group_fault(name) is None else None
        try:
            self._note(who, kind, sent, outbox)
        except RemotingError as error:
            text = "gRPC client %s at %s: %s"
            self._log.write(logging.WARNING, "settings", text, who.client_id, who.address, error)
        answer = settings.answered(sent, group, self._config.body_limit)
        outbox.put(new(schema.TelemetryCommand, status=ok(), settings=answer))

    def _note(self, who: Caller, kind: int, sent: schema.Settings, outbox: Outbox) -> None:
        self._clients.opened(who, outbox)
        if kind == ClientType.PRODUCER:
            names = [topic.name for topic in sent.publishing.topics[:MAX_TOPICS]]
            self._clients.produces(who, [name for name in names if reserved.topic_fault(name) is None])
            return
        now = self._clock.now_ms()
        wanted = [
            subscriptions.subscription(entry, now)
            for entry in sent.subscription.subscriptions[:MAX_TOPICS]
            if reserved.topic_fault(entry.topic.name) is None
        ]
        group = sent.subscription.group.name
        if reserved.group_fault(group) is None:
            self._clients.consumes(who, kind, group, wanted)


def _kind(sent: schema.Settings) -> int:
    """The type of the client; older clients show it by the kind of their settings only."""
    if sent.client_type != ClientType.UNSPECIFIED:
        return sent.client_type
    return ClientType.SIMPLE_CONSUMER if sent.HasField("subscription") else ClientType.PRODUCER
