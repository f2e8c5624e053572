"""A small blocking client, independent of OrbitMQ's, for preparing and inspecting measured servers."""

from __future__ import annotations

import json
import socket
import struct
from typing import NamedTuple

UPDATE_AND_CREATE_TOPIC = 17
UPDATE_AND_CREATE_GROUP = 200
GET_MAX_OFFSET = 30
GET_BROKER_RUNTIME_INFO = 28
HEART_BEAT = 34
PULL_MESSAGE = 11
GET_ROUTE = 105
GET_BROKER_CLUSTER_INFO = 106

PULL_HAS_SUBSCRIPTION = 4

_WORD = struct.Struct(">ii")


class Answer(NamedTuple):
    """A response: its code (0 is success), header fields, remark and body."""

    code: int
    ext: dict[str, str]
    remark: str | None
    body: bytes


class RequestError(Exception):
    """The server answered with a code other than 0."""

    def __init__(self, request: int, answer: Answer) -> None:
        super().__init__(f"request {request} was answered with code {answer.code}: {answer.remark}")
        self.answer = answer


class Client:
    """One connection to one server; use it as a context manager.

    Args:
        port: TCP port on the loopback address.
        timeout_s: time limit of the connect and of each answer.
    """

    def __init__(self, port: int, *, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._opaque = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """Send one request with a JSON header and wait for its answer, whatever the answer's code."""
        self._opaque += 1
        header = json.dumps(
            {
                "code": code,
                "extFields": ext or {},
                "flag": 0,
                "language": "JAVA",
                "opaque": self._opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": 479,
            }
        ).encode()
        self._socket.sendall(_WORD.pack(4 + len(header) + len(body), len(header)) + header + body)
        while True:
            total, header_length = _WORD.unpack(self._read(8))
            content = self._read(total - 4)
            answer = json.loads(content[:header_length])
            if answer["flag"] & 1 and answer["opaque"] == self._opaque:
                fields = answer.get("extFields") or {}
                return Answer(answer["code"], fields, answer.get("remark"), content[header_length:])

    def request(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """As :meth:`ask`, but a code other than 0 raises :class:`RequestError`."""
        answer = self.ask(code, ext, body)
        if answer.code != 0:
            raise RequestError(code, answer)
        return answer

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic on this broker with this many read and write queues."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        self.request(UPDATE_AND_CREATE_TOPIC, fields)

    def create_group(self, group: str) -> None:
        """Create a consumer group on this broker."""
        body = {
            "groupName": group,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": 16,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        self.request(UPDATE_AND_CREATE_GROUP, body=json.dumps(body).encode())

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset after the last message of a queue."""
        answer = self.request(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
        return int(answer.ext["offset"])

    def subscribe_by_sql(self, group: str, topic: str, expression: str) -> None:
        """Join a group with an SQL92 subscription, for as long as this connection lasts."""
        data = {
            "topic": topic,
            "subString": expression,
            "expressionType": "SQL92",
            "subVersion": 1_700_000_000_000,
            "tagsSet": [],
            "codeSet": [],
            "classFilterMode": False,
        }
        member = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [data],
            "unitMode": False,
        }
        body = {"clientID": "bench@1", "consumerDataSet": [member], "producerDataSet": []}
        self.request(HEART_BEAT, body=json.dumps(body).encode())

    def pull(self, topic: str, queue_id: int, offset: int, count: int = 32) -> Answer:
        """One pull that does not wait for messages and commits nothing."""
        fields = {
            "consumerGroup": "bench",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count),
            "sysFlag": str(PULL_HAS_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "1700000000000",
            "expressionType": "TAG",
        }
        return self.ask(PULL_MESSAGE, fields)

    def _read(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = self._socket.recv(min(length, 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
