"""Errors of bytes that are not valid messages."""

from __future__ import annotations

from orbitmq.errors import OrbitError


class MessageFormatError(OrbitError, ValueError):
    """Bytes or text of a wrong form. The text names the field and the value."""


class RecordError(MessageFormatError):
    """A stored record or a batch body that cannot be read or written."""


class DamagedBodyError(MessageFormatError):
    """The body of a stored message does not match its checksum: a disk or a network has changed it."""


class CompressionError(MessageFormatError):
    """A body that cannot be compressed or decompressed."""
