"""Results of sends, and where a group begins."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec

from orbitmq.message.model import MessageQueue


class SendStatus(IntEnum):
    """How far a stored message got; the value is the response code (behaviour SK-18)."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The broker stored the message.

    Attributes:
        status: SEND_OK, or stored but not yet as safe as the broker promises.
        message_id: the client's unique id (UNIQ_KEY); those of a batch joined by commas.
        offset_message_id: the broker's id: host, port and commit log offset in hex.
        queue: where it was stored.
        queue_offset: its offset in that queue; of the first message of a batch.
        transaction_id: the broker's transaction id, empty for plain messages.
        recall_handle: what a recall of a timer message needs, empty for plain messages.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    recall_handle: str = ""


class ConsumeFrom(Enum):
    """Where a group begins on a queue for which it never committed an offset (ConsumeFromWhere)."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
