"""The handlers of QueryRoute and QueryAssignment, which answer with a topic's queues and their brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.role import RoleState
from orbitmq.gateway import endpoints, schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.clients import GrpcClients
from orbitmq.gateway.cluster import OtherBrokers, Others, TopicBroker
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import ALL_TYPES, GrpcTopics, accepted_types, group_name
from orbitmq.gateway.schema import MessageType, Permission
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.message import reserved
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig

# The id of a queue that stands for all of a topic's queues on a broker.
ANY_QUEUE = -1
# The most addresses of this broker, named in QueryRoute, that are remembered; the oldest is forgotten first.
MAX_REACHED = 1_000
_SLAVE_ID = 1


def permission(perm: int) -> Permission:
    """The permission for the bits of a topic's permission."""
    read, write = perm & reserved.PERM_READ, perm & reserved.PERM_WRITE
    if read and write:
        return Permission.READ_WRITE
    if read or write:
        return Permission.READ if read else Permission.WRITE
    return Permission.NONE


@dataclass(frozen=True, slots=True)
class Share:
    """One broker's queues of a topic.

    Attributes:
        reads, writes: how many queues there are to read, and to write.
        perm: the topic's permission bits.
    """

    broker: schema.Broker
    reads: int
    writes: int
    perm: int

    def queues(self) -> Iterator[tuple[int, Permission]]:
        """The queues, each with its permission, also those that permit nothing."""
        readable = self.reads if self.perm & reserved.PERM_READ else 0
        writable = self.writes if self.perm & reserved.PERM_WRITE else 0
        for queue_id in range(max(readable, writable)):
            bits = (queue_id < readable) * reserved.PERM_READ | (queue_id < writable) * reserved.PERM_WRITE
            yield queue_id, permission(bits)
        if not self.perm & (reserved.PERM_READ | reserved.PERM_WRITE):
            for queue_id in range(max(1, self.reads, self.writes)):
                yield queue_id, Permission.NONE


@dataclass(frozen=True, slots=True)
class _Route:
    """A topic's brokers, and the message types that it accepts."""

    shares: Sequence[Share]
    accepted: Sequence[MessageType]


class Routes:
    """Answers with the queues of a topic on this broker and on other brokers that serve gRPC clients.

    Args:
        clients: holds the topics that each consumer has subscribed to.
        others: finds the other brokers.
        port: this broker's port for gRPC clients.
    """

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        metadata: MetadataAccess,
        topics: GrpcTopics,
        clients: GrpcClients,
        others: OtherBrokers,
        port: int,
    ) -> None:
        self._config = config
        self._role = role
        self._metadata = metadata
        self._topics = topics
        self._clients = clients
        self._others = others
        self._port = port
        self._reached: dict[bytes, None] = {}

    async def route(self, caller: Caller, request: schema.QueryRouteRequest) -> schema.QueryRouteResponse:
        """Every queue of a topic; the queues of several brokers alternate.

        A simple consumer receives from queue after queue, and may wait a whole long poll at each empty one.
        """
        self._note_reached(request.endpoints)
        route = await self._route(caller, request.topic, request.endpoints)
        by_broker = [
            [
                new(
                    schema.MessageQueue,
                    topic=request.topic,
                    id=queue_id,
                    permission=allowed,
                    broker=share.broker,
                    accept_message_types=route.accepted,
                )
                for queue_id, allowed in share.queues()
            ]
            for share in route.shares
        ]
        in_turn = chain.from_iterable(zip_longest(*by_broker))
        queues = [queue for queue in in_turn if queue is not None]
        return new(schema.QueryRouteResponse, status=ok(), message_queues=queues)

    async def assignment(
        self, caller: Caller, request: schema.QueryAssignmentRequest
    ) -> schema.QueryAssignmentResponse:
        """The assignment of a push consumer: one entry for all queues of a broker.

        An orderly group gets one entry for each queue. All members of a group get the same assignment, as
        each pop takes different messages.
        """
        group = self._metadata.group(group_name(request.group))
        return self._assigned(request, group, await self._route(caller, request.topic, request.endpoints))

    def known_assignment(
        self, _caller: Caller, request: schema.QueryAssignmentRequest
    ) -> schema.QueryAssignmentResponse | None:
        """As :meth:`assignment`, if this broker has the topic and its other brokers are known; else None."""
        group = self._metadata.group(group_name(request.group))
        endpoints.check(request.endpoints)
        config, others = self._topics.known(request.topic.name), self._others.known(request.topic.name)
        if config is None or others is None:
            return None
        return self._assigned(request, group, self._route_here(config, others, request.endpoints))

    def _assigned(
        self, request: schema.QueryAssignmentRequest, group: SubscriptionGroupConfig, route: _Route
    ) -> schema.QueryAssignmentResponse:
        readable = [share for share in route.shares if share.perm & reserved.PERM_READ and share.reads]
        if not readable:
            raise RefusalError(
                Code.FORBIDDEN,
                f"topic {request.topic.name} has no queue to read from on broker {self._config.broker_name}",
            )
        assignments = [
            new(
                schema.Assignment,
                message_queue=new(
                    schema.MessageQueue,
                    topic=request.topic,
                    id=queue_id,
                    permission=permission(share.perm),
                    broker=share.broker,
                    accept_message_types=route.accepted,
                ),
            )
            for share in readable
            for queue_id in (range(share.reads) if group.consume_message_orderly else (ANY_QUEUE,))
        ]
        return new(schema.QueryAssignmentResponse, status=ok(), assignments=assignments)

    async def _route(self, caller: Caller, topic: schema.Resource, used: schema.Endpoints) -> _Route:
        """The brokers of a topic. A topic that no broker has is created here, if the settings allow it.

        Consumers query routes as long as they run: a consumer that subscribes to a deleted topic does not
        create it again.
        """
        endpoints.check(used)
        config = await self._topics.find(topic)
        others = await self._others.of(topic.name)
        if config is None and not others.members:
            _check_nobody_has(topic.name, others)
            gone = self._topics.deleted(topic.name) and self._clients.reads(caller.client_id, topic.name)
            config = await self._topics.existing(topic, makes=not gone)
        if config is None:
            told = await self._others.topic_of(topic.name, others.members[0])
            shares = [_share_of(member) for member in others.members]
            return _Route(shares, ALL_TYPES if told is None else accepted_types(told))
        return self._route_here(config, others, used)

    def _route_here(self, config: TopicConfig, others: Others, used: schema.Endpoints) -> _Route:
        """The brokers of a topic that this broker has."""
        shares = [_share_of(member) for member in others.members]
        # A slave whose master is in the route is left out: clients use only brokers with id 0.
        if self._serves or not any(each.name == self._config.broker_name for each in others.members):
            broker = self._broker(used, alone=not others.members)
            perm = config.perm & self._config.broker_permission
            shares.append(Share(broker, config.read_queue_nums, config.write_queue_nums, perm))
            shares.sort(key=lambda share: share.broker.name)
        return _Route(shares, accepted_types(config))

    @property
    def _serves(self) -> bool:
        return self._role.takes_messages or self._role.leads

    def _broker(self, used: schema.Endpoints, *, alone: bool) -> schema.Broker:
        """This broker, at the address that the client uses if this is known to lead to this broker.

        In calls to every broker, clients name their access point; but they send QueryRoute only to the access
        point itself. So an address named in a QueryRoute to this broker leads to this broker.

        Args:
            alone: whether no other broker has the topic.
        """
        host, port = self._config.broker_ip1, self._port
        reached = alone and used.SerializeToString() in self._reached
        return new(
            schema.Broker,
            name=self._config.broker_name,
            id=reserved.MASTER_ID if self._serves else _SLAVE_ID,
            endpoints=endpoints.of_client(used, host, port) if reached else endpoints.endpoints(host, port),
        )

    def _note_reached(self, used: schema.Endpoints) -> None:
        """Remember an address that leads to this broker."""
        key = used.SerializeToString()
        self._reached.pop(key, None)
        if len(self._reached) == MAX_REACHED:
            del self._reached[next(iter(self._reached))]
        self._reached[key] = None


def _check_nobody_has(topic: str, others: Others) -> None:
    """Refuse to create a topic that another broker has or may have.

    Raises:
        RefusalError: brokers that gRPC clients cannot use now have it, or no name server answers.
    """
    if others.missing:
        text = f"topic {topic} is on no broker that gRPC clients can use: {'; '.join(others.missing[:3])}"
        raise RefusalError(Code.INTERNAL_SERVER_ERROR, text)
    if not others.known:
        text = f"no name server answers, so it is not known which brokers have topic {topic}; try again"
        raise RefusalError(Code.INTERNAL_SERVER_ERROR, text)


def _share_of(member: TopicBroker) -> Share:
    broker = new(
        schema.Broker,
        name=member.name,
        id=reserved.MASTER_ID,
        endpoints=endpoints.endpoints(member.host, member.port),
    )
    queues = member.queues
    return Share(broker, queues.read_queue_nums, queues.write_queue_nums, queues.perm)
