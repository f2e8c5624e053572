"""Our broker registers what changed: what a name server of Apache's then knows of all its topics."""

from __future__ import annotations

import json
import time

from benchmarks.remoting import GET_ROUTE, Client
from tests.interop.world import CellError, Place, World, equal

TOPICS = 40
KNOWN_WITHIN_S = 20.0


def queues(place: Place, topic: str) -> int:
    """How many queues can be written to, as the name server says; 0 when it does not know the topic."""
    with Client(place.name_server.port) as client:
        answer = client.ask(GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer.code:
        return 0
    return sum(int(data["writeQueueNums"]) for data in json.loads(answer.body)["queueDatas"])


def wait_for_queues(place: Place, topic: str, wanted: int) -> None:
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while (found := queues(place, topic)) != wanted:
        if time.monotonic() > deadline:
            raise CellError(f"{topic} has {found} queues at the name server, not {wanted}")
        time.sleep(0.1)


def changes(world: World, place: Place) -> None:
    """A new topic and a changed one are told by themselves, and no other is forgotten."""
    names = [world.fresh("registered") for _ in range(TOPICS)]
    with place.client() as broker:
        for name in names:
            broker.create_topic(name, 2)
        wait_for_queues(place, names[-1], 2)
        broker.create_topic(names[0], 5)
        wait_for_queues(place, names[0], 5)
        late = world.fresh("registered")
        broker.create_topic(late, 3)
        wait_for_queues(place, late, 3)
    known = [queues(place, name) for name in [*names, late]]
    equal(known, [5, *[2] * (TOPICS - 1), 3], "queues of all topics at the name server")
