"""The calls of Apache's dashboard: the same program at a broker of Apache's and at ours gets the same data.

Apache's dashboard uses 36 methods of ``DefaultMQAdminExt``. ``java/Calls.java`` calls 35 of them, with right
and with wrong arguments, at brokers that ask for keys (users and rules are among the calls), and says the
results as data. There are no messages and no clients: ``messageTrackDetail`` is left out, and calls that
reach a client end in an error. Addresses, ids and times are masked; what else may differ is in
:data:`DIFFERENT`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.interop.secured_cells import ACL_2, ROOT, secured
from tests.interop.world import Place, World, check, equal

Call = list[Any]
TOPIC, GROUP, TIMEOUT_MS = "dashboard", "dashboard_group", 10_000
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
)


@dataclass
class Talk:
    """What one place said to each call."""

    world: World
    place: Place
    said: dict[str, Any] = field(default_factory=dict)

    def call(self, *calls: Call) -> list[Any]:
        """The result of each call; kept for the comparison."""
        results = self.ask(*calls)
        for call, result in zip(calls, results, strict=True):
            words = masked_text(" ".join(str(word) for word in call))
            self.said[f"{len(self.said):02} {words}"] = result
        return results

    def ask(self, *calls: Call) -> list[Any]:
        """The result of each call."""
        secret = ROOT.secret_key
        facts = self.world.facts(
            "Calls",
            ns=self.place.ns,
            ak=ROOT.access_key,
            sk=secret if isinstance(secret, str) else secret.reveal(),
            calls=json.dumps(calls),
        )
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
)
# Topics that Apache's broker has for transactions kept in RocksDB, which is not here.
ROCKSDB = "RMQ_SYS_ROCKSDB_"
# Names whose values are times or counters of the place.
VOLATILE = frozenset(("dataVersion", "lastUpdateTimestamp", "timestamp", "version"))


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


def _read(spoken: Talk) -> None:
    """Calls about topics and groups that nobody uses; those that reach a client end in an error."""
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
        ["examineConsumeStats", GROUP],
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
