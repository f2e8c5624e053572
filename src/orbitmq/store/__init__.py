"""The message store: commit log, consume queues, checkpoint, recovery, flush and cleaning. No network."""

from orbitmq.store.config import StoreConfig
from orbitmq.store.errors import (
    RawAppendError,
    RecordTooLongError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
    UnknownQueueError,
)
from orbitmq.store.filter import PASS_ALL, MessageFilter
from orbitmq.store.model import GetResult, GetStatus, Made, NewMessage, PutResult, PutStatus
from orbitmq.store.store import MessageStore

__all__ = [
    "PASS_ALL",
    "GetResult",
    "GetStatus",
    "Made",
    "MessageFilter",
    "MessageStore",
    "NewMessage",
    "PutResult",
    "PutStatus",
    "RawAppendError",
    "RecordTooLongError",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreLockedError",
    "UnknownQueueError",
]
