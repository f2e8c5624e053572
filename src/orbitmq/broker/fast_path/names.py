# cython: annotation_typing=False
"""Names that received bytes are looked up in: header fields, topics, permitted pulls.

Typed in ``tables.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. Numbers stand
for names first, then the names themselves are compared: two names may have one number.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.wire.scan import field_name

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable
    from orbitmq.wire.scan import HeaderScan

if not cython.compiled:
    from orbitmq.broker.fast_path.texts import find_sorted, hash_bytes
    from orbitmq.message.octets import same

ROW_AT = layout.ROW_AT
ROW_LENGTH = layout.ROW_LENGTH
MAX_SLOTS = layout.MAX_SLOTS
FIELD_WIDTH = 4  # number of the name, slot, place and length of the name
LOW_32 = 0xFFFFFFFF


class FieldTable:
    """The header fields of one kind of request, each with a slot.

    Args:
        slots: name to slot, which is below ``layout.MAX_SLOTS``.
        may_escape: the slot whose value may hold JSON's escapes; -1 for none.
        found: where :meth:`fill` writes; tables may share it.
    """

    def __init__(self, slots: dict[str, int], may_escape: int, found: Integers) -> None:
        if max(slots.values()) >= MAX_SLOTS or len(found) != MAX_SLOTS:
            raise ValueError(f"slots must be below {MAX_SLOTS}")
        names = b"\0".join(name.encode() for name in slots)
        rows = sorted(
            (field_name(name), slot, b"\0%b\0" % names, name.encode()) for name, slot in slots.items()
        )
        table = array("q")
        for number, slot, text, name in rows:
            table.extend((number, slot, text.index(b"\0%b\0" % name), len(name)))
        self.table = table
        self.letters = array("q", [-1] * 256)
        for letter, place in slots.items():
            if len(letter) == 1:
                self.letters[ord(letter)] = place
        self.names = names
        self.may_escape = may_escape
        self.found = found

    def fill(self, buf: Readable, scan: HeaderScan) -> bool:
        """Note in ``found`` which of the scanned fields each one is, -1: absent.

        False when there is a field of another name, or an escape where none may be.
        """
        if cython.compiled:
            names = cython.address(self.names[0])
        else:
            names = self.names
        for i in range(MAX_SLOTS):
            self.found[i] = -1
        for i in range(scan.count):
            if scan.name_lengths[i] == 1:
                slot = self.letters[buf[scan.name_starts[i]]]
            else:
                slot = self._slot(buf, names, scan.names[i], scan.name_starts[i], scan.name_lengths[i])
            if slot < 0 or (scan.escaped[i] and slot != self.may_escape):
                return False
            self.found[slot] = i
        return True

    def _slot(self, buf: Readable, names: Readable, number: int, start: int, length: int) -> int:
        row = find_sorted(self.table, FIELD_WIDTH, number) * FIELD_WIDTH
        if (
            row < 0
            or length != self.table[row + 3]
            or not same(buf, start, names, self.table[row + 2], length)
        ):
            return -1
        return self.table[row + 1]


class NameTable:
    """Rows of numbers found by name; the first two columns say where the name is and how long.

    Args:
        width: columns of a row.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.set(b"\0", array("q", bytes(8 * width)), array("q", bytes(8)), 0)

    def set(self, names: bytes, rows: Integers, numbers: Integers, count: int) -> None:
        """Take other rows, and the numbers that they point into.

        See ``layout.topic_table`` and ``layout.pull_table``.

        Raises:
            ValueError: the rows do not fit the names.
        """
        if len(rows) < count * self.width or not names:
            raise ValueError(f"{len(rows)} numbers are not {count} rows of {self.width}")
        size = 16
        while size < 2 * count:
            size *= 2
        slots = array("q", bytes(8 * size))
        for i in range(count):
            start = rows[i * self.width + ROW_AT]
            length = rows[i * self.width + ROW_LENGTH]
            if start < 0 or length < 0 or start + length > len(names):
                raise ValueError(f"row {i}: name of {length} bytes at {start} of {len(names)}")
            slot = _number(names[start : start + length]) & (size - 1)
            while slots[slot] != 0:
                slot = (slot + 1) & (size - 1)
            slots[slot] = i + 1
        self.names = names
        self.rows = rows
        self.numbers = numbers
        self.hashed = slots

    def find(self, buf: Readable, pos: int, length: int) -> int:
        """The row with this name, or -1."""
        if cython.compiled:
            names = cython.address(self.names[0])
        else:
            names = self.names
        mask = len(self.hashed) - 1
        slot = hash_bytes(buf, pos, length, 0) & mask
        while self.hashed[slot] != 0:
            row = self.hashed[slot] - 1
            base = row * self.width
            if self.rows[base + ROW_LENGTH] == length and same(
                buf, pos, names, self.rows[base + ROW_AT], length
            ):
                return row
            slot = (slot + 1) & mask
        return -1

    def find_pair(self, buf: Readable, pos: int, length: int, second: int, second_length: int) -> int:
        """The row whose name is these two names with a zero byte between, or -1."""
        if cython.compiled:
            names = cython.address(self.names[0])
        else:
            names = self.names
        mask = len(self.hashed) - 1
        h = hash_bytes(buf, pos, length, 0)
        h = (h * 131) & LOW_32  # the zero byte
        slot = hash_bytes(buf, second, second_length, h) & mask
        while self.hashed[slot] != 0:
            row = self.hashed[slot] - 1
            at = self.rows[row * self.width + ROW_AT]
            if (
                self.rows[row * self.width + ROW_LENGTH] == length + 1 + second_length
                and same(buf, pos, names, at, length)
                and names[at + length] == 0
                and same(buf, second, names, at + length + 1, second_length)
            ):
                return row
            slot = (slot + 1) & mask
        return -1

    def get(self, row: int, column: int) -> int:
        return self.rows[row * self.width + column]


def _number(name: bytes) -> int:
    h = 0
    for c in name:
        h = (h * 131 + c) & LOW_32
    return h
