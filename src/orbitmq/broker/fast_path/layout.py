"""Numbers that the fast path and its caller share: answers, constant texts, and the columns of its tables."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orbitmq.store import MessageFilter
from orbitmq.wire.command import PROTOCOL_VERSION, Language

# Why ``FastFrames.feed`` stopped.
DONE = 0
ORDINARY = 1
NEED_ROOM = 2
DRAIN = 3
NEED_INDEX = 4
PARK = 5
IN_PLACE = 6
HANDLED = -1  # inside of the fast path: continue with the next frame

# Work that ``FastFrames.feed`` leaves to its caller, as bits.
LEFT_NOW = 1  # responses that may go out
LEFT_LATER = 2  # responses that wait for the log
LEFT_COMMITS = 4  # offsets that pulls commit, or more notes of pulls than are kept
LEFT_RECORDS = 8  # records to write, of this chunk or an earlier one

INT_BAD = -(1 << 62)  # the result of ``wire.scan`` for text that is not a number

# Where a row's name is, in every table.
ROW_AT = 0
ROW_LENGTH = 1

# Columns of a topic.
T_READ_QUEUES = 2
T_WRITE_QUEUES = 3
T_SLOTS_AT = 4
T_WIDTH = 5

# Columns of a permitted pull: the name is ``group 0x00 topic``.
G_TOPIC = 2
G_CODES_AT = 3
G_CODES_COUNT = 4
G_VERSION = 5  # of the registered subscription; a request with a newer version is left to the handler
G_TOPIC_FLAG = 6
G_GROUP_FLAG = 7
G_WIDTH = 8
NO_TOPIC = 0  # the row in the table of topics that has no queues
NO_SUBSCRIPTION = -2  # the group has registered no subscription: the request must bring its own

# Columns of an expression of tags that requests bring along: the row's name is the expression's text.
X_CODES_AT = 2
X_CODES_COUNT = 3
X_WIDTH = 4

# A note: pull row, queue id, offset to commit or -1, offsets before the first pull and after the last, bytes.
NOTE_WIDTH = 6
MAX_NOTES = 256
MAX_UNIQUE_KEY = 128
MAX_SLOTS = 22  # slots of header fields

# Fields of any request: those of its signature, and those that clients of 5.x add and no handler reads.
COMMON_FIELDS = {
    "AccessKey": 14,
    "Signature": 15,
    "SecurityToken": 16,
    "ns": 17,
    "nsd": 18,
    "ReqT": 19,
    "__ZONE_NAME": 20,
    "__ZONE_MODE": 21,
}
# Kinds of requests, by the order in which their fields are signed.
SIGNED_SEND = 0
SIGNED_SEND_V2 = 1
SIGNED_PULL = 2

_SEND_FIELDS = {
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
SEND_FIELDS = _SEND_FIELDS | COMMON_FIELDS
SEND_V2_FIELDS = {chr(ord("a") + slot): slot for slot in _SEND_FIELDS.values()} | COMMON_FIELDS

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
    "requestSource": 12,
    "bname": 13,
} | COMMON_FIELDS

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
    "__STARTDELIVERTIME",
    "POP_CK",
    "POP_REVIVED_FROM",
    "__DELIVERY_OF",
    "__CRC32#",
)


def _field(name: str, value: str = "") -> bytes:
    """A binary header field; with an empty value the length is filled in later."""
    return struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()


@dataclass(frozen=True, slots=True)
class Texts:
    """The constant parts of the fast path's responses and records.

    Attributes:
        text, bounds: all parts of responses one behind the other, and where each begins and ends.
        language, version: this broker's, in a binary response header.
        added: the properties that the broker adds to each single message.
    """

    text: bytes
    bounds: list[int]
    language: int
    version: int
    added: bytes


def texts(*, region: str, trace_on: bool, cluster: str, store_host: bytes) -> Texts:
    """The texts of one broker, in the order of the numbers in ``responses``.

    Args:
        region, trace_on, cluster: the values added to each message (MSG_REGION, TRACE_ON, CLUSTER); the
            broker's configuration has checked that they need no escape.
        store_host: address and port as they stand in a record.
    """
    trace = "true" if trace_on else "false"
    language = Language.PYTHON
    end = f',"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
    opaque = f'"}},"flag":1,"language":"{language.name}","opaque":'
    parts = (
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
        b'{"code":0,"extFields":{"groupSysFlag":"',
        b'","maxOffset":"',
        b'","minOffset":"',
        b'","nextBeginOffset":"',
        b'","suggestWhichBrokerId":"0","topicSysFlag":"',
        opaque.encode(),
        f',"remark":"FOUND"{end}'.encode(),
        b"FOUND",
        _field("groupSysFlag"),
        _field("maxOffset"),
        _field("minOffset"),
        _field("nextBeginOffset"),
        _field("topicSysFlag"),
        _field("suggestWhichBrokerId", "0"),
    )
    bounds = [0]
    for part in parts:
        bounds.append(bounds[-1] + len(part))
    added = f"MSG_REGION\x01{region}\x02TRACE_ON\x01{trace}\x02CLUSTER\x01{cluster}\x02".encode()
    return Texts(b"".join(parts), bounds, int(language), PROTOCOL_VERSION, added)


@dataclass(frozen=True, slots=True)
class PermittedPull:
    """A pull that the fast path may answer.

    Attributes:
        topic_number: row of the topic in the table of topics.
        filter: which messages pass; not used unless ``registered``.
        registered: whether the filter comes from the group's heartbeats, in ``version``; otherwise each
            request has its own.
    """

    group: bytes
    topic: bytes
    topic_number: int
    filter: MessageFilter
    registered: bool
    version: int
    topic_flag: int
    group_flag: int

    @property
    def name(self) -> bytes:
        return self.group + b"\0" + self.topic

    def columns(self, codes_at: int) -> list[int]:
        """The row's numbers; the tags codes that it filters by are at ``codes_at``."""
        count = self.filter.count if self.registered else NO_SUBSCRIPTION
        return [self.topic_number, codes_at, count, self.version, self.topic_flag, self.group_flag]
