"""Subscription groups: create, change, delete, show (AdminBrokerProcessor)."""

from __future__ import annotations

import logging

from orbitmq.broker import names
from orbitmq.broker.change_feed import GROUPS, OFFSETS
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.statistics import GROUP_GET_NUMS, Stats
from orbitmq.message.model import MessageQueue
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    DataVersion,
    GroupForbidden,
    OffsetWrapper,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicList,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    DeleteSubscriptiongroupRequest,
    GetAllSubscriptiongroupConfigRequest,
    GetAllSubscriptiongroupConfigResponse,
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    GetSubscriptiongroupConfigRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicsByConsumerRequest,
    UpdateAndGetGroupForbiddenRequest,
)

log = logging.getLogger(__name__)

PAGE_SIZE = 2000


class GroupHandlers(Family):
    """The table of subscription groups, and how far groups are."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataAccess,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clients: ClientManager,
        store: MessageStore,
        stats: Stats,
        address: str,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._stats = stats
        self._address = address

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_stats,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def update(self, _connection: ServerConnection, command: Command) -> Answer:
        """Create or change a group."""
        return self._update(command, [SubscriptionGroupConfig.decode(command.body)])

    def update_list(self, _connection: ServerConnection, command: Command) -> Answer:
        """Create or change several groups."""
        return self._update(command, SubscriptionGroupList.decode(command.body).group_config_list)

    async def _update(self, command: Command, configs: list[SubscriptionGroupConfig]) -> Command:
        for config in configs:
            names.check_group(config.group_name)
        for config in configs:
            self._groups.update(config)
        await self._metadata.save(GROUPS)
        return command.reply()

    def delete(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete a group, and its offsets when asked to."""
        header = DeleteSubscriptiongroupRequest.from_ext(command.ext)
        log.info("group %s is deleted by %s", header.group_name, connection.remote_address)
        self._groups.delete(header.group_name)
        if header.clean_offset:
            self._offsets.drop_group(header.group_name)
        return self._saved(command)

    async def _saved(self, command: Command) -> Command:
        await self._metadata.save(GROUPS, OFFSETS)
        return command.reply()

    def all_configs(self, _connection: ServerConnection, command: Command) -> Answer:
        """All groups; in pages for 5.x peers that ask so."""
        groups = self._groups
        if command.ext:
            header = GetAllSubscriptiongroupConfigRequest.from_ext(command.ext)
            version = DataVersion.decode(header.data_version.encode()) if header.data_version else None
            count = min(PAGE_SIZE, header.max_group_num or PAGE_SIZE)
            table = groups.page(version, max(0, header.group_seq), count)
            forbidden = groups.forbidden(table)
        else:
            table = {config.group_name: config for config in groups}
            forbidden = groups.forbidden()
        body = SubscriptionGroupWrapper(
            data_version=groups.version, subscription_group_table=table, forbidden_table=forbidden
        )
        header_out = GetAllSubscriptiongroupConfigResponse(total_group_num=len(groups))
        return header_out.reply_to(command, body=body.encode())

    def config(self, _connection: ServerConnection, command: Command) -> Answer:
        """One group's config. It is not created by asking, other than RocketMQ does."""
        group = GetSubscriptiongroupConfigRequest.from_ext(command.ext).group
        config = self._groups.get(group)
        if config is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {group}"
            )
        return command.reply(body=config.encode())

    def forbid(self, _connection: ServerConnection, command: Command) -> Answer:
        """Show, and change when asked to, whether a group may read a topic."""
        header = UpdateAndGetGroupForbiddenRequest.from_ext(command.ext)
        groups = self._groups
        if header.readable is not None:
            groups.set_readable(header.group, header.topic, header.readable)
        body = GroupForbidden(
            topic=header.topic, group=header.group, readable=groups.may_read(header.group, header.topic)
        )
        return command.reply(remark="", body=body.encode())

    def consume_stats(self, _connection: ServerConnection, command: Command) -> Answer:
        """How far a group is in each queue."""
        header = GetConsumeStatsRequest.from_ext(command.ext)
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for topic in self._topics_to_show(header):
            table |= self._topic_progress(header.consumer_group, topic)
            rate += self._rate(header.consumer_group, topic)
        return command.reply(body=ConsumeStats(offset_table=table, consume_tps=rate).encode())

    def _rate(self, group: str, topic: str) -> float:
        return self._stats.per_second(GROUP_GET_NUMS, f"{topic}{SEPARATOR}{group}")

    def _topics_to_show(self, header: GetConsumeStatsRequest) -> list[str]:
        """What was asked for, else all topics of the group; those it no longer subscribes to are left out."""
        if header.topic_list:
            return [topic for topic in header.topic_list.split(";") if topic]
        if header.topic:
            topics = {header.topic}
        else:
            topics = self._offsets.topics_of(header.consumer_group)
        state = self._clients.consumers(header.consumer_group)
        if state is not None and state.subscriptions:
            topics &= state.subscriptions.keys()
        return sorted(topics)

    def _topic_progress(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        config = self._topics.get(topic)
        broker = self._config.broker_name
        return {
            MessageQueue(topic, broker, queue_id): self._progress(group, topic, queue_id)
            for queue_id in range(config.read_queue_nums if config is not None else 0)
        }

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        store, offsets = self._store, self._offsets
        consumed = max(0, offsets.query(group, topic, queue_id) or 0)
        pulled = offsets.pulled(group, topic, queue_id) or 0
        stored_ms = store.store_time(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=max(0, store.max_offset(topic, queue_id)),
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled),
            last_timestamp=max(0, stored_ms),
        )

    def broker_stats(self, _connection: ServerConnection, command: Command) -> Answer:
        """How far every group is in every topic; with ``isOrder`` only in ordered topics."""
        only_order = GetBrokerConsumeStatsRequest.from_ext(command.ext).is_order
        listed: list[dict[str, list[ConsumeStats]]] = []
        behind = 0
        for group in self._groups:
            progress = []
            for topic in self._topics_to_show(GetConsumeStatsRequest(consumer_group=group.group_name)):
                if only_order and not self._topics.is_order(topic):
                    continue
                stats = ConsumeStats(
                    offset_table=self._topic_progress(group.group_name, topic),
                    consume_tps=self._rate(group.group_name, topic),
                )
                behind += sum(p.broker_offset - p.consumer_offset for p in stats.offset_table.values())
                progress.append(stats)
            listed.append({group.group_name: progress})
        body = ConsumeStatsList(consume_stats_list=listed, broker_addr=self._address, total_diff=behind)
        return command.reply(body=body.encode())

    def topics_of(self, _connection: ServerConnection, command: Command) -> Answer:
        """The topics in which a group has committed offsets."""
        group = QueryTopicsByConsumerRequest.from_ext(command.ext).group
        topics = self._offsets.topics_of(group)
        return command.reply(body=TopicList(topic_list=topics, broker_addr=self._address).encode())

    def subscription(self, _connection: ServerConnection, command: Command) -> Answer:
        """What a group subscribes to in a topic."""
        header = QuerySubscriptionByConsumerRequest.from_ext(command.ext)
        body = QuerySubscriptionResponseBody(
            group=header.group,
            topic=header.topic or "",
            subscription_data=self._clients.subscription(header.group, header.topic or ""),
        )
        return command.reply(body=body.encode())
