"""QueryRoute and QueryAssignment: which queues a topic has, and where."""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.role import RoleState
from orbitmq.gateway import endpoints, schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import Topics, accepted_types, group_name
from orbitmq.gateway.schema import Permission
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.message import reserved
from orbitmq.wire.bodies.topic import TopicConfig

# A queue that stands for all of a topic's queues on a broker.
ANY_QUEUE = -1
_SLAVE_ID = 1


def permission(perm: int) -> Permission:
    """What the bits of a topic's permission allow."""
    read, write = perm & reserved.PERM_READ, perm & reserved.PERM_WRITE
    if read and write:
        return Permission.READ_WRITE
    if read or write:
        return Permission.READ if read else Permission.WRITE
    return Permission.NONE


def queues_of(config: TopicConfig, perm: int) -> Iterator[tuple[int, Permission]]:
    """The queues of a topic, each with what may be done with it; one that may be neither is shown too."""
    readable = config.read_queue_nums if perm & reserved.PERM_READ else 0
    writable = config.write_queue_nums if perm & reserved.PERM_WRITE else 0
    for queue_id in range(max(readable, writable)):
        bits = (queue_id < readable) * reserved.PERM_READ | (queue_id < writable) * reserved.PERM_WRITE
        yield queue_id, permission(bits)
    if not perm & (reserved.PERM_READ | reserved.PERM_WRITE):
        for queue_id in range(max(1, config.read_queue_nums, config.write_queue_nums)):
            yield queue_id, Permission.NONE


class Routes:
    """Answers with the queues of this broker.

    Args:
        port: of the broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        metadata: MetadataAccess,
        topics: Topics,
        port: int,
    ) -> None:
        self._config = config
        self._role = role
        self._metadata = metadata
        self._topics = topics
        self._port = port

    async def route(self, _caller: Caller, request: schema.QueryRouteRequest) -> schema.QueryRouteResponse:
        """Every queue of a topic."""
        broker = self._broker(request.endpoints)
        config = await self._topics.existing(request.topic)
        accepted = accepted_types(config)
        queues = [
            new(
                schema.MessageQueue,
                topic=request.topic,
                id=queue_id,
                permission=allowed,
                broker=broker,
                accept_message_types=accepted,
            )
            for queue_id, allowed in queues_of(config, self._perm(config))
        ]
        return new(schema.QueryRouteResponse, status=ok(), message_queues=queues)

    async def assignment(
        self, _caller: Caller, request: schema.QueryAssignmentRequest
    ) -> schema.QueryAssignmentResponse:
        """The assignment of a push consumer: all queues as one, or each queue for a group in order.

        Every member of a group gets the same: each pop takes what no other one has.
        """
        broker = self._broker(request.endpoints)
        group = self._metadata.group(group_name(request.group))
        config = await self._topics.existing(request.topic)
        perm = self._perm(config)
        if not (perm & reserved.PERM_READ and config.read_queue_nums):
            raise RefusalError(
                Code.FORBIDDEN,
                f"topic {config.topic_name} has no queue to read from on broker {self._config.broker_name}",
            )
        in_order = group.consume_message_orderly
        queues = range(config.read_queue_nums) if in_order else (ANY_QUEUE,)
        assignments = [
            new(
                schema.Assignment,
                message_queue=new(
                    schema.MessageQueue,
                    topic=request.topic,
                    id=queue_id,
                    permission=permission(perm),
                    broker=broker,
                    accept_message_types=accepted_types(config),
                ),
            )
            for queue_id in queues
        ]
        return new(schema.QueryAssignmentResponse, status=ok(), assignments=assignments)

    def _perm(self, config: TopicConfig) -> int:
        return config.perm & self._config.broker_permission

    def _broker(self, used: schema.Endpoints) -> schema.Broker:
        config = self._config
        serves = self._role.takes_messages or self._role.leads
        return new(
            schema.Broker,
            name=config.broker_name,
            id=reserved.MASTER_ID if serves else _SLAVE_ID,
            endpoints=endpoints.of_client(used, config.broker_ip1, self._port),
        )
