"""What subscription groups read (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class GroupTopicHandlers(Family):
    """The topics of a group, and its subscriptions.

    Args:
        address: what clients call this broker, host:port.
    """

    def __init__(self, offsets: ConsumerOffsets, clients: ClientManager, address: str) -> None:
        self._offsets = offsets
        self._clients = clients
        self._address = address

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def topics_of(self, _connection: ServerConnection, command: Command) -> Answer:
        """The topics in which a group has committed offsets."""
        group = headers.QueryTopicsByConsumerRequest.from_ext(command.ext).group
        body = bodies.TopicList(topic_list=self._offsets.topics_of(group), broker_addr=self._address)
        return command.reply(body=body.encode())

    def subscription(self, _connection: ServerConnection, command: Command) -> Answer:
        """What a group subscribes to in a topic."""
        header = headers.QuerySubscriptionByConsumerRequest.from_ext(command.ext)
        topic = header.topic or ""
        body = bodies.QuerySubscriptionResponseBody(
            group=header.group,
            topic=topic,
            subscription_data=self._clients.subscription(header.group, topic),
        )
        return command.reply(body=body.encode())
