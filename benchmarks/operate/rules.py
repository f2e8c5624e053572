"""A thousand users with rules and ten thousand topics: their memory, and the cost of a changed rule."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from benchmarks import keys, many_topics
from benchmarks.operate.model import Found, Line, Place, Row, middle
from benchmarks.operate.sides import Side, ask, cpu_s, fields_of, signed
from benchmarks.remoting import Client
from benchmarks.servers import Server

from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.signing import Credentials

USERS, TOPICS = 1_000, 10_000
FEW_USERS, FEW_TOPICS = 100, 1_000
ENTRIES: Final = 10
USED: Final = 10
"""Number of topics that each user sends to. They include the last topic, so that each user's table has a byte
for every topic.
"""
SETTLED_S = 2.0
LINES = (
    Line(
        "memory",
        "RssAnon of 1,000 users, each with 10 rules, a connection and sends to 10 topics",
        "MB",
        most=100,
    ),
    Line("change", "CPU of a changed rule, its file and the next request included", "ms", most=50),
    Line("late", "requests that passed after the rule forbade them", "requests", most=0),
)


def take(place: Place) -> Mapping[str, Found]:
    """All figures of the row."""
    users, topics = (FEW_USERS, FEW_TOPICS) if place.short else (USERS, TOPICS)
    more = {"maxConnectionsPerAddress": str(2 * USERS)}
    with (
        Side(place.folder, place.apart(), {**keys.ON, **more}, cpus=place.server_cpus, signs=True) as side,
        side.working() as broker,
        Client(broker.port, timeout_s=60) as root,
        contextlib.ExitStack() as open_ones,
    ):
        for number in range(topics):
            ask(root, RequestCode.UPDATE_AND_CREATE_TOPIC, fields_of(many_topics.name(number)))
        time.sleep(SETTLED_S)
        before = broker.anonymous_mb()
        everybody = [Credentials(f"user{number}", f"secret of {number}") for number in range(users)]
        for number, user in enumerate(everybody):
            _make(root, user, f"secret of {number}")
        used = [many_topics.name(topics - 1 - n * (topics // USED)) for n in range(USED)]
        clients = [open_ones.enter_context(Client(broker.port, timeout_s=60)) for _ in everybody]
        for user, client in zip(everybody, clients, strict=True):
            for topic in used:
                for _ in range(2):
                    _send(client, user, topic, ResponseCode.SUCCESS)
        time.sleep(SETTLED_S)
        grown = broker.anonymous_mb()
        changes = list(_changes(broker, root, everybody, clients, used[0], place.rounds(25, 5)))
    return {
        "memory": Found(
            grown - before, made_of=f"{users:,} users, {topics:,} topics: {grown:.1f} MB - {before:.1f} MB"
        ),
        "change": middle([cost for cost, _ in changes]),
        "late": Found(sum(late for _, late in changes), made_of=f"of {len(changes)} changes"),
    }


def _changes(
    broker: Server, root: Client, users: list[Credentials], clients: list[Client], topic: str, count: int
) -> Iterator[tuple[float, bool]]:
    """For each change, its CPU time in milliseconds, and whether a request passed that should be refused."""
    for number in range(count):
        user, client = users[number], clients[number]
        _send(client, user, topic, ResponseCode.SUCCESS)
        begin = cpu_s(broker.pid)
        _rule(root, RequestCode.AUTH_UPDATE_ACL, user, [_entry(f"Topic:{topic}", "Deny")])
        late = _sent(client, user, topic) != ResponseCode.NO_PERMISSION
        time.sleep(0.3)  # time for asynchronous writes
        yield (cpu_s(broker.pid) - begin) * 1000, late


def _entry(resource: str, decision: str = "Allow") -> dict[str, Any]:
    return {"resource": resource, "actions": ["Pub", "Sub"], "decision": decision}


def _make(root: Client, user: Credentials, password: str) -> None:
    info = {"username": user.access_key, "password": password, "userType": "Normal"}
    fields = {"username": user.access_key}
    ask(root, RequestCode.AUTH_CREATE_USER, fields, json.dumps(info).encode())
    entries = [_entry("Topic:growth_*")]
    entries += [_entry(f"Group:{user.access_key}-{number}") for number in range(ENTRIES - 1)]
    _rule(root, RequestCode.AUTH_CREATE_ACL, user, entries)


def _rule(root: Client, code: int, user: Credentials, entries: list[dict[str, Any]]) -> None:
    subject = f"User:{user.access_key}"
    info = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    ask(root, code, {"subject": subject}, json.dumps(info).encode())


def _sent(client: Client, user: Credentials, topic: str) -> int:
    """The response code of a send."""
    send = keys.frames()["send"]
    command = signed(send.code, {**send.ext, "b": topic}, send.body, user)
    return client.ask(command.code, command.ext, command.body).code


def _send(client: Client, user: Credentials, topic: str, expected: int) -> None:
    code = _sent(client, user, topic)
    if code != expected:
        raise RuntimeError(f"a send of {user.access_key} to {topic} was answered with {code}")


ROW = Row("rules", "1,000 users with rules, 10,000 topics", LINES, take)
