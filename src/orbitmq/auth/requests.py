"""What each request needs: the one table from request codes to topics, groups and actions.

A code that is not in it is for super users. Where the table asks more than Apache's brokers do, they let
anybody pass: a group is named by its retry topic, a message by its place in the log, a code without a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from orbitmq.auth.rules import Action, Asked, Kind
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.errors import HeaderError

PUB, SUB, CREATE, UPDATE, DELETE, GET = (
    Action.PUB,
    Action.SUB,
    Action.CREATE,
    Action.UPDATE,
    Action.DELETE,
    Action.GET,
)


@dataclass(frozen=True, slots=True)
class Place:
    """The facts of the broker that the table needs.

    Attributes:
        topic_at: the topic of the message at a commit log offset, ``None``: there is none.
    """

    cluster: str
    topic_at: Callable[[int], str | None]


Needs: TypeAlias = Callable[[Command, Place], Iterable[Asked]]


def _topic_asked(name: str, actions: tuple[Action, ...]) -> Asked:
    """A topic; the retry topic of a group is a matter of that group."""
    if name.startswith(RETRY_PREFIX):
        return Asked(Kind.GROUP, name.removeprefix(RETRY_PREFIX), actions)
    return Asked(Kind.TOPIC, name, actions)


def _group_asked(name: str, actions: tuple[Action, ...]) -> Asked:
    return Asked(Kind.GROUP, name.removeprefix(RETRY_PREFIX), actions)


_ASKED = {Kind.TOPIC: _topic_asked, Kind.GROUP: _group_asked}


def _named(kind: Kind, field: str, *actions: Action, split: str = "", may_miss: bool = False) -> Needs:
    """A header field names a topic or a group, or several with ``split`` between them."""
    asked = _ASKED[kind]

    def needs(command: Command, _place: Place) -> Iterator[Asked]:
        value = command.ext.get(field)
        if value:
            for name in value.split(split) if split else (value,):
                if name:
                    yield asked(name, actions)
        elif not may_miss:
            raise _unusable(command, field, "is missing", f"a {kind.lower()}")

    return needs


def _topic(*actions: Action, field: str = "topic", may_miss: bool = False) -> Needs:
    return _named(Kind.TOPIC, field, *actions, may_miss=may_miss)


def _group(*actions: Action, field: str = "consumerGroup", may_miss: bool = False) -> Needs:
    return _named(Kind.GROUP, field, *actions, may_miss=may_miss)


def _all(*parts: Needs) -> Needs:
    def needs(command: Command, place: Place) -> Iterator[Asked]:
        return chain.from_iterable(part(command, place) for part in parts)

    return needs


def _cluster(*actions: Action) -> Needs:
    return lambda _command, place: (Asked(Kind.CLUSTER, place.cluster, actions),)


def _message(field: str, *actions: Action) -> Needs:
    """The topic of the message at the log offset in this field. Without a message the handler refuses."""

    def needs(command: Command, place: Place) -> Iterator[Asked]:
        value = command.ext.get(field, "")
        if not (value.isascii() and value.isdecimal() and len(value) < 20):
            raise _unusable(command, field, f"is {value[:80]!r}", "an offset")
        topic = place.topic_at(int(value))
        if topic is not None:
            yield _topic_asked(topic, actions)

    return needs


def _unusable(command: Command, field: str, what: str, expected: str) -> HeaderError:
    return HeaderError(f"request {command.code}: field '{field}' {what}; expected {expected}")


def _identity(_command: Command, _place: Place) -> Iterable[Asked]:
    """No right: any identity will do."""
    return ()


def _heart_beat(command: Command, _place: Place) -> Iterator[Asked]:
    for group in bodies.HeartbeatData.decode(command.body).consumer_data_set:
        yield _group_asked(group.group_name, (SUB,))
        for subscription in group.subscription_data_set:
            yield _topic_asked(subscription.topic, (SUB,))


def _queue_locks(command: Command, _place: Place) -> Iterator[Asked]:
    body = bodies.LockBatchRequestBody.decode(command.body)
    yield _group_asked(body.consumer_group, (SUB,))
    for topic in sorted({queue.topic for queue in body.mq_set}):
        yield _topic_asked(topic, (SUB,))


def _client_config(command: Command, _place: Place) -> Iterator[Asked]:
    body = bodies.CheckClientRequestBody.decode(command.body)
    yield _group_asked(body.group, (SUB,))
    if body.subscription_data is not None:
        yield _topic_asked(body.subscription_data.topic, (SUB,))


def _assignment(command: Command, _place: Place) -> Iterator[Asked]:
    body = bodies.QueryAssignmentRequestBody.decode(command.body)
    yield _group_asked(body.consumer_group, (SUB,))
    yield _topic_asked(body.topic, (SUB,))


def _request_mode(command: Command, _place: Place) -> Iterator[Asked]:
    body = bodies.SetMessageRequestModeRequestBody.decode(command.body)
    yield _group_asked(body.consumer_group, (UPDATE,))
    yield _topic_asked(body.topic, (UPDATE,))


def _batch_ack(command: Command, _place: Place) -> Iterator[Asked]:
    acks = bodies.BatchAckMessageRequestBody.decode(command.body).acks
    for group in sorted({ack.consumer_group for ack in acks}):
        yield _group_asked(group, (SUB,))
    for topic in sorted({ack.topic for ack in acks}):
        yield _topic_asked(topic, (SUB,))


def _new_topics(command: Command, _place: Place) -> Iterator[Asked]:
    for config in bodies.CreateTopicListRequestBody.decode(command.body).topic_config_list:
        yield _topic_asked(config.topic_name, (CREATE,))


def _new_group(command: Command, _place: Place) -> Iterator[Asked]:
    yield _group_asked(bodies.SubscriptionGroupConfig.decode(command.body).group_name, (CREATE,))


def _new_groups(command: Command, _place: Place) -> Iterator[Asked]:
    for config in bodies.SubscriptionGroupList.decode(command.body).group_config_list:
        yield _group_asked(config.group_name, (CREATE,))


def _sent(field: str) -> Needs:
    """Pub of the topic; a consumer that sends to the retry topic of its group needs Sub of the group."""

    def needs(command: Command, place: Place) -> Iterator[Asked]:
        actions = (SUB,) if command.ext.get(field, "").startswith(RETRY_PREFIX) else (PUB,)
        yield from _topic(*actions, field=field)(command, place)

    return needs


_CONSUMES = _all(_group(SUB), _topic(SUB))
_SENDS = _sent("b")
# Users and rules.
ACCESS: Final[dict[int, Needs]] = {
    Code.AUTH_CREATE_USER: _cluster(UPDATE),
    Code.AUTH_UPDATE_USER: _cluster(UPDATE),
    Code.AUTH_DELETE_USER: _cluster(UPDATE),
    Code.AUTH_GET_USER: _cluster(GET),
    Code.AUTH_LIST_USER: _cluster(GET),
    Code.AUTH_CREATE_ACL: _cluster(UPDATE),
    Code.AUTH_UPDATE_ACL: _cluster(UPDATE),
    Code.AUTH_DELETE_ACL: _cluster(UPDATE),
    Code.AUTH_GET_ACL: _cluster(GET),
    Code.AUTH_LIST_ACL: _cluster(GET),
}
REQUESTS: Final[dict[int, Needs]] = {
    **ACCESS,
    # Sending.
    Code.SEND_MESSAGE: _sent("topic"),
    Code.SEND_MESSAGE_V2: _SENDS,
    Code.SEND_BATCH_MESSAGE: _SENDS,
    Code.SEND_REPLY_MESSAGE: _sent("topic"),
    Code.SEND_REPLY_MESSAGE_V2: _SENDS,
    Code.RECALL_MESSAGE: _topic(PUB),
    Code.END_TRANSACTION: _message("commitLogOffset", PUB),
    # Names no topic: the connection's sends are checked one by one.
    Code.BIND_WRITER: _identity,
    # Consuming.
    Code.PULL_MESSAGE: _CONSUMES,
    Code.LITE_PULL_MESSAGE: _CONSUMES,
    Code.POP_MESSAGE: _CONSUMES,
    Code.PEEK_MESSAGE: _CONSUMES,
    Code.NOTIFICATION: _CONSUMES,
    Code.ACK_MESSAGE: _CONSUMES,
    Code.BATCH_ACK_MESSAGE: _batch_ack,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _CONSUMES,
    Code.CONSUMER_SEND_MSG_BACK: _all(_group(SUB, field="group"), _message("offset", SUB)),
    Code.HEART_BEAT: _heart_beat,
    Code.UNREGISTER_CLIENT: _group(SUB, may_miss=True),
    Code.CHECK_CLIENT_CONFIG: _client_config,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.LOCK_BATCH_MQ: _queue_locks,
    Code.UNLOCK_BATCH_MQ: _queue_locks,
    Code.GET_CONSUMER_LIST_BY_GROUP: _group(SUB, GET),
    Code.QUERY_CONSUMER_OFFSET: _all(_group(SUB, GET), _topic(SUB, GET)),
    Code.UPDATE_CONSUMER_OFFSET: _all(_group(SUB, UPDATE), _topic(SUB, UPDATE)),
    # Looking at a topic or a group.
    Code.QUERY_MESSAGE: _topic(SUB, GET),
    Code.VIEW_MESSAGE_BY_ID: _message("offset", GET),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _topic(GET),
    Code.GET_MAX_OFFSET: _topic(GET),
    Code.GET_MIN_OFFSET: _topic(GET),
    Code.GET_EARLIEST_MSG_STORETIME: _topic(GET),
    Code.GET_TOPIC_CONFIG: _topic(GET),
    Code.GET_TOPIC_STATS_INFO: _topic(GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _topic(GET),
    Code.QUERY_CONSUME_QUEUE: _all(_topic(GET), _group(GET, may_miss=True)),
    Code.QUERY_CONSUME_TIME_SPAN: _all(_group(GET, field="group"), _topic(GET)),
    Code.QUERY_CORRECTION_OFFSET: _all(
        _named(Kind.GROUP, "filterGroups", GET, split=",", may_miss=True),
        _group(GET, field="compareGroup"),
        _topic(GET),
    ),
    Code.POLLING_INFO: _all(_group(GET), _topic(GET)),
    Code.GET_CONSUME_STATS: _all(
        _group(GET),
        _topic(GET, may_miss=True),
        _named(Kind.TOPIC, "topicList", GET, split=";", may_miss=True),
    ),
    Code.GET_CONSUMER_CONNECTION_LIST: _group(GET),
    Code.GET_CONSUMER_RUNNING_INFO: _group(GET),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _group(GET, field="group"),
    Code.QUERY_TOPICS_BY_CONSUMER: _group(GET, field="group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _all(_group(GET, field="group"), _topic(GET, may_miss=True)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _all(_group(GET, field="group"), _topic(GET)),
    # Looking at the broker.
    Code.GET_ALL_TOPIC_CONFIG: _cluster(GET),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _cluster(GET),
    Code.GET_ALL_CONSUMER_OFFSET: _cluster(GET),
    Code.GET_ALL_DELAY_OFFSET: _cluster(GET),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _cluster(GET),
    Code.GET_TIMER_CHECK_POINT: _cluster(GET),
    Code.GET_TIMER_METRICS: _cluster(GET),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _cluster(GET),
    Code.GET_BROKER_RUNTIME_INFO: _cluster(GET),
    Code.GET_BROKER_HA_STATUS: _cluster(GET),
    Code.GET_BROKER_CONSUME_STATS: _cluster(GET),
    Code.GET_PRODUCER_CONNECTION_LIST: _cluster(GET),
    Code.GET_ALL_PRODUCER_INFO: _cluster(GET),
    Code.VIEW_BROKER_STATS_DATA: _cluster(GET),
    # Changing topics and groups.
    Code.UPDATE_AND_CREATE_TOPIC: _topic(CREATE),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _new_topics,
    Code.DELETE_TOPIC_IN_BROKER: _topic(DELETE),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _new_groups,
    Code.DELETE_SUBSCRIPTIONGROUP: _group(DELETE, field="groupName"),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _all(_group(UPDATE, field="group"), _topic(UPDATE)),
    Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _all(_group(UPDATE, field="group"), _topic(UPDATE)),
    Code.CLONE_GROUP_OFFSET: _all(
        _group(GET, field="srcGroup"), _group(UPDATE, field="destGroup"), _topic(UPDATE, may_miss=True)
    ),
}
