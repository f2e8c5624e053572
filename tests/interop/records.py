"""Records as a broker serves them: the bytes of pull responses."""

from __future__ import annotations

import struct

from benchmarks.remoting import PULL_MESSAGE, Client
from tests.interop.world import check, equal


def read_queue(client: Client, topic: str, queue: int) -> list[bytes]:
    """All records of a queue as they stand in pull responses."""
    end = client.max_offset(topic, queue)
    records: list[bytes] = []
    while len(records) < end:
        fields = {
            "consumerGroup": "disk_reader",
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(len(records)),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        }
        body = client.request(PULL_MESSAGE, fields).body
        found = split_records(body)
        check(found, f"no records at offset {len(records)} of {topic} {queue}, of {end}")
        for number, record in enumerate(found, len(records)):
            offset = struct.unpack_from(">q", record, 20)[0]
            equal(offset, number, f"queue offset inside a record of {topic} {queue}")
        records += found
    return records


def split_records(body: bytes) -> list[bytes]:
    records, at = [], 0
    while at < len(body):
        size = struct.unpack_from(">i", body, at)[0]
        records.append(body[at : at + size])
        at += size
    return records
