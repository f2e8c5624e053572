"""The gRPC clients of this broker: who they are, and when they are gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.gateway import schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.check_backs import question
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.runtime.seam import Clock
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.wire.command import Command
from orbitmq.wire.versions import V5_0_0

log = logging.getLogger("orbitmq.gateway")

# Clients send a heartbeat every 10 s, and open a new Telemetry stream 1 s after theirs ended.
SILENT_MS: Final = 40_000
WITHOUT_STREAM_MS: Final = 10_000
MAX_CLIENTS: Final = 100_000
# The most topics that are noted of a producer.
MAX_TOPICS: Final = 1000
CONSUMERS: Final = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}


class Stream(Protocol):
    """A Telemetry stream, as far as its client is concerned."""

    def ask(self, command: schema.TelemetryCommand) -> bool:
        """Put a question; False when the stream does not take it."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class GrpcPeer:
    """One gRPC client as a peer of the broker (``registry.Peer``).

    Attributes:
        kind: a ``ClientType``; unspecified until the client has said it.
        group: of a consumer.
        topics: that a producer sends to, in the order in which it named them.
        subscriptions: of a consumer; None until it has said them.
        streams: its Telemetry streams; lost_ms: since when there is none, None: it never had one, or has one.
        seen_ms: when it called last.
    """

    __slots__ = (
        "_broker",
        "client_id",
        "group",
        "kind",
        "language",
        "lost_ms",
        "on_close",
        "remote_address",
        "seen_ms",
        "streams",
        "subscriptions",
        "topics",
    )

    def __init__(
        self, caller: Caller, now_ms: int, on_close: Callable[[GrpcPeer], None], broker: str
    ) -> None:
        self._broker = broker
        self.client_id = caller.client_id
        self.remote_address = caller.address
        self.language = caller.language
        self.kind: int = ClientType.UNSPECIFIED
        self.group = ""
        self.topics: dict[str, None] = {}
        self.subscriptions: list[SubscriptionData] | None = None
        self.streams: dict[Stream, None] = {}
        self.lost_ms: int | None = None
        self.seen_ms = now_ms
        self.on_close = on_close

    def oneway(self, command: Command) -> None:
        """Send a question about a transaction; notices are dropped, as gRPC clients need none.

        Raises:
            TransportError: the client has no Telemetry stream that takes the question.
        """
        asked = question(command, self._broker)
        # The newest stream first: the client may have come back on it.
        if asked is not None and not any(stream.ask(asked) for stream in reversed(self.streams)):
            raise TransportError(
                f"gRPC client {self.client_id} has no Telemetry stream for a question", self.remote_address
            )

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Refuse a request of the remoting protocol.

        Raises:
            TransportError: always: no such question can be put to gRPC clients yet.
        """
        raise TransportError(f"request {command.code} cannot be put to a gRPC client", self.remote_address)

    def close(self) -> None:
        """Forget the client."""
        self.on_close(self)

    def sends_to(self, topic: str) -> None:
        """Note a topic that a producer sends to; beyond the limit the oldest is forgotten."""
        self.topics[topic] = None
        if len(self.topics) > MAX_TOPICS:
            del self.topics[next(iter(self.topics))]

    def is_gone(self, now_ms: int) -> bool:
        """Whether the client counts as gone: its stream ended, or it has sent nothing, for too long."""
        lost = self.lost_ms
        if lost is not None and now_ms - lost >= WITHOUT_STREAM_MS:
            return True
        return now_ms - self.seen_ms >= SILENT_MS


class GrpcClients:
    """The gRPC clients that sent their client id; the broker registers them like remoting clients.

    Args:
        on_gone: told the id of each client that is gone, whether it said so or not.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        manager: ClientManager,
        groups: SubscriptionGroups,
        on_gone: Callable[[str], object],
    ) -> None:
        self._config = config
        self._clock = clock
        self._manager = manager
        self._groups = groups
        self._on_gone = on_gone
        self._clients: dict[str, GrpcPeer] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, client_id: str) -> GrpcPeer | None:
        """The client with this id."""
        return self._clients.get(client_id)

    def seen(self, client_id: str) -> None:
        """A client called."""
        peer = self._clients.get(client_id)
        if peer is not None:
            peer.seen_ms = self._clock.now_ms()

    def known(self, caller: Caller) -> GrpcPeer:
        """The client of a call, registered at this broker if it was not.

        Raises:
            RefusalError: TOO_MANY_REQUESTS, there are too many clients.
        """
        now = self._clock.now_ms()
        peer = self._clients.get(caller.client_id)
        if peer is None:
            if len(self._clients) >= MAX_CLIENTS:
                raise RefusalError(
                    Code.TOO_MANY_REQUESTS, f"this broker has {len(self._clients)} gRPC clients, its limit"
                )
            peer = self._clients[caller.client_id] = GrpcPeer(
                caller, now, self._closed, self._config.broker_name
            )
        peer.seen_ms = now
        peer.remote_address = caller.address
        return peer

    def produces(self, caller: Caller, topics: Iterable[str]) -> None:
        """A producer says which topics it sends to. Its group is each of them, as behind Apache's proxy."""
        peer = self.known(caller)
        peer.kind = ClientType.PRODUCER
        for topic in topics:
            peer.sends_to(topic)
        self._register_producer(peer)

    def transacts(self, caller: Caller, topic: str) -> None:
        """A producer began a transaction: it is one of those that can be asked how it ends."""
        peer = self._clients.get(caller.client_id)
        if peer is not None and peer.kind == ClientType.PRODUCER and topic not in peer.topics:
            peer.sends_to(topic)
            self._register_producer(peer)

    def consumes(
        self, caller: Caller, kind: int, group: str, subscriptions: Sequence[SubscriptionData] | None
    ) -> None:
        """A consumer says who it is, and what its group reads; None: it does not say that now.

        Raises:
            RemotingError: it contradicts another member of its group, and ``strictSubscription`` is on.
        """
        peer = self.known(caller)
        if group != peer.group and peer.group:
            self._manager.connection_closed(peer)
        peer.kind, peer.group = kind, group
        if subscriptions is not None:
            peer.subscriptions = list(subscriptions)
        self._register_consumer(peer)

    def beats(self, caller: Caller) -> None:
        """A client that said who it is lives."""
        peer = self.known(caller)
        if peer.kind == ClientType.PRODUCER:
            self._register_producer(peer)

    def opened(self, caller: Caller, stream: Stream) -> None:
        """A client has a Telemetry stream."""
        peer = self.known(caller)
        peer.streams[stream] = None
        peer.lost_ms = None

    def ended(self, client_id: str, stream: Stream) -> None:
        """A Telemetry stream is over."""
        peer = self._clients.get(client_id)
        if peer is None or stream not in peer.streams:
            return
        del peer.streams[stream]
        if not peer.streams:
            peer.lost_ms = self._clock.now_ms()
            if peer.kind == ClientType.PRODUCER:
                # Until it is back, no question about its transactions can reach it.
                self._manager.connection_closed(peer)

    def leave(self, client_id: str) -> None:
        """A client says goodbye, or is gone."""
        peer = self._clients.pop(client_id, None)
        if peer is not None:
            self._manager.connection_closed(peer)
            for stream in list(peer.streams):
                stream.close()
        self._on_gone(client_id)

    def look(self) -> None:
        """Let go those who are gone without a word."""
        now = self._clock.now_ms()
        for peer in [peer for peer in self._clients.values() if peer.is_gone(now)]:
            log.info("gRPC client %s at %s is gone", peer.client_id, peer.remote_address)
            self.leave(peer.client_id)

    def stop(self) -> None:
        """End the streams; nobody is gone by that."""
        for peer in self._clients.values():
            for stream in list(peer.streams):
                stream.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _closed(self, peer: GrpcPeer) -> None:
        if self._clients.get(peer.client_id) is peer:
            self.leave(peer.client_id)

    def _client(self, peer: GrpcPeer) -> Client:
        return Client(peer, peer.client_id, peer.language, V5_0_0)

    def _register_producer(self, peer: GrpcPeer) -> None:
        """Register a producer that has a stream: only such a one can be asked about transactions."""
        for topic in peer.topics if peer.streams else ():
            self._manager.register_producer(topic, self._client(peer))

    def _register_consumer(self, peer: GrpcPeer) -> None:
        group = self._groups.find(peer.group)
        if group is None:
            return
        data = ConsumerData(
            group_name=peer.group,
            consume_type=CONSUMERS.get(ClientType(peer.kind), ConsumeType.CONSUME_PASSIVELY),
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=peer.subscriptions or [],
        )
        self._manager.register_consumer(
            self._client(peer),
            data,
            notify=self._config.notify_consumer_ids_changed and group.notify_consumer_ids_changed_enable,
            with_sub=peer.subscriptions is not None,
            strict=self._config.strict_subscription,
        )
