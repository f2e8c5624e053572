"""The errors of a store. Their texts name the remedy, if the operator has one."""

from __future__ import annotations

from orbitmq.errors import OrbitError


class StoreError(OrbitError):
    """Base of all store errors."""


class StoreLockedError(StoreError):
    """Another process uses the folder."""


class StoreClosedError(StoreError):
    """The store takes no more messages: it is stopped, its disk is full, or a write or flush failed."""


class RecordTooLongError(StoreError):
    """A part of the message is longer than its field in a record; the store continues without the message."""


class UnknownQueueError(StoreError):
    """The topic has no such queue here."""


class RawAppendError(StoreError):
    """Bytes of a master's log cannot be appended: they do not continue this log or a queue, or are
    damaged."""


class LogDamagedError(StoreError):
    """No record begins at a place of the commit log where one should."""
