"""Plain sends and what they left behind, without a client program: quick, and to the broker that is meant."""

from __future__ import annotations

import time
from collections import Counter

from benchmarks.remoting import Answer, Client
from tests.interop.records import read_queue

from orbitmq.message.record import decode_record

SEND_MESSAGE = 10


def send(client: Client, topic: str, body: bytes, *, queue: int = 0, **properties: str) -> Answer:
    """Send one message to a queue; the answer, whatever its code."""
    fields = {
        "producerGroup": "interop",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1",
        "queueId": str(queue),
        "sysFlag": "0",
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "0",
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    return client.ask(SEND_MESSAGE, fields, body)


def bodies(client: Client, topic: str, queue: int = 0) -> Counter[bytes]:
    """How often each body is in a queue."""
    return Counter(decode_record(record).body for record in read_queue(client, topic, queue))
