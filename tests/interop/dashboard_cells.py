"""The calls of Apache's dashboard: the same program at a broker of Apache's and at ours gets the same data.

Apache's dashboard uses 36 methods of ``DefaultMQAdminExt``. ``java/Calls.java`` calls them and
``queryConsumeTimeSpan``, with right and with wrong arguments, at brokers that require keys (users and rules
are among the calls), and says the results as data. There are messages, some of them delayed, refused once, or
dead letters, and a consumer that is online. Addresses, ids and times are masked; what else may differ is in
:data:`DIFFERENT`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.interop.secured_cells import ACL_2, ROOT, secured
from tests.interop.world import Place, World, check, equal

from orbitmq.admin import Admin

Call = list[Any]
TOPIC, GROUP, TIMEOUT_MS = "dashboard", "dashboard_group", 10_000
# One queue each: of messages that wait or have waited, that were refused once, that are dead letters.
LATER, RETRIED, DEAD = "dashboard_later", "dashboard_retried", "dashboard_dead"
_SINGLE = (LATER, RETRIED, DEAD)
DEAD_GROUP = f"{DEAD}_group"
DEAD_LETTERS = f"%DLQ%{DEAD_GROUP}"
_COMMITTED = {TOPIC, DEAD, f"%RETRY%{GROUP}", f"%RETRY%{DEAD_GROUP}"}
TWO_HOURS = 18  # the delay level
METHODS = frozenset(
    (
        "consumeMessageDirectly",
        "createAcl",
        "createAndUpdateSubscriptionGroupConfig",
        "createAndUpdateTopicConfig",
        "createUser",
        "deleteAcl",
        "deleteSubscriptionGroup",
        "deleteTopicInBroker",
        "deleteTopicInNameServer",
        "deleteUser",
        "examineBrokerClusterInfo",
        "examineConsumeStats",
        "examineConsumerConnectionInfo",
        "examineProducerConnectionInfo",
        "examineSubscriptionGroupConfig",
        "examineTopicConfig",
        "examineTopicRouteInfo",
        "examineTopicStats",
        "fetchAllTopicList",
        "fetchBrokerRuntimeStats",
        "getAllSubscriptionGroup",
        "getAllTopicConfig",
        "getBrokerConfig",
        "getConsumerRunningInfo",
        "getUser",
        "listAcl",
        "listUser",
        "messageTrackDetail",
        "queryConsumeTimeSpan",
        "queryMessage",
        "queryTopicConsumeByWho",
        "resetOffsetByTimestamp",
        "resetOffsetByTimestampOld",
        "updateAcl",
        "updateUser",
        "viewBrokerStatsData",
        "viewMessage",
    )
)
_MASKS = (
    (re.compile(r"\d+\.\d+\.\d+\.\d+:\d+"), "ADDRESS"),
    (re.compile(r"\d+\.\d+\.\d+\.\d+@"), "HOST@"),
    (re.compile(r"\b([0-9A-F]{32}|[0-9A-F]{56})\b"), "ID"),
    (re.compile(r"\b1[78]\d{11}\b"), "MILLIS"),
    (re.compile(r"(\$\$Lambda\S*)?@[0-9a-f]{4,8}\b"), "@OBJECT"),
)


@dataclass
class Talk:
    """What one place said to each call."""

    world: World
    place: Place
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """Of Java programs: where the name server is, and the keys."""
        secret = ROOT.secret_key
        keys = {"ak": ROOT.access_key, "sk": secret if isinstance(secret, str) else secret.reveal()}
        return {"ns": self.place.ns, **keys}

    def call(self, *calls: Call) -> list[Any]:
        """The result of each call; kept for the comparison."""
        results = self.ask(*calls)
        for call, result in zip(calls, results, strict=True):
            words = masked_text(" ".join(str(word) for word in call))
            self.said[f"{len(self.said):02} {words}"] = result
        return results

    def ask(self, *calls: Call) -> list[Any]:
        """The result of each call."""
        facts = self.world.facts("Calls", calls=json.dumps(calls), **self.options)
        return [json.loads(fact["json"])[0] for fact in facts]


def masked_text(text: str) -> str:
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return text


# Differences that stay, by the path of the value (call, then names within the result), each with its reason.
DIFFERENT = (
    (
        re.compile(r"\d+ (fetchBrokerRuntimeStats|getBrokerConfig) .*"),
        "`mqadmin more` compares them",
    ),
    (re.compile(r"\d+ examineTopicConfig \S+ no_such_topic / message"), "our remark also names the broker"),
    (re.compile(r"\d+ (getUser|listUser) .* / password"), "no answer of ours shows a secret"),
    (
        re.compile(rf"\d+ \w+ (%RETRY%|{LATER}).* / (__DELIVERY_OF|storeSize)"),
        "a delivery of ours names what it delivers",
    ),
    (
        re.compile(r"\d+ \w+ %DLQ%.* / (DLQ_ORIGIN_\w+|REAL_QID|REAL_TOPIC|storeSize)"),
        "a dead letter of ours names its origin, and not where it waited last",
    ),
    (
        re.compile(r"\d+ queryConsumeTimeSpan %DLQ%.* / delayTime"),
        "of a group without an offset Apache's is the time since 1970",
    ),
    (
        re.compile(r"\d+ getAllSubscriptionGroup .* / another_group"),
        "Apache's broker makes a group that is asked to consume a message",
    ),
    (
        re.compile(r"\d+ examineConsumeStats \S+ %RETRY%.*"),
        "a group that is deleted keeps its offsets of a retry topic that exists",
    ),
)
# Topics that Apache's broker has for transactions kept in RocksDB, which is not here.
ROCKSDB = "RMQ_SYS_ROCKSDB_"
# Names whose values are times or counters of the place.
VOLATILE = frozenset(
    (
        "commitLogOffset",
        "consumeTimestamp",
        "dataVersion",
        "lastUpdateTimestamp",
        "spentTimeMills",
        "timestamp",
        "version",
    )
)


def masked(value: Any, name: str = "") -> Any:
    """The value without addresses, ids, times and rates."""
    if name in VOLATILE:
        return "..."
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not key.startswith(ROCKSDB)}
        return {masked_text(key): masked(each, key) for key, each in kept.items()}
    if isinstance(value, list):
        return [masked(each) for each in value if not str(each).startswith(ROCKSDB)]
    if isinstance(value, float):
        return "N.NN"
    if isinstance(value, int) and value > 1 << 40:
        return "MILLIS"
    return masked_text(value) if isinstance(value, str) else value


def differences(theirs: Any, ours: Any, path: str) -> list[str]:
    """Where two results differ, each with both values."""
    if any(pattern.fullmatch(path) for pattern, _ in DIFFERENT):
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name in sorted(theirs.keys() | ours.keys()):
            found += differences(theirs.get(name, "absent"), ours.get(name, "absent"), f"{path} / {name}")
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [
            line
            for number, (there, here) in enumerate(zip(theirs, ours, strict=True))
            for line in differences(there, here, f"{path} / {number}")
        ]
    return [] if theirs == ours else [f"{path}: Apache {theirs}, ours {ours}"]


def talk(world: World, kind: str) -> dict[str, Any]:
    """All calls at a place of this kind."""
    with secured(world, kind, ACL_2) as place:
        spoken = Talk(world, place)
        _create(spoken)
        with _messages(spoken) as ids:
            _look_at_messages(spoken, ids)
            _read(spoken)
        _users_and_rules(spoken)
        _delete(spoken)
        return spoken.said


def _create(spoken: Talk) -> None:
    broker = spoken.place.broker.address
    topic = {"topicName": TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    spoken.call(
        ["createAndUpdateTopicConfig", broker, topic],
        ["createAndUpdateTopicConfig", broker, {**topic, "topicName": "bad topic"}],
        ["createAndUpdateTopicConfig", broker, {**topic, "topicName": "TBW102"}],
        ["createAndUpdateSubscriptionGroupConfig", broker, {"groupName": GROUP, "retryMaxTimes": 5}],
        ["createAndUpdateSubscriptionGroupConfig", broker, {"groupName": "bad group"}],
        ["examineTopicConfig", broker, TOPIC],
        ["examineTopicConfig", broker, "no_such_topic"],
        ["examineSubscriptionGroupConfig", broker, GROUP],
        ["examineSubscriptionGroupConfig", broker, "no_such_group"],
    )


@dataclass(frozen=True)
class Ids:
    """Messages by the ids that brokers gave them, and by those that their producers gave them.

    Attributes:
        six: of those in the topic that a consumer has read.
        later: of one that has waited, one that waits, one that waits for a timer.
        retried: of one that was refused once.
        dead: of one that is a dead letter.
    """

    six: list[tuple[str, str]]
    later: list[tuple[str, str]]
    retried: tuple[str, str]
    dead: tuple[str, str]


@contextmanager
def _messages(spoken: Talk) -> Iterator[Ids]:
    """Messages of all kinds, and while it lasts a consumer of the group."""
    # The consumer finds its retry topic at its start, not with the next look at routes.
    names = (*_SINGLE, f"%RETRY%{GROUP}")
    topics = [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in names]
    spoken.ask(*(["createAndUpdateTopicConfig", spoken.place.broker.address, topic] for topic in topics))

    def sent(topic: str, count: int = 1, **more: object) -> list[tuple[str, str]]:
        facts = spoken.world.facts("Send", topic=topic, how="orderly", count=count, **more, **spoken.options)
        return [(fact["offset_id"], fact["id"]) for fact in facts if fact["fact"] == "sent"]

    def receiver(topic: str, group: str, **more: object) -> Any:
        return spoken.world.java("Receive", topic=topic, group=group, seconds=300, **more, **spoken.options)

    later = [
        *sent(LATER, delay=1),
        *sent(LATER, delay=TWO_HOURS),
        *sent(LATER, timer=7_200_000),
    ]
    ids = Ids(sent(TOPIC, 6), later, sent(RETRIED)[0], sent(DEAD)[0])
    with ExitStack() as stack:
        online = stack.enter_context(receiver(TOPIC, GROUP, count=100))
        with (
            receiver(RETRIED, f"{RETRIED}_group", count=1, refuse=1) as retried,
            receiver(DEAD, DEAD_GROUP, count=1, refuse=9, retries=1, level=1),
        ):
            for _ in ids.six:
                online.wait_for("received")
            retried.wait_for("done")
            asyncio.run(_settled(spoken.place))
        yield ids


async def _settled(place: Place) -> None:
    """Wait until the dead letter is there, the delayed message too, and the offsets are committed."""
    async with Admin(place.ns, credentials=ROOT) as admin:
        for _ in range(240):
            letters = (await admin.dead_letters.show(DEAD_GROUP)).found
            waited = (await admin.topics.status(LATER)).found
            lags = [queue for group in (GROUP, DEAD_GROUP) for queue in (await admin.groups.lag(group)).found]
            committed = {queue.queue.topic for queue in lags if not queue.lag}
            if letters.count and waited[0].max_offset and committed >= _COMMITTED:
                return
            await asyncio.sleep(0.5)
    check(False, "no dead letter, no delayed message, or no offsets after two minutes")


def _look_at_messages(spoken: Talk, ids: Ids) -> None:
    """Messages by their ids and keys, who has consumed them, and a consumer that is online."""
    offset_id, unique_id = ids.six[0]
    connections = spoken.call(["examineConsumerConnectionInfo", GROUP])[0]
    client = connections["connectionSet"][0]["clientId"]
    beyond, within = (
        f"{offset_id[:16]}00000000FFFFFFFF",
        f"{offset_id[:16]}{int(offset_id[16:], 16) + 4:016X}",
    )
    found = spoken.call(
        ["viewMessage", TOPIC, offset_id],
        ["viewMessage", TOPIC, unique_id],
        ["viewMessage", TOPIC, beyond],
        ["viewMessage", TOPIC, within],
        ["viewMessage", "another_topic", offset_id],
        *(["viewMessage", LATER, one] for each in ids.later for one in each),
        *(["viewMessage", RETRIED, one] for one in ids.retried),
        *(["viewMessage", DEAD, one] for one in ids.dead),
        ["queryMessage", TOPIC, "key-0", 32, 0, 1_900_000_000_000],
        ["queryMessage", LATER, "key-0", 32, 0, 1_900_000_000_000],
        ["queryMessage", RETRIED, "key-0", 32, 0, 1_900_000_000_000],
        ["queryMessage", f"%RETRY%{RETRIED}_group", "key-0", 32, 0, 1_900_000_000_000],
        ["queryMessage", DEAD_LETTERS, "key-0", 32, 0, 1_900_000_000_000],
        ["viewMessage", DEAD_LETTERS, ids.dead[1]],
        ["messageTrackDetail", {"result": 0}],
        ["messageTrackDetail", {"result": 1}],
        ["queryConsumeTimeSpan", TOPIC, GROUP],
        ["queryConsumeTimeSpan", DEAD_LETTERS, DEAD_GROUP],
        ["queryConsumeTimeSpan", "no_such_topic", GROUP],
        ["examineTopicStats", DEAD_LETTERS],
        ["examineConsumeStats", DEAD_GROUP],
        ["examineConsumeStats", f"{RETRIED}_group"],
        ["getConsumerRunningInfo", GROUP, client, False],
        ["consumeMessageDirectly", GROUP, client, TOPIC, offset_id],
        ["consumeMessageDirectly", GROUP, client, TOPIC, unique_id],
        ["consumeMessageDirectly", GROUP, "no_such_client", TOPIC, offset_id],
        ["consumeMessageDirectly", "another_group", client, TOPIC, offset_id],
    )
    # The field has the broker's id, whatever id was asked for.
    equal([one.get("msgId") for one in found[:2]], [offset_id] * 2, "a message by both of its ids")


def _read(spoken: Talk) -> None:
    """Calls about topics and groups, and about names that nobody uses."""
    broker = spoken.place.broker.address
    spoken.call(
        ["examineBrokerClusterInfo"],
        ["fetchAllTopicList"],
        ["examineTopicRouteInfo", TOPIC],
        ["examineTopicRouteInfo", "no_such_topic"],
        ["examineTopicStats", TOPIC],
        ["examineTopicStats", "no_such_topic"],
        ["getAllTopicConfig", broker, TIMEOUT_MS],
        ["getAllSubscriptionGroup", broker, TIMEOUT_MS],
        ["queryTopicConsumeByWho", TOPIC],
        ["queryTopicConsumeByWho", "no_such_topic"],
        ["examineConsumeStats", GROUP],
        ["examineConsumeStats", GROUP, TOPIC],
        ["examineConsumeStats", "no_such_group"],
        ["examineConsumerConnectionInfo", "no_such_group"],
        ["examineProducerConnectionInfo", "no_such_group", TOPIC],
        ["getConsumerRunningInfo", GROUP, "no_such_client", False],
        ["queryMessage", TOPIC, "no_such_key", 32, 0, 1_900_000_000_000],
        ["viewMessage", TOPIC, "no_such_id"],
        ["viewBrokerStatsData", broker, "TOPIC_PUT_NUMS", "no_such_topic"],
        ["fetchBrokerRuntimeStats", broker],
        ["getBrokerConfig", broker],
        ["consumeMessageDirectly", GROUP, "no_such_client", TOPIC, "no_such_id"],
        ["resetOffsetByTimestamp", TOPIC, GROUP, 0, True],
        ["resetOffsetByTimestamp", TOPIC, "no_such_group", 0, True],
        ["resetOffsetByTimestampOld", GROUP, TOPIC, 0, True],
        ["resetOffsetByTimestampOld", GROUP, "no_such_topic", 0, True],
    )


def _users_and_rules(spoken: Talk) -> None:
    broker = spoken.place.broker.address
    alice = {"username": "alice", "password": "secret-of-alice", "userType": "Normal"}
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub", "Sub"], "sourceIps": [], "decision": "Allow"}
    rules = {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    fewer = {**rules, "policies": [{"policyType": "Custom", "entries": [{**entry, "actions": ["Sub"]}]}]}
    spoken.call(
        ["createUser", broker, alice],
        ["createUser", broker, alice],
        ["getUser", broker, "alice"],
        ["getUser", broker, "bob"],
        ["updateUser", broker, {**alice, "userStatus": "disable"}],
        ["updateUser", broker, {**alice, "username": "bob"}],
        ["listUser", broker, ""],
        ["listUser", broker, "ali"],
        ["listUser", broker, "nobody"],
        ["createAcl", broker, rules],
        ["createAcl", broker, {**rules, "subject": "User:bob"}],
        ["listAcl", broker, "", ""],
        ["listAcl", broker, "alice", ""],
        ["listAcl", broker, "", TOPIC],
        ["updateAcl", broker, fewer],
        ["listAcl", broker, "User:alice", ""],
        ["deleteAcl", broker, "User:alice", f"Topic:{TOPIC}"],
        ["listAcl", broker, "", ""],
        ["deleteAcl", broker, "User:alice", ""],
        ["deleteUser", broker, "alice"],
        ["deleteUser", broker, "alice"],
        ["listUser", broker, ""],
    )


def _delete(spoken: Talk) -> None:
    broker, names = spoken.place.broker.address, spoken.place.ns
    spoken.call(
        ["deleteSubscriptionGroup", broker, GROUP, True],
        ["deleteSubscriptionGroup", broker, "no_such_group", True],
        ["deleteTopicInBroker", [broker], TOPIC],
        ["deleteTopicInBroker", [broker], "no_such_topic"],
        ["deleteTopicInNameServer", [names], TOPIC],
        ["deleteTopicInNameServer", [names], "no_such_topic"],
        ["examineTopicRouteInfo", TOPIC],
        ["examineConsumeStats", GROUP, f"%RETRY%{GROUP}"],
    )


def calls(world: World) -> None:
    """Each call gives the same data here as at Apache's broker."""
    theirs, ours = talk(world, "apache"), talk(world, "ours")
    equal({name.split()[1] for name in ours}, METHODS, "methods that were called")
    found = []
    for name, result in theirs.items():
        found += differences(masked(result), masked(ours[name]), name)
    check(not found, "; ".join(found))


CELLS: dict[str, Callable[[World], None]] = {"calls of the dashboard": calls}
