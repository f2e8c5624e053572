"""The bodies about pop consumption: queue assignment, check points and acknowledgements."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies.base import Body, named
from orbitmq.wire.bodies.client import MessageModel
from orbitmq.wire.errors import BodyError

__all__ = [
    "AckMsg",
    "BatchAck",
    "BatchAckMessageRequestBody",
    "BatchAckMsg",
    "MessageQueueAssignment",
    "MessageRequestMode",
    "MessageRequestModeSerializeWrapper",
    "PopCheckPoint",
    "QueryAssignmentRequestBody",
    "QueryAssignmentResponseBody",
    "SetMessageRequestModeRequestBody",
]


class MessageRequestMode(StrEnum):
    """Whether the members of a group get their messages by pull or by pop."""

    PULL = "PULL"
    POP = "POP"


@dataclass(slots=True)
class SetMessageRequestModeRequestBody(Body):
    """Body of SET_MESSAGE_REQUEST_MODE."""

    topic: str = ""
    consumer_group: str = ""
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0


@dataclass(slots=True)
class MessageRequestModeSerializeWrapper(Body):
    """The modes by topic and group; also the content of messageRequestMode.json."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )


@dataclass(slots=True)
class QueryAssignmentRequestBody(Body):
    """Body of QUERY_ASSIGNMENT."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str | None = None
    message_model: MessageModel | None = None


@dataclass(slots=True)
class MessageQueueAssignment(Body):
    """A queue assigned to a client; queue id -1 with POP means every queue of the broker."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@dataclass(slots=True)
class QueryAssignmentResponseBody(Body):
    """Body of the response to QUERY_ASSIGNMENT. Without a list, the client keeps its present assignment."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


@dataclass(slots=True)
class PopCheckPoint(Body):
    """The messages that one pop took from one queue. Times are milliseconds.

    Attributes:
        bit_map: bit i is set when message i is acknowledged.
        queue_offset_diff: the offsets of the messages minus ``start_offset``.
        revive_offset: the offset of the check point itself in the revive queue.
        re_put_times: how often the check point was written again.
    """

    computed: ClassVar[tuple[tuple[str, str], ...]] = (("reviveTime", "revive_time"),)

    start_offset: int = named("so", 0)
    pop_time: int = named("pt", 0)
    invisible_time: int = named("it", 0)
    bit_map: int = named("bm", 0)
    num: int = named("n", 0)
    queue_id: int = named("q", 0)
    topic: str = named("t", "")
    cid: str = named("c", "")
    revive_offset: int = named("ro", 0)
    queue_offset_diff: list[int] | None = named("d", None)  # noqa: RUF009  # it is a dataclass field
    broker_name: str | None = named("bn", None)
    re_put_times: str | None = named("rp", None)

    @property
    def revive_time(self) -> int:
        """When the messages become visible again, milliseconds since the epoch."""
        return self.pop_time + self.invisible_time


@dataclass(slots=True)
class AckMsg(Body):
    """One acknowledged message."""

    ack_offset: int = named("ao", 0, also="ackOffset")
    start_offset: int = named("so", 0, also="startOffset")
    consumer_group: str = named("c", "", also="consumerGroup")
    topic: str = named("t", "", also="topic")
    queue_id: int = named("q", 0, also="queueId")
    pop_time: int = named("pt", 0, also="popTime")
    broker_name: str | None = named("bn", None, also="brokerName")


@dataclass(slots=True)
class BatchAckMsg(AckMsg):
    """Several acknowledged messages of one check point."""

    ack_offset_list: list[int] = field(default_factory=list, metadata={"wire_name": "aol"})


@dataclass(slots=True)
class BatchAck(Body):
    """Acknowledged messages of one pop from one queue.

    Attributes:
        retry: ``"1"`` for the group's retry topic V1, ``"2"`` for V2, else ``"0"``.
        bit_set: Base64 of a Java ``BitSet``, whose bit i stands for offset ``start_offset + i``.
    """

    consumer_group: str = named("c", "", also="consumerGroup")
    topic: str = named("t", "", also="topic")
    retry: str = named("r", "0", also="retry")
    start_offset: int = named("so", 0, also="startOffset")
    queue_id: int = named("q", 0, also="queueId")
    revive_queue_id: int = named("rq", 0, also="reviveQueueId")
    pop_time: int = named("pt", 0, also="popTime")
    invisible_time: int = named("it", 0, also="invisibleTime")
    bit_set: str = named("b", "", also="bitSet")

    def offsets(self) -> list[int]:
        """The acknowledged queue offsets, ascending.

        Raises:
            BodyError: ``bit_set`` is not Base64.
        """
        try:
            raw = base64.b64decode(self.bit_set, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BodyError(f"BatchAck.b: {self.bit_set[:80]!r}; expected Base64") from error
        return [
            self.start_offset + 8 * index + bit
            for index, byte in enumerate(raw)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]

    @staticmethod
    def bits(diffs: Iterable[int]) -> str:
        """The value of ``bit_set`` for offsets, given as differences from the start offset."""
        number = 0
        for diff in diffs:
            number |= 1 << diff
        return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


@dataclass(slots=True)
class BatchAckMessageRequestBody(Body):
    """Body of BATCH_ACK_MESSAGE."""

    broker_name: str = ""
    acks: list[BatchAck] = field(default_factory=list)
