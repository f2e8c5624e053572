"""What the fast lane and its caller share: answers, columns, constant texts, and its tables."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from orbitmq.wire.command import PROTOCOL_VERSION, Language

# Why ``Lane.feed`` stopped.
DONE = 0
ORDINARY = 1
NEED_ROOM = 2
DRAIN = 3
NEED_INDEX = 4

# Columns of a topic.
T_NAME_AT = 0
T_NAME_LENGTH = 1
T_READ_QUEUES = 2
T_WRITE_QUEUES = 3
T_ROWS_AT = 4
T_WIDTH = 5

# Columns of a permitted pull: the name is ``group 0x00 topic``.
G_NAME_AT = 0
G_NAME_LENGTH = 1
G_TOPIC = 2
G_FILTER_AT = 3
G_FILTER_COUNT = 4
G_VERSION = 5  # of the registered subscription; a request with a newer one is left to the handler
G_WIDTH = 6
NO_SUBSCRIPTION = -2  # the group has registered none: the request must bring its own
ALL_TAGS = -1

EVENT_WIDTH = 4  # pull row, queue id, offset to commit or -1, offset after the pull

SEND_FIELDS = {
    "producerGroup": 0,
    "topic": 1,
    "defaultTopic": 2,
    "defaultTopicQueueNums": 3,
    "queueId": 4,
    "sysFlag": 5,
    "bornTimestamp": 6,
    "flag": 7,
    "properties": 8,
    "reconsumeTimes": 9,
    "unitMode": 10,
    "maxReconsumeTimes": 11,
    "batch": 12,
    "bname": 13,
}

PULL_FIELDS = {
    "consumerGroup": 0,
    "topic": 1,
    "queueId": 2,
    "queueOffset": 3,
    "maxMsgNums": 4,
    "sysFlag": 5,
    "commitOffset": 6,
    "subscription": 7,
    "expressionType": 8,
    "maxMsgBytes": 9,
    "suspendTimeoutMillis": 10,
    "subVersion": 11,
    "requestSource": 10,
    "bname": 10,
}

RESERVED_PROPERTIES = (
    "DELAY",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_OUT_MS",
    "TRAN_MSG",
    "RETRY_TOPIC",
    "REAL_TOPIC",
    "REAL_QID",
    "INNER_MULTI_DISPATCH",
    "INNER_NUM",
    "INNER_BASE",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
    "POP_CK",
    "__CRC32#",
)


def _field(name: str, value: str = "") -> bytes:
    """A binary header field; with an empty value the length is filled in later."""
    return struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()


def texts(*, region: str, trace_on: bool, cluster: str, store_host: bytes) -> dict[str, Any]:
    """Constant parts of responses and stored properties for ``Lane``, in the order of its ``TEXT_`` numbers.

    Args:
        region, trace_on, cluster: what this broker adds to each message (MSG_REGION, TRACE_ON, CLUSTER); the
            broker's configuration has checked that they need no escape.
        store_host: address and port as they stand in a record.
    """
    trace = "true" if trace_on else "false"
    language = Language.PYTHON
    end = f',"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
    opaque = f'"}},"flag":1,"language":"{language.name}","opaque":'
    parts = (
        b"UNIQ_KEY\x01",
        f"MSG_REGION\x01{region}\x02TRACE_ON\x01{trace}\x02CLUSTER\x01{cluster}\x02".encode(),
        store_host.hex().upper().encode(),
        f'{{"code":0,"extFields":{{"MSG_REGION":"{region}","TRACE_ON":"{trace}","msgId":"'.encode(),
        b'","queueId":"',
        b'","queueOffset":"',
        b'","transactionId":"',
        opaque.encode(),
        end.encode(),
        _field("MSG_REGION", region) + _field("TRACE_ON", trace) + _field("msgId"),
        _field("queueId"),
        _field("queueOffset"),
        _field("transactionId"),
        b'{"code":0,"extFields":{"maxOffset":"',
        b'","minOffset":"',
        b'","nextBeginOffset":"',
        f'","suggestWhichBrokerId":"0{opaque}'.encode(),
        f',"remark":"FOUND"{end}'.encode(),
        _field("maxOffset"),
        _field("minOffset"),
        _field("nextBeginOffset"),
        _field("suggestWhichBrokerId", "0"),
    )
    bounds = [0]
    for part in parts:
        bounds.append(bounds[-1] + len(part))
    return {
        "text": b"".join(parts),
        "parts": bounds,
        "language": int(language),
        "version": PROTOCOL_VERSION,
    }


def topic_table(
    topics: list[tuple[bytes, int, int, list[int]]],
) -> tuple[bytes, array[int], array[int], int]:
    """Arguments of ``Lane.set_topics`` from (name, read queues, write queues, rows) of each topic."""
    names = bytearray(b"\0")
    table = array("q")
    rows = array("q")
    for name, read_queues, write_queues, topic_rows in topics:
        table.extend((len(names), len(name), read_queues, write_queues, len(rows)))
        names += name
        rows.extend(topic_rows)
    rows.append(0)
    table.extend([0] * T_WIDTH)
    return bytes(names), table, rows, len(topics)


def pull_table(
    pulls: list[tuple[bytes, bytes, int, int, int, int]],
) -> tuple[bytes, array[int], int]:
    """Arguments of ``Lane.set_pulls`` from (group, topic, topic number, filter place and count, version)."""
    names = bytearray(b"\0")
    table = array("q")
    for group, topic, number, filter_at, filter_count, version in pulls:
        name = group + b"\0" + topic
        table.extend((len(names), len(name), number, filter_at, filter_count, version))
        names += name
    table.extend([0] * G_WIDTH)
    return bytes(names), table, len(pulls)
