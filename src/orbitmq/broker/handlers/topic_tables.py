"""Topics: what there is, and who reads it (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.tables import encode_with_table
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

PAGE_SIZE = 2000


class TopicTableHandlers(Family):
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
        """All topics; in pages for 5.x peers that ask so."""
        topics = self._topics
        if command.ext:
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
        """The groups that read a topic: online now, or with committed offsets."""
        topic = headers.QueryTopicConsumeByWhoRequest.from_ext(command.ext).topic
        groups = self._clients.groups_reading(topic) | self._offsets.groups_of(topic)
        return command.reply(body=bodies.GroupList(group_list=groups).encode())

    def system_topics(self, _connection: ServerConnection, command: Command) -> Answer:
        """The reserved names."""
        return command.reply(body=bodies.TopicList(topic_list=set(self._topics.system_topics())).encode())
