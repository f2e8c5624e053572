"""The one table of the rights that each request to a broker needs, by request code.

Only super users may make a request whose code is not in the table. In three cases Apache's brokers check
nothing and this table does: the request names a group by its retry topic, a message by its offset in the log,
or has a code without a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from orbitmq.auth.needs import (
    ACCESS,
    CREATE,
    DELETE,
    GET,
    PUB,
    SUB,
    UPDATE,
    Needs,
    all_of,
    group_asked,
    identity,
    named,
    of_cluster,
    of_group,
    of_topic,
    topic_asked,
    unusable,
)
from orbitmq.auth.rules import Action, Asked, ResourceKind
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The facts of the broker that the table needs.

    Attributes:
        topic_at: the topic of the message at a commit log offset; ``None`` without a message there.
    """

    cluster: str
    topic_at: Callable[[int], str | None]

    @property
    def clusters(self) -> tuple[str]:
        """The one cluster of the broker."""
        return (self.cluster,)


def _message(field: str, *actions: Action) -> Needs[BrokerFacts]:
    """Rights for the topic of the message at the log offset in this field. If there is no message, no right
    is needed, and the handler refuses the request."""

    def needs(command: Command, place: BrokerFacts) -> Iterator[Asked]:
        value = command.ext.get(field, "")
        if not (value.isascii() and value.isdecimal() and len(value) < 20):
            raise unusable(command, field, f"is {value[:80]!r}", "an offset")
        topic = place.topic_at(int(value))
        if topic is not None:
            yield topic_asked(topic, actions)

    return needs


def _heart_beat(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    for consumers in bodies.HeartbeatData.decode(command.body).consumer_data_set:
        yield group_asked(consumers.group_name, (SUB,))
        for subscription in consumers.subscription_data_set:
            yield topic_asked(subscription.topic, (SUB,))


def _queue_locks(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    body = bodies.LockBatchRequestBody.decode(command.body)
    yield group_asked(body.consumer_group, (SUB,))
    for topic in sorted({queue.topic for queue in body.mq_set}):
        yield topic_asked(topic, (SUB,))


def _client_config(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    body = bodies.CheckClientRequestBody.decode(command.body)
    yield group_asked(body.group, (SUB,))
    if body.subscription_data is not None:
        yield topic_asked(body.subscription_data.topic, (SUB,))


def _assignment(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    body = bodies.QueryAssignmentRequestBody.decode(command.body)
    yield group_asked(body.consumer_group, (SUB,))
    yield topic_asked(body.topic, (SUB,))


def _request_mode(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    body = bodies.SetMessageRequestModeRequestBody.decode(command.body)
    yield group_asked(body.consumer_group, (UPDATE,))
    yield topic_asked(body.topic, (UPDATE,))


def _batch_ack(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    acks = bodies.BatchAckMessageRequestBody.decode(command.body).acks
    for group in sorted({ack.consumer_group for ack in acks}):
        yield group_asked(group, (SUB,))
    for topic in sorted({ack.topic for ack in acks}):
        yield topic_asked(topic, (SUB,))


def _new_topics(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    for config in bodies.CreateTopicListRequestBody.decode(command.body).topic_config_list:
        yield topic_asked(config.topic_name, (CREATE,))


def _new_group(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    yield group_asked(bodies.SubscriptionGroupConfig.decode(command.body).group_name, (CREATE,))


def _new_groups(command: Command, _place: BrokerFacts) -> Iterator[Asked]:
    for config in bodies.SubscriptionGroupList.decode(command.body).group_config_list:
        yield group_asked(config.group_name, (CREATE,))


def _sent(field: str) -> Needs[BrokerFacts]:
    """Pub for the topic; a consumer that sends to the retry topic of its group needs Sub for the group."""

    def needs(command: Command, place: BrokerFacts) -> Iterator[Asked]:
        actions = (SUB,) if command.ext.get(field, "").startswith(RETRY_PREFIX) else (PUB,)
        yield from of_topic(*actions, field=field)(command, place)

    return needs


_CONSUMES: Final = all_of(of_group(SUB), of_topic(SUB))
_SENDS: Final = _sent("b")
REQUESTS: Final[dict[int, Needs[BrokerFacts]]] = {
    **ACCESS,
    # Sending.
    Code.SEND_MESSAGE: _sent("topic"),
    Code.SEND_MESSAGE_V2: _SENDS,
    Code.SEND_BATCH_MESSAGE: _SENDS,
    Code.SEND_REPLY_MESSAGE: _sent("topic"),
    Code.SEND_REPLY_MESSAGE_V2: _SENDS,
    Code.RECALL_MESSAGE: of_topic(PUB),
    Code.END_TRANSACTION: _message("commitLogOffset", PUB),
    # BIND_WRITER names no topic; the sends of its connection are checked one by one.
    Code.BIND_WRITER: identity,
    # Consuming.
    Code.PULL_MESSAGE: _CONSUMES,
    Code.LITE_PULL_MESSAGE: _CONSUMES,
    Code.POP_MESSAGE: _CONSUMES,
    Code.PEEK_MESSAGE: _CONSUMES,
    Code.NOTIFICATION: _CONSUMES,
    Code.ACK_MESSAGE: _CONSUMES,
    Code.BATCH_ACK_MESSAGE: _batch_ack,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _CONSUMES,
    Code.CONSUMER_SEND_MSG_BACK: all_of(of_group(SUB, field="group"), _message("offset", SUB)),
    Code.HEART_BEAT: _heart_beat,
    Code.UNREGISTER_CLIENT: of_group(SUB, may_miss=True),
    Code.CHECK_CLIENT_CONFIG: _client_config,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.LOCK_BATCH_MQ: _queue_locks,
    Code.UNLOCK_BATCH_MQ: _queue_locks,
    Code.GET_CONSUMER_LIST_BY_GROUP: of_group(SUB, GET),
    Code.QUERY_CONSUMER_OFFSET: all_of(of_group(SUB, GET), of_topic(SUB, GET)),
    Code.UPDATE_CONSUMER_OFFSET: all_of(of_group(SUB, UPDATE), of_topic(SUB, UPDATE)),
    # Reading the state of a topic or a group.
    Code.QUERY_MESSAGE: of_topic(SUB, GET),
    Code.VIEW_MESSAGE_BY_ID: _message("offset", GET),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: of_topic(GET),
    Code.GET_MAX_OFFSET: of_topic(GET),
    Code.GET_MIN_OFFSET: of_topic(GET),
    Code.GET_EARLIEST_MSG_STORETIME: of_topic(GET),
    Code.GET_TOPIC_CONFIG: of_topic(GET),
    Code.GET_TOPIC_STATS_INFO: of_topic(GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: of_topic(GET),
    Code.QUERY_CONSUME_QUEUE: all_of(of_topic(GET), of_group(GET, may_miss=True)),
    Code.QUERY_CONSUME_TIME_SPAN: all_of(of_group(GET, field="group"), of_topic(GET)),
    Code.QUERY_CORRECTION_OFFSET: all_of(
        named(ResourceKind.GROUP, "filterGroups", GET, split=",", may_miss=True),
        of_group(GET, field="compareGroup"),
        of_topic(GET),
    ),
    Code.POLLING_INFO: all_of(of_group(GET), of_topic(GET)),
    Code.GET_CONSUME_STATS: all_of(
        of_group(GET),
        of_topic(GET, may_miss=True),
        named(ResourceKind.TOPIC, "topicList", GET, split=";", may_miss=True),
    ),
    Code.GET_CONSUMER_CONNECTION_LIST: of_group(GET),
    Code.GET_CONSUMER_RUNNING_INFO: of_group(GET),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: of_group(GET, field="group"),
    Code.QUERY_TOPICS_BY_CONSUMER: of_group(GET, field="group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: all_of(of_group(GET, field="group"), of_topic(GET, may_miss=True)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: all_of(of_group(GET, field="group"), of_topic(GET)),
    # Reading the state of the broker.
    Code.GET_ALL_TOPIC_CONFIG: of_cluster(GET),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: of_cluster(GET),
    Code.GET_ALL_CONSUMER_OFFSET: of_cluster(GET),
    Code.GET_ALL_DELAY_OFFSET: of_cluster(GET),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: of_cluster(GET),
    Code.GET_TIMER_CHECK_POINT: of_cluster(GET),
    Code.GET_TIMER_METRICS: of_cluster(GET),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: of_cluster(GET),
    Code.GET_BROKER_RUNTIME_INFO: of_cluster(GET),
    Code.GET_BROKER_HA_STATUS: of_cluster(GET),
    Code.GET_BROKER_CONSUME_STATS: of_cluster(GET),
    Code.GET_PRODUCER_CONNECTION_LIST: of_cluster(GET),
    Code.GET_ALL_PRODUCER_INFO: of_cluster(GET),
    Code.VIEW_BROKER_STATS_DATA: of_cluster(GET),
    # Changing topics and groups.
    Code.UPDATE_AND_CREATE_TOPIC: of_topic(CREATE),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _new_topics,
    Code.DELETE_TOPIC_IN_BROKER: of_topic(DELETE),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _new_groups,
    Code.DELETE_SUBSCRIPTIONGROUP: of_group(DELETE, field="groupName"),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: all_of(of_group(UPDATE, field="group"), of_topic(UPDATE)),
    Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: all_of(of_group(UPDATE, field="group"), of_topic(UPDATE)),
    Code.CLONE_GROUP_OFFSET: all_of(
        of_group(GET, field="srcGroup"), of_group(UPDATE, field="destGroup"), of_topic(UPDATE, may_miss=True)
    ),
}
