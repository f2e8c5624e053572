# cython: annotation_typing=False
"""Values of the scanned header fields of one request.

Typed in ``fields.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable
    from orbitmq.wire.scan import HeaderScan

if not cython.compiled:
    from orbitmq.wire.scan import parse_int

INT_BAD = layout.INT_BAD
MAX_32 = 0x7FFFFFFF


class Fields:
    """Reads a field by its slot.

    Args:
        scan: the request's header.

    Attributes:
        slots: for each slot, the index of its scanned field, -1: it is absent; filled by a ``FieldTable``.
    """

    def __init__(self, scan: HeaderScan) -> None:
        self.scan = scan
        self.slots = array("q", bytes(8 * layout.MAX_SLOTS))

    def number(self, buf: Readable, slot: int, default: int) -> int:
        """The number in a field, ``default`` when the field is absent, INT_BAD when it is not a number."""
        i = self.slots[slot]
        if i < 0:
            return default
        return parse_int(buf, self.scan.starts[i], self.scan.lengths[i])

    def number_32(self, buf: Readable, slot: int, default: int) -> int:
        """The number in a field like :meth:`number`; a number beyond 32 bits is INT_BAD too."""
        value = self.number(buf, slot, default)
        return value if -MAX_32 <= value <= MAX_32 else INT_BAD

    def is_false(self, buf: Readable, slot: int) -> bool:
        """Whether a flag is absent or "false"."""
        i = self.slots[slot]
        if i < 0:
            return True
        at = self.scan.starts[i]
        return (
            self.scan.lengths[i] == 5
            and buf[at] == 0x66
            and buf[at + 1] == 0x61
            and buf[at + 2] == 0x6C
            and buf[at + 3] == 0x73
            and buf[at + 4] == 0x65
        )

    def is_true(self, buf: Readable, slot: int) -> bool:
        """Whether a flag is "true"."""
        i = self.slots[slot]
        if i < 0:
            return False
        at = self.scan.starts[i]
        return (
            self.scan.lengths[i] == 4
            and buf[at] == 0x74
            and buf[at + 1] == 0x72
            and buf[at + 2] == 0x75
            and buf[at + 3] == 0x65
        )
