"""Topics: create, change, delete (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler, reply_after
from orbitmq.broker.metadata import attributes
from orbitmq.broker.metadata.administration import TopicAdministration
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class TopicHandlers(Family):
    """Changes of the table of topics."""

    def __init__(self, administration: TopicAdministration) -> None:
        self._administration = administration

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
        }

    def update(self, connection: ServerConnection, command: Command) -> Answer:
        """Create or change a topic; answered when it is on disk and the name servers were told."""
        header = headers.UpdateAndCreateTopicRequest.from_ext(command.ext)
        config = bodies.TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=_filter_type(header.topic_filter_type),
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=attributes.parse(header.attributes),
        )
        return reply_after(self._administration.update([config], by=connection.remote_address), command)

    def update_list(self, connection: ServerConnection, command: Command) -> Answer:
        """Create or change several topics."""
        configs = bodies.CreateTopicListRequestBody.decode(command.body).topic_config_list
        return reply_after(self._administration.update(configs, by=connection.remote_address), command)

    def delete(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete a topic, its queues and the groups' offsets in it. Deleting no topic is a success."""
        topic = headers.DeleteTopicInBrokerRequest.from_ext(command.ext).topic
        return reply_after(self._administration.delete(topic, by=connection.remote_address), command)


def _filter_type(text: str) -> bodies.TopicFilterType:
    try:
        return bodies.TopicFilterType(text)
    except ValueError:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER, f"topicFilterType {text}: expected SINGLE_TAG or MULTI_TAG"
        ) from None
