"""Registers clients by their heartbeats, and removes them when they leave (ClientManageProcessor)."""

from __future__ import annotations

from collections.abc import Awaitable

from orbitmq.broker.clients.registry import Client, ClientManager, Peer
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.registration import Registration
from orbitmq.message import reserved
from orbitmq.wire.bodies.client import ConsumerData, ConsumeType, HeartbeatData
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.errors import RemotingError


class Heartbeats:
    """Registers clients by their heartbeats; the first one of a consumer group makes its retry topic."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clients: ClientManager,
        registration: Registration,
    ) -> None:
        self._registration = registration
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients

    def take(self, client: Client, heartbeat: HeartbeatData) -> bool:
        """Register the client's groups; returns whether it has to send its subscriptions again.

        Raises:
            RemotingError: ILLEGAL_OPERATION, with ``strictSubscription`` a consumer contradicts another
                member of its group. The other groups of the heartbeat are registered.
        """
        changed = False
        refused: RemotingError | None = None
        for consumer in heartbeat.consumer_data_set:
            try:
                changed |= self._take_consumer(client, consumer, heartbeat)
            except RemotingError as error:
                refused = refused or error
        for producer in heartbeat.producer_data_set:
            self._clients.register_producer(producer.group_name, client)
        if refused is not None:
            raise refused
        return changed or not heartbeat.heartbeat_fingerprint

    def announced(self, heartbeat: HeartbeatData) -> Awaitable[None] | None:
        """Wait until the name servers have the retry topics of the groups; ``None``: they have them already.

        A client fetches the route after its heartbeat, and then every 30 s. If a broker were missing in the
        first route, its retries would be consumed 30 s late.
        """
        topics = [reserved.retry_topic(consumer.group_name) for consumer in heartbeat.consumer_data_set]
        return None if self._registration.is_announced(topics) else self._registration.announced(topics)

    def _take_consumer(self, client: Client, data: ConsumerData, heartbeat: HeartbeatData) -> bool:
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
            notify=self._notifies_members(group),
            fingerprint=fingerprint,
            with_sub=not (fingerprint and heartbeat.without_sub),
            strict=self._config.strict_subscription,
        )

    def leave(self, peer: Peer, *, producer_group: str | None, consumer_group: str | None) -> None:
        """Remove a client that leaves from a producer group, a consumer group or both."""
        group = self._groups.get(consumer_group or "")
        self._clients.unregister(
            peer,
            producer_group=producer_group,
            consumer_group=consumer_group,
            notify=group is None or self._notifies_members(group),
        )

    def _notifies_members(self, group: SubscriptionGroupConfig) -> bool:
        return self._config.notify_consumer_ids_changed and group.notify_consumer_ids_changed_enable
