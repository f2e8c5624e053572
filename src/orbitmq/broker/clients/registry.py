"""The clients that are online: producers and consumers by group (ConsumerManager, ProducerManager)."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from orbitmq.broker.clients.subscriptions import Conflict, Subscriptions
from orbitmq.broker.component import Component
from orbitmq.broker.events import ConnectionClosed, Events, MembersChanged
from orbitmq.broker.role import LEADING, RoleChanged
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.client import NotifyConsumerIdsChangedRequest

log = logging.getLogger(__name__)

SCAN_SECONDS = 10.0


class Peer(Protocol):
    """The connection of a client, as this module uses it."""

    @property
    def remote_address(self) -> str: ...

    def oneway(self, command: Command) -> None: ...

    async def request(self, command: Command, timeout_ms: int) -> Command: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Client:
    """One client process on one connection.

    Attributes:
        seen_ms: the time of its last heartbeat.
        remoting: whether it is notified when the members of its group change, and removed when its heartbeats
            stop. The gRPC door does both for its own clients.
    """

    peer: Peer
    client_id: str
    language: int
    version: int
    seen_ms: int = 0
    remoting: bool = True


# The groups of a connection: one as its name, several as the keys of a dict. A dict takes 200 bytes, and most
# connections have one group.
_Groups: TypeAlias = str | dict[str, None]


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group that are online, and the group's subscriptions.

    Attributes:
        noticed: the members that are sent notices.
    """

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    members: dict[Peer, Client] = field(default_factory=dict)
    noticed: dict[Peer, None] = field(default_factory=dict)
    wanted: Subscriptions = field(default_factory=Subscriptions)
    seen_ms: int = 0

    @property
    def subscriptions(self) -> dict[str, SubscriptionData]:
        """The subscriptions of the group, by topic."""
        return self.wanted.table

    @property
    def client_ids(self) -> list[str]:
        """The id of each member once: a member has two connections until its dead old one is noticed."""
        return list(dict.fromkeys(client.client_id for client in self.members.values()))

    def find(self, client_id: str) -> Client | None:
        """The member with this id."""
        return next((c for c in self.members.values() if c.client_id == client_id), None)


class ClientManager(Component):
    """Producers and consumers that are online.

    When a consumer group's members or subscriptions change, its members are sent NOTIFY_CONSUMER_IDS_CHANGED,
    and the parts of this broker get the event MembersChanged.
    """

    name = "clients"

    def __init__(self, clock: Clock, events: Events, *, expire_ms: int = 120_000) -> None:
        self._clock = clock
        self._events = events
        self._expire_ms = expire_ms
        self._limiter = LogLimiter(log)
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Peer, Client]] = {}
        self._producers_by_id: dict[str, Client] = {}
        # The groups of each connection, as producer and as consumer.
        self._produces: dict[Peer, _Groups] = {}
        self._consumes: dict[Peer, _Groups] = {}
        # (time of a heartbeat, number, connection): each connection is checked when it may have gone silent.
        self._to_check: list[tuple[int, int, Peer]] = []
        self._checked: set[Peer] = set()
        self._checks = 0
        # Fingerprint of the last heartbeat per group: a V2 heartbeat leaves out unchanged subscriptions.
        self._fingerprints: dict[str, int] = {}
        self._conflicts: Counter[str] = Counter()
        events.subscribe(RoleChanged, self._role_changed)
        events.subscribe(ConnectionClosed, lambda event: self.connection_closed(event.connection))

    async def start(self) -> None:
        self._every(self._clock, SCAN_SECONDS, self.expire)

    # -- reading ---------------------------------------------------------------------------------------

    def consumers(self, group: str) -> ConsumerGroup | None:
        """The group's state, ``None`` when no member is online."""
        return self._consumers.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription to the topic, from its heartbeats."""
        state = self._consumers.get(group)
        return None if state is None else state.subscriptions.get(topic)

    def producers(self, group: str) -> list[Client]:
        """The producers of a group that are online."""
        return list(self._producers.get(group, {}).values())

    def producer(self, client_id: str) -> Client | None:
        """The client with this id, if it is online as a producer."""
        return self._producers_by_id.get(client_id)

    def producer_groups(self) -> dict[str, list[Client]]:
        return {group: list(members.values()) for group, members in self._producers.items()}

    def consumer_groups(self) -> dict[str, list[Client]]:
        return {group: list(state.members.values()) for group, state in self._consumers.items()}

    def conflicts(self, group: str) -> list[Conflict]:
        """Where members of the group contradict each other now."""
        state = self._consumers.get(group)
        return [] if state is None else state.wanted.conflicts()

    def conflict_count(self, group: str) -> int:
        """How often a member began to contradict another (subscription_conflict), since the start."""
        return self._conflicts[group]

    def groups_reading(self, topic: str) -> set[str]:
        """The groups online that subscribe to the topic."""
        return {state.name for state in self._consumers.values() if topic in state.subscriptions}

    # -- changing --------------------------------------------------------------------------------------

    def register_producer(self, group: str, client: Client) -> None:
        """Register a producer, or renew it: its heartbeat was received."""
        client.seen_ms = self._clock.now_ms()
        self._watch(client)
        self._producers.setdefault(group, {})[client.peer] = client
        _note(self._produces, client.peer, group)
        self._producers_by_id[client.client_id] = client

    def register_consumer(
        self,
        client: Client,
        data: ConsumerData,
        *,
        notify: bool = True,
        fingerprint: int = 0,
        with_sub: bool = True,
        strict: bool = False,
    ) -> bool:
        """Register a consumer, or renew it: its heartbeat was received.

        Args:
            notify: whether to notify the members when they change.
            fingerprint: hash of the client's subscriptions, 0 from clients that do not send it.
            with_sub: whether ``data`` holds the subscriptions.
            strict: whether to refuse a member whose subscriptions contradict another's.

        Raises:
            RemotingError: ILLEGAL_OPERATION, because of ``strict``; the client is not a member then.

        Returns:
            Whether the client must send its subscriptions again (IS_SUB_CHANGE): the last heartbeat had other
            subscriptions, or they are unknown, as after a restart.
        """
        group = data.group_name
        state = self._consumers.get(group) or ConsumerGroup(group)
        if strict and with_sub:
            self._check(state, client, data, notify)
        self._consumers[group] = state
        state.consume_type = data.consume_type
        state.message_model = data.message_model
        state.consume_from_where = data.consume_from_where
        client.seen_ms = state.seen_ms = self._clock.now_ms()
        self._watch(client)
        _note(self._consumes, client.peer, group)
        joined = client.peer not in state.members
        state.members[client.peer] = client
        if client.remoting:
            state.noticed[client.peer] = None
        topics = expressions = False
        if with_sub:
            effect = state.wanted.apply_heartbeat(client.peer, client.client_id, data.subscription_data_set)
            topics, expressions = effect.topics, effect.expressions
            if effect.conflict is not None:
                self._conflicts[group] += 1
                self._limiter.write(
                    logging.WARNING,
                    "conflict",
                    "members of consumer group %s lose messages, they contradict each other: %s",
                    group,
                    effect.conflict,
                )
        if joined or topics:
            self._changed(state, notify)
        elif expressions:
            self._events.publish(MembersChanged(group, state))
        previous = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return (previous is not None and previous != fingerprint) or not (with_sub or state.subscriptions)

    def unregister(
        self, peer: Peer, *, producer_group: str | None, consumer_group: str | None, notify: bool = True
    ) -> None:
        """Remove a client that leaves from one producer group, one consumer group or both."""
        if producer_group:
            self._drop_producer(producer_group, peer)
        if consumer_group:
            self._drop_consumer(consumer_group, peer, notify)

    def connection_closed(self, peer: Peer) -> None:
        """Forget every client of this connection."""
        for group in _groups_of(self._produces, peer):
            self._drop_producer(group, peer)
        for group in _groups_of(self._consumes, peer):
            self._drop_consumer(group, peer, notify=True)

    def expire(self) -> int:
        """Close the connections of clients whose last heartbeat is too old; returns how many."""
        oldest = self._clock.now_ms() - self._expire_ms
        silent = 0
        while self._to_check and self._to_check[0][0] < oldest:
            _, _, peer = heapq.heappop(self._to_check)
            self._checked.discard(peer)
            seen = self._seen_ms(peer)
            if seen is None:
                continue
            if seen >= oldest:
                self._check_later(seen, peer)
                continue
            silent += 1
            self._limiter.write(
                logging.WARNING,
                "silent",
                "client %s has sent no heartbeat for %d ms: closed",
                peer.remote_address,
                self._expire_ms,
            )
            self.connection_closed(peer)
            peer.close()
        return silent

    def _watch(self, client: Client) -> None:
        if client.remoting and client.peer not in self._checked:
            self._check_later(client.seen_ms, client.peer)

    def _check_later(self, seen_ms: int, peer: Peer) -> None:
        self._checks += 1
        self._checked.add(peer)
        heapq.heappush(self._to_check, (seen_ms, self._checks, peer))

    def _seen_ms(self, peer: Peer) -> int | None:
        """The time of a connection's latest heartbeat: a connection lives as long as any of its groups."""
        seen = [self._producers[group][peer].seen_ms for group in _groups_of(self._produces, peer)]
        seen += [self._consumers[group].members[peer].seen_ms for group in _groups_of(self._consumes, peer)]
        return max(seen) if seen else None

    def _drop_producer(self, group: str, peer: Peer) -> None:
        members = self._producers.get(group, {})
        client = members.pop(peer, None)
        if not members:
            self._producers.pop(group, None)
        _forget(self._produces, peer, group)
        if client is None or peer in self._produces:
            return
        latest = self._producers_by_id.get(client.client_id)
        if latest is not None and latest.peer is peer:
            del self._producers_by_id[client.client_id]

    def _drop_consumer(self, group: str, peer: Peer, notify: bool) -> None:
        state = self._consumers.get(group)
        if state is None or state.members.pop(peer, None) is None:
            return
        state.noticed.pop(peer, None)
        _forget(self._consumes, peer, group)
        state.wanted.forget(peer)
        if not state.members:
            del self._consumers[group]
            self._fingerprints.pop(group, None)
        self._changed(state, notify)

    def _check(self, state: ConsumerGroup, client: Client, data: ConsumerData, notify: bool) -> None:
        conflict = state.wanted.conflict_of(client.peer, client.client_id, data.subscription_data_set)
        if conflict is not None:
            self._conflicts[state.name] += 1
            # The other members share all queues among themselves.
            self._drop_consumer(state.name, client.peer, notify)
            raise RemotingError(
                ResponseCode.ILLEGAL_OPERATION,
                f"consumer group {state.name} must agree (strictSubscription): {conflict}",
            )

    def _role_changed(self, changed: RoleChanged) -> None:
        """Notify consumers when this broker begins to lead, so that they fetch the route: the master before
        it may be frozen, with its connections open."""
        if changed.after in LEADING:
            for state in self._consumers.values():
                self._notify(state)

    def _notify(self, state: ConsumerGroup) -> None:
        notice = NotifyConsumerIdsChangedRequest(consumer_group=state.name)
        for peer in list(state.noticed):
            # A closed connection has an event of its own: notify the other members anyway.
            with suppress(TransportError):
                peer.oneway(notice.command())

    def let_rebalance(self, group: str) -> None:
        """Notify the members of a group, so that they rebalance at once."""
        state = self._consumers.get(group)
        if state is not None:
            self._notify(state)

    def _changed(self, state: ConsumerGroup, notify: bool) -> None:
        if notify and state.message_model is not MessageModel.BROADCASTING:
            self._notify(state)
        self._events.publish(MembersChanged(state.name, state if state.members else None))


def _note(groups: dict[Peer, _Groups], peer: Peer, group: str) -> None:
    """Note that a connection has this group, too."""
    known = groups.get(peer)
    if known is None:
        groups[peer] = group
    elif isinstance(known, dict):
        known[group] = None
    elif known != group:
        groups[peer] = {known: None, group: None}


def _groups_of(groups: dict[Peer, _Groups], peer: Peer) -> Iterable[str]:
    known = groups.get(peer, {})
    return list(known) if isinstance(known, dict) else (known,)


def _forget(groups: dict[Peer, _Groups], peer: Peer, group: str) -> None:
    known = groups.get(peer)
    if isinstance(known, dict):
        known.pop(group, None)
    if not known or known == group:
        groups.pop(peer, None)
