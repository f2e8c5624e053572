"""Clients: heartbeats, who is online, queue locks (ClientManageProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.messaging import filters
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message import reserved
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import (
    CheckClientRequestBody,
    Connection,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionGroupConfig,
    UnlockBatchRequestBody,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Language
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import (
    GetConsumerConnectionListRequest,
    GetConsumerListByGroupRequest,
    GetProducerConnectionListRequest,
    UnregisterClientRequest,
)


class ClientHandlers(Family):
    """Heartbeats and what follows from them."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clients: ClientManager,
        locks: QueueLocks,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._locks = locks

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def heart_beat(self, connection: ServerConnection, command: Command) -> Answer:
        """Note who is there; the answer says whether the subscriptions are to be sent again."""
        data = HeartbeatData.decode(command.body)
        client = Client(connection, data.client_id, command.language, command.version)
        changed = False
        for consumer in data.consumer_data_set:
            changed |= self._consumer(client, consumer, data)
        for producer in data.producer_data_set:
            self._clients.register_producer(producer.group_name, client)
        ask_again = changed or not data.heartbeat_fingerprint
        return command.reply(
            ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if ask_again else "false"}
        )

    def _consumer(self, client: Client, data: ConsumerData, heartbeat: HeartbeatData) -> bool:
        if self._config.reject_pull_consumer and data.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        group = self._groups.find(data.group_name)
        if group is None:
            return False
        self._topics.create_if_absent(
            reserved.retry_topic(data.group_name),
            group.retry_queue_nums,
            order=any(self._topics.is_order(sub.topic) for sub in data.subscription_data_set),
            sys_flag=reserved.TOPIC_FLAG_UNIT_SUB if data.unit_mode else 0,
        )
        fingerprint = heartbeat.heartbeat_fingerprint
        return self._clients.register_consumer(
            client,
            data,
            notify=self._tells_members(group),
            fingerprint=fingerprint,
            with_sub=not (fingerprint and heartbeat.without_sub),
        )

    def unregister(self, connection: ServerConnection, command: Command) -> Answer:
        """A client leaves a producer group, a consumer group or both."""
        header = UnregisterClientRequest.from_ext(command.ext)
        group = self._groups.get(header.consumer_group or "")
        self._clients.unregister(
            connection,
            producer_group=header.producer_group,
            consumer_group=header.consumer_group,
            notify=group is None or self._tells_members(group),
        )
        return command.reply()

    def _tells_members(self, group: SubscriptionGroupConfig) -> bool:
        return self._config.notify_consumer_ids_changed and group.notify_consumer_ids_changed_enable

    def check_config(self, _connection: ServerConnection, command: Command) -> Answer:
        """Whether we can filter by the client's expression."""
        data = CheckClientRequestBody.decode(command.body).subscription_data
        if data is not None and not filters.is_supported(data.expression_type):
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        return command.reply()

    def consumer_list(self, _connection: ServerConnection, command: Command) -> Answer:
        """The client ids of a group, for rebalancing."""
        group = GetConsumerListByGroupRequest.from_ext(command.ext).consumer_group
        state = self._clients.consumers(group)
        if state is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=state.client_ids)
        return command.reply(body=body.encode())

    def consumer_connections(self, _connection: ServerConnection, command: Command) -> Answer:
        """Who consumes for a group, and what."""
        group = GetConsumerConnectionListRequest.from_ext(command.ext).consumer_group
        state = self._clients.consumers(group)
        if state is None:
            raise RemotingError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = ConsumerConnection(
            connection_set=[_shown(client) for client in state.members.values()],
            subscription_table=dict(state.subscriptions),
            consume_type=state.consume_type,
            message_model=state.message_model,
            consume_from_where=state.consume_from_where,
        )
        return command.reply(body=body.encode())

    def producer_connections(self, _connection: ServerConnection, command: Command) -> Answer:
        """Who produces for a group."""
        group = GetProducerConnectionListRequest.from_ext(command.ext).producer_group
        clients = self._clients.producers(group)
        if not clients:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(connection_set=[_shown(client) for client in clients])
        return command.reply(body=body.encode())

    def all_producers(self, _connection: ServerConnection, command: Command) -> Answer:
        """Every producer by group."""
        table = {
            group: [
                ProducerInfo(
                    client_id=client.client_id,
                    remote_ip=client.peer.remote_address,
                    language=_language(client.language),
                    version=client.version,
                    last_update_timestamp=client.seen_ms,
                )
                for client in clients
            ]
            for group, clients in self._clients.producer_groups().items()
        }
        return command.reply(body=ProducerTableInfo(data=table).encode())

    def lock(self, _connection: ServerConnection, command: Command) -> Answer:
        """Lock queues for an orderly consumer."""
        request = LockBatchRequestBody.decode(command.body)
        held = self._locks.lock(request.consumer_group, request.client_id, request.mq_set)
        return command.reply(body=LockBatchResponseBody(lock_ok_mq_set=set(held)).encode())

    def unlock(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give locked queues back."""
        request = UnlockBatchRequestBody.decode(command.body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return command.reply()


def _shown(client: Client) -> Connection:
    return Connection(
        client_id=client.client_id,
        client_addr=client.peer.remote_address,
        language=_language(client.language),
        version=client.version,
    )


def _language(number: int) -> str:
    return Language(number).name if number in Language.__members__.values() else Language.OTHER.name
