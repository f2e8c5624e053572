"""Users x requests x resources at Apache's broker and at ours: who is refused, and each difference."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tests.interop.secured_cells import ACL_2, ROOT, secured
from tests.interop.world import CellError, Place, World, check, equal

from orbitmq import Credentials
from orbitmq.admin import Admin
from orbitmq.runtime import system_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import RequestTimeoutError
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

SECRET: Final = "secret-of-user-1"
# Rules by user: resource, actions, whether they are allowed.
RULES: Final[dict[str, list[tuple[str, str, bool]]]] = {
    "everything": [("*", "All", True)],
    "producer": [("Topic:orders", "Pub", True)],
    "consumer": [("Topic:orders", "Sub", True), ("Group:billing", "Sub", True)],
    "looker": [("Topic:orders", "Get", True), ("Group:billing", "Get", True), ("Cluster:*", "Get", True)],
    "changer": [
        ("Topic:orders", "Create,Update,Delete", True),
        ("Group:billing", "Create,Update,Delete", True),
        ("Cluster:*", "Update", True),
    ],
    "fenced": [("Topic:*", "All", True), ("Group:*", "All", True), ("Topic:orders", "All", False)],
    "without rules": [],
    "disabled": [("*", "All", True)],
}
# A user, a request, and a topic; empty: the broker.
What: TypeAlias = tuple[str, Code, str]
PLACES: Final = (("orders", "billing"), ("invoices", "other"))


@dataclass(frozen=True)
class Asked:
    """A request of a user."""

    code: Code
    fields: dict[str, Any]
    body: Any = None

    def command(self) -> Command:
        fields = {name: str(value) for name, value in self.fields.items()}
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return Command(self.code, fields, b"" if self.body is None else body)


def _sent(topic: str) -> dict[str, Any]:
    names = "abcdefghijkl"
    values = ("producers", topic, "TBW102", 4, 0, 0, 1, 0, "", 0, "false", "false")
    return dict(zip(names, values, strict=True))


def requests(topic: str, group: str) -> Iterator[Asked]:
    """One request of each kind, about a topic and a group; deletions come last."""
    both = {"topic": topic, "consumerGroup": group}
    queue = {**both, "queueId": 0}
    mine = {"clientId": "rights", "consumerGroup": group}
    queues = [{"topic": topic, "brokerName": "x", "queueId": 0}]
    subscription = {"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 0}
    consumers = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    pulled = {"queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    popped = {"maxMsgNums": 1, "invisibleTime": 10_000, "pollTime": 0, "bornTime": 0, "initMode": 0}
    yield Asked(Code.SEND_MESSAGE_V2, _sent(topic), b"x")
    yield Asked(Code.PULL_MESSAGE, {**queue, **pulled, "subscription": "*", "subVersion": 0})
    yield Asked(Code.POP_MESSAGE, {**queue, **popped, "order": "false"})
    yield Asked(Code.ACK_MESSAGE, {**queue, "offset": 0, "extraInfo": "0 0 1000 0 0 broker-a 0 0"})
    heartbeat = {"clientID": "rights", "producerDataSet": [], "consumerDataSet": [consumers]}
    yield Asked(Code.HEART_BEAT, {}, heartbeat)
    yield Asked(Code.LOCK_BATCH_MQ, {}, {**mine, "mqSet": queues})
    yield Asked(Code.UNLOCK_BATCH_MQ, {}, {**mine, "mqSet": queues})
    yield Asked(
        Code.QUERY_ASSIGNMENT,
        {},
        {**both, "clientId": "rights", "strategyName": "AVG", "messageModel": "CLUSTERING"},
    )
    yield Asked(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    yield Asked(Code.QUERY_CONSUMER_OFFSET, queue)
    yield Asked(Code.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": 0})
    yield Asked(
        Code.QUERY_MESSAGE, {"topic": topic, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}
    )
    yield Asked(Code.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": topic, "queueId": 0, "timestamp": 0})
    for code in (Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME):
        yield Asked(code, {"topic": topic, "queueId": 0})
    yield Asked(Code.GET_TOPIC_CONFIG, {"topic": topic})
    yield Asked(Code.GET_TOPIC_STATS_INFO, {"topic": topic})
    yield Asked(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    yield Asked(Code.GET_CONSUME_STATS, both)
    yield Asked(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    yield Asked(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    yield Asked(Code.QUERY_TOPICS_BY_CONSUMER, {"group": group})
    yield Asked(Code.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group})
    yield Asked(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"topic": topic, "group": group, "readable": "true"})
    yield Asked(
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": topic, "group": group, "timestamp": 0, "isForce": "true", "queueId": 0, "offset": 0},
    )
    yield Asked(
        Code.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        },
    )
    yield Asked(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": group})
    yield Asked(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": group})
    yield Asked(Code.DELETE_TOPIC_IN_BROKER, {"topic": topic})


OF_BROKER: Final = (
    Asked(Code.GET_BROKER_CONFIG, {}),
    Asked(Code.GET_BROKER_RUNTIME_INFO, {}),
    Asked(Code.GET_ALL_TOPIC_CONFIG, {}),
    Asked(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
    Asked(Code.GET_ALL_CONSUMER_OFFSET, {}),
    Asked(Code.GET_ALL_DELAY_OFFSET, {}),
    Asked(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {}),
    Asked(Code.AUTH_LIST_USER, {"filter": ""}),
    Asked(Code.AUTH_LIST_ACL, {"subjectFilter": "", "resourceFilter": ""}),
    Asked(Code.AUTH_GET_USER, {"username": "producer"}),
    Asked(Code.AUTH_UPDATE_USER, {"username": "nobody-there"}, {"password": "another-1"}),
    Asked(Code.AUTH_DELETE_USER, {"username": "nobody-there"}),
    Asked(Code.AUTH_DELETE_ACL, {"subject": "User:nobody-there"}),
    Asked(Code.AUTH_CREATE_USER, {"username": "anew"}, {"password": "another-1", "userType": "Super"}),
)

_NO_RESOURCE: Final = "names no resource there, so Apache's broker serves every user; here Get of the cluster"
_IN_BODY: Final = "Apache's broker does not look for topic and group in the body"
# Requests that some users are refused here and not there, each with the reason. The reverse never happens.
STRICTER: Final[dict[Code, str]] = {
    Code.GET_BROKER_CONFIG: "names no resource there, so Apache's broker serves every user; here super users",
    Code.GET_BROKER_RUNTIME_INFO: _NO_RESOURCE,
    Code.GET_ALL_TOPIC_CONFIG: _NO_RESOURCE,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _NO_RESOURCE,
    Code.GET_ALL_CONSUMER_OFFSET: _NO_RESOURCE,
    Code.GET_ALL_DELAY_OFFSET: _NO_RESOURCE,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _NO_RESOURCE,
    Code.QUERY_ASSIGNMENT: _IN_BODY,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _IN_BODY,
}


_STRANGERS: Final[dict[str, Credentials | None]] = {
    "wrong secret": Credentials("everything", "another-secret"),
    "unknown": Credentials("nobody", SECRET),
    "no keys": None,
}
# Few: an address that goes on with wrong signatures is slowed here.
_OF_STRANGERS: Final = frozenset({Code.GET_BROKER_CONFIG, Code.SEND_MESSAGE_V2})


async def _prepared(place: Place) -> None:
    async with Admin(place.ns, credentials=ROOT) as admin:
        for topic, group in PLACES:
            await admin.topics.create(topic, queues=1)
            await admin.groups.create(group)
        for user, rules in RULES.items():
            name = user.replace(" ", "-")
            await admin.access.create_user(name, SECRET)
            for resource, actions, allows in rules:
                await admin.access.set_rule(name, resource, actions.split(","), allows=allows)
        await admin.access.change_user("disabled", is_enabled=False)


async def _is_refused(client: RemotingClient, place: Place, asked: Asked, what: What) -> bool:
    try:
        answer = await client.request(place.broker.address, asked.command(), 20_000)
    except RequestTimeoutError as error:
        raise CellError(f"{what}: {error}") from error
    return answer.code == ResponseCode.NO_PERMISSION


async def _table(place: Place) -> dict[What, bool]:
    """Whether each request is refused for want of keys or rights."""
    await _prepared(place)
    users: dict[str, Credentials | None] = {
        "super": ROOT,
        **{user: Credentials(user.replace(" ", "-"), SECRET) for user in RULES},
        **_STRANGERS,
    }
    found: dict[What, bool] = {}
    clients = {
        user: RemotingClient(system_runtime(), identity=Identity(keys)) for user, keys in users.items()
    }
    asked = [("", one) for one in OF_BROKER]
    asked += [(topic, one) for topic, group in PLACES for one in requests(topic, group)]
    try:
        for topic, one in asked:
            for user, client in clients.items():
                if user in _STRANGERS and one.code not in _OF_STRANGERS:
                    continue
                what = user, one.code, topic
                found[what] = await _is_refused(client, place, one, what)
    finally:
        for client in clients.values():
            await client.close()
    return found


def rights(world: World) -> None:
    """The same users with the same rules are refused the same."""
    tables = []
    for kind in ("apache", "ours"):
        with secured(world, kind, ACL_2) as place:
            tables.append(asyncio.run(_table(place)))
    theirs, ours = tables
    stricter = {what for what in theirs if ours[what] and not theirs[what]}
    laxer = sorted(what for what in theirs if theirs[what] and not ours[what])
    check(not laxer, f"served here and refused there: {'; '.join(map(str, laxer))}")
    unlisted = sorted(what for what in stricter if what[1] not in STRICTER)
    check(not unlisted, f"refused here and served there: {'; '.join(map(str, unlisted))}")
    equal({code for _, code, _ in stricter}, set(STRICTER), "the requests that are refused more often here")


CELLS: Final[dict[str, Callable[[World], None]]] = {"users, requests and resources": rights}
