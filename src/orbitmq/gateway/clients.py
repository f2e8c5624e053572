"""The gRPC clients of this broker, by client id: their registration, and when they count as gone."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.gateway import schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.held import HeldMessages
from orbitmq.gateway.peer import CONSUMERS, GrpcPeer, TelemetryStream
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.subscriptions import Wanted
from orbitmq.message import reserved
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
)
from orbitmq.wire.versions import V5_0_0, number_of

log = logging.getLogger("orbitmq.gateway")

MAX_CLIENTS: Final = 100_000
# Within this time after a restart or a failover, clients connect to the broker that serves from then on.
COME_BACK_MS: Final = 30_000


class GrpcClients:
    """The gRPC clients that sent their client id; the broker registers them like remoting clients.

    Args:
        held: the messages that push consumers hold; a client that is gone, or leaves its group, loses them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        manager: ClientManager,
        groups: SubscriptionGroups,
        topics: TopicConfigs,
        held: HeldMessages,
    ) -> None:
        self._config = config
        self._clock = clock
        self._manager = manager
        self._groups = groups
        self._topics = topics
        self._held = held
        self._log = LogLimiter(log)
        self._clients: dict[str, GrpcPeer] = {}
        # Kept, so that all clients share one method object.
        self._on_close = self._closed
        # The end of the wait (clock's ms), by id, for owners of held messages that have not called here yet.
        self._awaited: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def find(self, client_id: str) -> GrpcPeer | None:
        """The client with this id; None if it is unknown."""
        return self._clients.get(client_id)

    def user_of(self, client_id: str) -> str:
        """The user of a client; empty if the client is unknown or sent no keys."""
        peer = self._clients.get(client_id)
        return "" if peer is None else peer.user

    def reads(self, client_id: str, topic: str) -> bool:
        """Whether a consumer's settings name a topic."""
        peer = self._clients.get(client_id)
        named = () if peer is None else peer.wanted or ()
        return any(each.topic == topic for each in named)

    def seen(self, client_id: str) -> None:
        """Note that a client called."""
        peer = self._clients.get(client_id)
        if peer is not None:
            peer.seen_ms = self._clock.now_ms()

    def known(self, caller: Caller) -> GrpcPeer:
        """The client of a call, which is added if it is new.

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
                caller, self._clock, self._on_close, self._config.broker_name
            )
            self._awaited.pop(caller.client_id, None)
        peer.seen_ms = now
        peer.calls_from(caller.address)
        return peer

    def produces(self, caller: Caller, topics: Iterable[str]) -> None:
        """Register a producer for the topics in its settings: each is a group, as behind Apache's proxy."""
        peer = self.known(caller)
        self._becomes(peer, ClientType.PRODUCER, "")
        for topic in topics:
            peer.sends_to(topic)
        self._register_producer(peer)

    def transacts(self, caller: Caller, topic: str) -> None:
        """Register a producer that began a transaction, so that transaction checks of the topic reach it."""
        peer = self._clients.get(caller.client_id)
        if peer is not None and peer.kind == ClientType.PRODUCER and topic not in (peer.topics or ()):
            peer.sends_to(topic)
            self._register_producer(peer)

    def consumes(self, caller: Caller, kind: int, group: str, wanted: tuple[Wanted, ...] | None) -> None:
        """Register a consumer with its subscriptions; None keeps them, as a heartbeat carries none.

        Raises:
            RemotingError: its subscriptions differ from another member's, and ``strictSubscription`` is on.
        """
        peer = self.known(caller)
        self._becomes(peer, kind, group)
        if wanted is not None:
            peer.wanted, peer.wanted_ms = wanted, peer.seen_ms
        self._register_consumer(peer)

    def beats(self, caller: Caller) -> None:
        """Handle the heartbeat of a producer."""
        peer = self.known(caller)
        if peer.kind == ClientType.PRODUCER:
            self._register_producer(peer)

    def opened(self, caller: Caller, stream: TelemetryStream) -> GrpcPeer:
        """Note a new Telemetry stream of a client."""
        peer = self.known(caller)
        if stream not in peer.streams:
            peer.streams = (*peer.streams, stream)
        peer.lost_ms = None
        return peer

    def ended(self, client_id: str, stream: TelemetryStream) -> None:
        """Note the end of a Telemetry stream."""
        peer = self._clients.get(client_id)
        if peer is None or stream not in peer.streams:
            return
        peer.streams = tuple(each for each in peer.streams if each is not stream)
        if not peer.streams:
            peer.lost_ms = self._clock.now_ms()
            peer.give_up_questions()
            if peer.kind == ClientType.PRODUCER:
                # Without a stream no transaction check reaches the producer: another one has to answer.
                self._manager.connection_closed(peer)

    def leave(self, client_id: str) -> None:
        """Forget a client that terminates or is gone, and give back the messages that it holds."""
        self._awaited.pop(client_id, None)
        peer = self._clients.pop(client_id, None)
        if peer is not None:
            self._manager.connection_closed(peer)
            peer.give_up_questions()
            for stream in peer.streams:
                stream.close()
        self._held.give_back(client_id)

    def wait_for(self, client_ids: Iterable[str]) -> None:
        """Wait for clients that own messages; without a call for :data:`COME_BACK_MS` they count as gone."""
        until = self._clock.now_ms() + COME_BACK_MS
        for client_id in client_ids:
            if client_id not in self._clients:
                self._awaited.setdefault(client_id, until)

    def look(self) -> None:
        """Forget the clients that are gone without NotifyClientTermination."""
        now = self._clock.now_ms()
        for client_id in [each for each, until in self._awaited.items() if now >= until]:
            log.info("gRPC client %s has not come back", client_id)
            self.leave(client_id)
        for peer in [peer for peer in self._clients.values() if peer.is_gone(now)]:
            log.info("gRPC client %s at %s is gone", peer.client_id, peer.remote_address)
            self.leave(peer.client_id)

    def answered(self, client_id: str, answer: schema.TelemetryCommand) -> None:
        """Pass a client's answer on a Telemetry stream to the question that it belongs to."""
        peer = self._clients.get(client_id)
        if peer is not None:
            peer.answered(answer)

    def stop(self) -> None:
        """Let clients reconnect elsewhere, and end their streams; the clients do not count as gone."""
        for peer in self._clients.values():
            peer.send_away()

    # -- inside ----------------------------------------------------------------------------------------

    def _becomes(self, peer: GrpcPeer, kind: int, group: str) -> None:
        """Note the type and group of a client; a client that changes them leaves its old group."""
        before = peer.kind, peer.group
        peer.kind, peer.group = kind, group
        said = before[0] != ClientType.UNSPECIFIED
        became = (before[0] == ClientType.PRODUCER) != (kind == ClientType.PRODUCER)
        if not said or not (became or before[1] != group):
            return
        self._log.write(
            logging.WARNING,
            "another client",
            "gRPC client %s at %s was %s and is now %s: if it has not changed, two clients have one id",
            peer.client_id, peer.remote_address, _role(*before), _role(kind, group),
        )  # fmt: skip
        self._manager.connection_closed(peer)
        peer.topics = peer.wanted = None
        if before[1]:
            self._held.give_back(peer.client_id, before[1])

    def _closed(self, peer: GrpcPeer) -> None:
        if self._clients.get(peer.client_id) is peer:
            self.leave(peer.client_id)

    def _client(self, peer: GrpcPeer) -> Client:
        # ``remoting=False``: gRPC members share no queues out, so the broker need not notify ten thousand
        # members of each other.
        version = number_of(peer.version) or V5_0_0
        return Client(peer, peer.client_id, peer.language, version, remoting=False)

    def _register_producer(self, peer: GrpcPeer) -> None:
        """Register a producer that has a stream: transaction checks reach no other producer."""
        for topic in (peer.topics or ()) if peer.streams else ():
            self._manager.register_producer(topic, self._client(peer))

    def _register_consumer(self, peer: GrpcPeer) -> None:
        group = self._groups.find(peer.group)
        if group is None:
            return
        retry = reserved.retry_topic(peer.group)
        if self._topics.get(retry) is None:
            # Apache's mqadmin finds the brokers of a group by the route of this topic.
            self._topics.create_if_absent(retry, group.retry_queue_nums)
        data = ConsumerData(
            group_name=peer.group,
            consume_type=CONSUMERS.get(peer.kind, ConsumeType.CONSUME_PASSIVELY),
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=peer.subscriptions,
        )
        self._manager.register_consumer(
            self._client(peer),
            data,
            notify=self._config.notify_consumer_ids_changed and group.notify_consumer_ids_changed_enable,
            with_sub=peer.wanted is not None,
            strict=self._config.strict_subscription,
        )


def _role(kind: int, group: str) -> str:
    return f"a consumer of group {group}" if group else "a producer"
