"""Results of sends, and where a group begins."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec

from orbitmq.message.model import MessageQueue


class SendStatus(IntEnum):
    """How safely a message is stored; the value is the response code (behaviour SK-18)."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a send whose message the broker stored.

    Attributes:
        status: SEND_OK, or stored but not yet as safe as the broker promises.
        message_id: the client's unique id (UNIQ_KEY); the ids of a batch joined by commas.
        offset_message_id: the broker's id: host, port and commit log offset in hex.
        queue: the queue that stores the message.
        queue_offset: the offset in that queue; for a batch the first message's.
        transaction_id: the broker's transaction id, empty for plain messages.
        recall_handle: the handle for a recall of a timer message, empty for plain messages.
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
