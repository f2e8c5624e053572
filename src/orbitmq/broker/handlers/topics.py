"""Topics: create, change, delete, list (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, reply_after
from orbitmq.broker.handlers.tables import encode_with_table
from orbitmq.broker.metadata import attributes
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.administration import TopicAdministration
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

PAGE_SIZE = 2000


class TopicHandlers(HandlerFamily):
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
        """Create or change a topic; answered when it is on disk and registered at the name servers."""
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
        """Delete a topic, its queues and the groups' offsets in it; a success also without such a topic."""
        topic = headers.DeleteTopicInBrokerRequest.from_ext(command.ext).topic
        return reply_after(self._administration.delete(topic, by=connection.remote_address), command)


def _filter_type(text: str) -> bodies.TopicFilterType:
    try:
        return bodies.TopicFilterType(text)
    except ValueError:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER, f"topicFilterType {text}: expected SINGLE_TAG or MULTI_TAG"
        ) from None


class TopicTableHandlers(HandlerFamily):
    """The table of topics, and the groups that read them."""

    def __init__(
        self, metadata: MetadataAccess, topics: TopicConfigs, offsets: ConsumerOffsets, clients: ClientManager
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._offsets = offsets
        self._clients = clients

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_configs,
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    async def all_configs(self, _connection: ServerConnection, command: Command) -> Command:
        """All topics; in pages if the request has one of the fields for pages, as from 5.x peers."""
        topics = self._topics
        # Only these fields mean pages: a request for all topics may have the fields of a signature.
        if not command.ext.keys().isdisjoint(("topicSeq", "dataVersion", "maxTopicNum")):
            header = headers.GetAllTopicConfigRequest.from_ext(command.ext)
            version = bodies.DataVersion.decode(header.data_version.encode()) if header.data_version else None
            count = min(PAGE_SIZE, header.max_topic_num or PAGE_SIZE)
            table = topics.page(version, max(0, header.topic_seq), count)
        else:
            table = {config.topic_name: config for config in topics}
        body = bodies.TopicConfigAndMappingSerializeWrapper(data_version=topics.version)
        response = headers.GetAllTopicConfigResponse(total_topic_num=len(topics))
        return response.reply_to(command, body=await encode_with_table(body, "topicConfigTable", table))

    def config(self, _connection: ServerConnection, command: Command) -> Answer:
        """One topic's config."""
        topic = headers.GetTopicConfigRequest.from_ext(command.ext).topic
        return command.reply(body=self._metadata.topic(topic).encode())

    def consumed_by(self, _connection: ServerConnection, command: Command) -> Answer:
        """The groups that read a topic: groups that are online now or have committed offsets."""
        topic = headers.QueryTopicConsumeByWhoRequest.from_ext(command.ext).topic
        groups = self._clients.groups_reading(topic) | self._offsets.groups_of(topic)
        return command.reply(body=bodies.GroupList(group_list=groups).encode())

    def system_topics(self, _connection: ServerConnection, command: Command) -> Answer:
        """The reserved names."""
        return command.reply(body=bodies.TopicList(topic_list=set(self._topics.system_topics())).encode())
