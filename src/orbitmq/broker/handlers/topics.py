"""Topics: create, change, delete, show (AdminBrokerProcessor)."""

from __future__ import annotations

import logging

from orbitmq.broker import names
from orbitmq.broker.change_feed import OFFSETS, TOPICS
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata import attributes
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.topics import MAX_QUEUES, TopicConfigs
from orbitmq.broker.registration import Registration
from orbitmq.broker.statistics import TOPIC_PUT_NUMS, Stats
from orbitmq.message.model import MessageQueue
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    GroupList,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    DeleteTopicInBrokerRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
    QueryTopicConsumeByWhoRequest,
    UpdateAndCreateTopicRequest,
)

log = logging.getLogger(__name__)

PAGE_SIZE = 2000
ANNOUNCE_TIMEOUT_MS = 1000


class TopicHandlers(Family):
    """The table of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        store: MessageStore,
        registration: Registration,
        stats: Stats,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._registration = registration
        self._stats = stats

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_configs,
            RequestCode.GET_TOPIC_CONFIG: self.config,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def update(self, connection: ServerConnection, command: Command) -> Answer:
        """Create or change a topic; answered when it is on disk and the name servers were told."""
        header = UpdateAndCreateTopicRequest.from_ext(command.ext)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=_filter_type(header.topic_filter_type),
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=attributes.parse(header.attributes),
        )
        return self._update(connection, command, [config])

    def update_list(self, connection: ServerConnection, command: Command) -> Answer:
        """Create or change several topics."""
        return self._update(
            connection, command, CreateTopicListRequestBody.decode(command.body).topic_config_list
        )

    async def _update(
        self, connection: ServerConnection, command: Command, configs: list[TopicConfig]
    ) -> Command:
        for config in configs:
            self._check(config)
        for config in configs:
            log.info("topic %s is created or changed by %s", config.topic_name, connection.remote_address)
            self._topics.update(config)
        await self._metadata.save(TOPICS)
        await self._registration.announced(ANNOUNCE_TIMEOUT_MS)
        return command.reply()

    def _check(self, config: TopicConfig) -> None:
        names.check_topic(config.topic_name)
        self._check_not_system(config.topic_name)
        for field, queues in (
            ("readQueueNums", config.read_queue_nums),
            ("writeQueueNums", config.write_queue_nums),
        ):
            if not 0 <= queues <= MAX_QUEUES:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER, f"{field} {queues}: expected 0 to {MAX_QUEUES}"
                )
        if not 0 <= config.perm <= 15:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"perm {config.perm}: expected 0 to 15")

    def _check_not_system(self, topic: str) -> None:
        if self._config.validate_system_topic and self._topics.is_system(topic):
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic."
            )

    async def _delete(self, command: Command, topic: str) -> Command:
        if self._topics.delete(topic):
            self._offsets.drop_topic(topic)
            await self._metadata.save(TOPICS, OFFSETS)
            await self._registration.announced(ANNOUNCE_TIMEOUT_MS)
        return command.reply()

    def delete(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete a topic, its queues and the groups' offsets in it. Deleting no topic is a success."""
        topic = DeleteTopicInBrokerRequest.from_ext(command.ext).topic
        if not topic.strip():
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._check_not_system(topic)
        log.info("topic %s is deleted by %s", topic, connection.remote_address)
        return self._delete(command, topic)

    def all_configs(self, _connection: ServerConnection, command: Command) -> Answer:
        """All topics; in pages for 5.x peers that ask so."""
        topics = self._topics
        if command.ext:
            header = GetAllTopicConfigRequest.from_ext(command.ext)
            version = DataVersion.decode(header.data_version.encode()) if header.data_version else None
            count = min(PAGE_SIZE, header.max_topic_num or PAGE_SIZE)
            table = topics.page(version, max(0, header.topic_seq), count)
        else:
            table = {config.topic_name: config for config in topics}
        body = TopicConfigAndMappingSerializeWrapper(data_version=topics.version, topic_config_table=table)
        return GetAllTopicConfigResponse(total_topic_num=len(topics)).reply_to(command, body=body.encode())

    def config(self, _connection: ServerConnection, command: Command) -> Answer:
        """One topic's config."""
        topic = GetTopicConfigRequest.from_ext(command.ext).topic
        return command.reply(body=self._metadata.topic(topic).encode())

    def stats(self, _connection: ServerConnection, command: Command) -> Answer:
        """Bounds and last change of each queue of a topic."""
        topic = GetTopicStatsInfoRequest.from_ext(command.ext).topic
        config = self._metadata.topic(topic)
        store = self._store
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            high = store.max_offset(topic, queue_id)
            table[MessageQueue(topic, self._config.broker_name, queue_id)] = TopicOffset(
                min_offset=max(0, store.min_offset(topic, queue_id)),
                max_offset=max(0, high),
                last_update_timestamp=store.store_time(topic, queue_id, high - 1) if high > 0 else 0,
            )
        rate = self._stats.per_second(TOPIC_PUT_NUMS, topic)
        return command.reply(body=TopicStatsTable(offset_table=table, topic_put_tps=rate).encode())

    def consumed_by(self, _connection: ServerConnection, command: Command) -> Answer:
        """The groups that read a topic: online now, or with committed offsets."""
        topic = QueryTopicConsumeByWhoRequest.from_ext(command.ext).topic
        groups = self._clients.groups_reading(topic) | self._offsets.groups_of(topic)
        return command.reply(body=GroupList(group_list=groups).encode())

    def system_topics(self, _connection: ServerConnection, command: Command) -> Answer:
        """The reserved names."""
        return command.reply(body=TopicList(topic_list=set(self._topics.system_topics())).encode())


def _filter_type(text: str) -> TopicFilterType:
    try:
        return TopicFilterType(text)
    except ValueError:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER, f"topicFilterType {text}: expected SINGLE_TAG or MULTI_TAG"
        ) from None
