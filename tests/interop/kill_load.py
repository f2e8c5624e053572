"""Sends and commits that are under way when a broker is killed, and what of them it must have kept."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from benchmarks.remoting import Client, RequestError
from benchmarks.servers import Server
from tests.interop.records import read_queue
from tests.interop.world import check, equal

from orbitmq.message.record import decode_record

SEND_MESSAGE_V2, UPDATE_CONSUMER_OFFSET, QUERY_CONSUMER_OFFSET = 310, 15, 14
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
QUERY_NOT_FOUND = 22
QUEUES = 4
LEAST_SENDS = 200


@dataclass
class _Sender:
    """What one connection did with its own queue: one send, then one commit, at a time."""

    queue: int
    tried: list[bytes] = field(default_factory=list)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    commits: list[tuple[float, int]] = field(default_factory=list)  # when it was answered, and the offset
    asked: int = 0


class Load:
    """Four senders on a topic of their own, from the start of the block until the broker is killed in it."""

    def __init__(self, port: int, topic: str, group: str) -> None:
        self._port = port
        self._topic = topic
        self._group = group
        self._killed = 0.0
        self._senders = [_Sender(queue) for queue in range(QUEUES)]
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in self._senders]

    def __enter__(self) -> Self:
        with Client(self._port) as client:
            client.create_topic(self._topic, QUEUES)
            group = json.dumps({"groupName": self._group}).encode()
            client.request(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._killed = time.monotonic()
        for thread in self._threads:
            thread.join(30)
            check(not thread.is_alive(), "a sender did not see its broker go")

    def _run(self, sender: _Sender) -> None:
        place = {"topic": self._topic, "queueId": str(sender.queue), "consumerGroup": self._group}
        try:
            with Client(self._port) as client:
                while True:
                    body = b"%d-%d" % (sender.queue, len(sender.tried))
                    sender.tried.append(body)
                    offset = int(client.request(SEND_MESSAGE_V2, self._send(sender), body).ext["queueOffset"])
                    sender.acknowledged[offset] = body
                    sender.asked = offset + 1
                    client.request(UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": str(sender.asked)})
                    sender.commits.append((time.monotonic(), sender.asked))
        except (OSError, RequestError):
            return  # killed; too few sends show that it was something else

    def _send(self, sender: _Sender) -> dict[str, str]:
        born = str(int(time.time() * 1000))
        values = ("killed", self._topic, "TBW102", str(QUEUES), str(sender.queue), "0", born, "0", "")
        return dict(zip("abcdefghi", values, strict=True))

    def kept(self, broker: Server, saved_every_s: float, who: str) -> None:
        """The broker, started again, has every acknowledged message where it said, and each once.

        Args:
            saved_every_s: a commit older than this is not lost; later ones bound what is consumed twice.
        """
        with Client(broker.port, timeout_s=30) as client:
            for sender in self._senders:
                self._check(client, sender, saved_every_s, f"of queue {sender.queue} {who}")

    def _check(self, client: Client, sender: _Sender, saved_every_s: float, who: str) -> None:
        check(len(sender.acknowledged) >= LEAST_SENDS, f"only {len(sender.acknowledged)} sends {who}")
        bodies = [decode_record(record).body for record in read_queue(client, self._topic, sender.queue)]
        found = {offset: bodies[offset] for offset in sender.acknowledged if offset < len(bodies)}
        equal(found, sender.acknowledged, f"acknowledged messages {who}")
        equal(len(set(bodies)), len(bodies), f"different messages {who}")
        equal(set(bodies) - set(sender.tried), set(), f"messages that nobody sent {who}")
        # Sent one at a time and never again: at most the last one is there without an answer.
        check(len(bodies) - len(sender.acknowledged) in (0, 1), f"{len(bodies)} messages {who}")
        answer = client.ask(
            QUERY_CONSUMER_OFFSET,
            {"topic": self._topic, "consumerGroup": self._group, "queueId": str(sender.queue)},
        )
        committed = int(answer.ext["offset"]) if answer.code == 0 else 0
        safe = max(
            (offset for when, offset in sender.commits if when < self._killed - saved_every_s), default=0
        )
        check(
            safe <= committed <= sender.asked,
            f"the committed offset {who} is {committed}, not between {safe} and {sender.asked}",
        )
