"""The messages that go into the store, and the results of its methods."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(slots=True)
class NewMessage:
    """A message to append. The store adds offsets, its own host and the store time.

    ``properties`` are encoded (``name 0x01 value 0x02``); ``born_host`` is a numeric address and a port;
    ``tags_code`` goes into the consume queue. With ``deliver_after_ms`` the consume queue gets the time of
    delivery instead, as for SCHEDULE_TOPIC_XXXX: the store time plus that delay. While the store time is more
    than a minute ahead of a clock that was set back, the time of delivery is the clock's time plus the delay.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    deliver_after_ms: int | None = None


class Made(NamedTuple):
    """When a topic was made, as a place in the log and a time: older messages before that place belong to a
    deleted topic of the same name.

    Attributes:
        log_offset: the end of the log when the topic was made.
        time_ms: a store time later than that of any earlier message. It marks the topic's own messages if a
            crash cut the log before ``log_offset``.
    """

    log_offset: int
    time_ms: int


class PutStatus(Enum):
    """The result of an append (PutMessageStatus)."""

    OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"


@dataclass(slots=True)
class PutResult:
    """Where the message, or the first one of several, was put.

    Attributes:
        end_offset: the end of the last record in the log; wait for it with ``MessageStore.stored``.
        message_id: the offset id; for several messages their ids, joined by commas.
    """

    status: PutStatus
    queue_offset: int
    commit_log_offset: int
    end_offset: int
    message_id: str


class GetStatus(Enum):
    """The result of a read (GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """The messages of a read: ``body`` has the stored records one after the other, as in a pull response."""

    status: GetStatus
    body: bytes
    count: int
    next_offset: int
    min_offset: int
    max_offset: int
