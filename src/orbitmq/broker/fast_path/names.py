# cython: annotation_typing=False
"""Tables that find received bytes: header fields, topics, permitted pulls.

Typed in ``names.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. A name's hash
is compared first, then the name itself: two names may have one hash.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.wire.scan import field_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.runtime.buffers import Integers, Readable
    from orbitmq.wire.scan import HeaderScan

if not cython.compiled:
    from orbitmq.broker.fast_path.texts import find_sorted, hash_bytes
    from orbitmq.message.octets import same

ROW_AT = layout.ROW_AT
ROW_LENGTH = layout.ROW_LENGTH
MAX_SLOTS = layout.MAX_SLOTS
FIELD_WIDTH = 4  # hash of the name, slot, place and length of the name
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
        """Note in ``found`` which scanned field each slot has, -1: absent.

        False when there is a field of another name, or an escape where none is allowed.
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
    """Rows of numbers found by name; the first two columns hold the place and the length of the name.

    A row keeps its place for good. Changes come one at a time from outside, and cost the same at any size.

    Args:
        width: columns of a row.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.count = 0
        self.names_end = 0
        self.numbers_end = 0
        self.name_bytes = bytearray(64)
        self.names = self.name_bytes
        self.rows = array("q", bytes(8 * 16 * self.width))
        self.numbers = array("q", bytes(8 * 16))
        self.hashed = array("q", bytes(8 * 32))

    def row_of(self, name: bytes) -> int:
        """The row with this name, or -1."""
        slot = self._place(name)
        return self.hashed[slot] - 1

    def _place(self, name: bytes) -> int:
        """Where the name's row is in ``hashed``, or would be."""
        mask = len(self.hashed) - 1
        slot = _number(name) & mask
        while self.hashed[slot] != 0:
            base = (self.hashed[slot] - 1) * self.width
            at = self.rows[base + ROW_AT]
            if self.name_bytes[at : at + self.rows[base + ROW_LENGTH]] == name:
                break
            slot = (slot + 1) & mask
        return slot

    def put(self, name: bytes, columns: list[int]) -> int:
        """Set the columns behind the first two of the row with this name; returns the row, new or not.

        Raises:
            ValueError: not as many columns as a row has.
        """
        if len(columns) != self.width - 2:
            raise ValueError(f"{len(columns)} columns, a row of this table has {self.width - 2} to set")
        slot = self._place(name)
        row = self.hashed[slot] - 1
        if row < 0:
            row = self._add(name, slot)
        base = row * self.width + 2
        for i, value in enumerate(columns):
            self.rows[base + i] = value
        return row

    def _add(self, name: bytes, slot: int) -> int:
        row = self.count
        if (row + 1) * self.width > len(self.rows):
            self.rows = _longer(self.rows, 2 * len(self.rows))
        end = self.names_end + len(name)
        # One byte more, so that an empty name at the end has a valid place.
        if end >= len(self.name_bytes):
            longer = bytearray(2 * end + 64)
            longer[: self.names_end] = self.name_bytes[: self.names_end]
            self.name_bytes = longer
            self.names = longer
        self.name_bytes[self.names_end : end] = name
        self.rows[row * self.width + ROW_AT] = self.names_end
        self.rows[row * self.width + ROW_LENGTH] = len(name)
        self.names_end = end
        self.hashed[slot] = row + 1
        self.count = row + 1
        if 2 * self.count > len(self.hashed):
            self._hash_again()
        return row

    def _hash_again(self) -> None:
        if cython.compiled:
            names = cython.address(self.names[0])
        else:
            names = self.names
        mask = 2 * len(self.hashed) - 1
        self.hashed = array("q", bytes(8 * (mask + 1)))
        for row in range(self.count):
            at = self.rows[row * self.width + ROW_AT]
            slot = hash_bytes(names, at, self.rows[row * self.width + ROW_LENGTH], 0) & mask
            while self.hashed[slot] != 0:
                slot = (slot + 1) & mask
            self.hashed[slot] = row + 1

    def set(self, row: int, column: int, value: int) -> None:
        """Change one number of a row.

        Raises:
            ValueError: no such row, or a column that is not the caller's.
        """
        if not 0 <= row < self.count or not ROW_LENGTH < column < self.width:
            raise ValueError(f"column {column} of row {row}: {self.count} rows of {self.width}")
        self.rows[row * self.width + column] = value

    def number_at(self, row: int, column: int) -> int:
        """One number of a row, for callers outside of the fast path.

        Raises:
            ValueError: no such row or column.
        """
        if not 0 <= row < self.count or not 0 <= column < self.width:
            raise ValueError(f"column {column} of row {row}: {self.count} rows of {self.width}")
        return self.rows[row * self.width + column]

    def numbers_at(self, at: int, count: int) -> list[int]:
        """Up to ``count`` of the numbers that rows point into."""
        return [self.numbers[i] for i in range(at, min(at + count, self.numbers_end))]

    def keep_numbers(self, values: Sequence[int]) -> int:
        """Add numbers that a row points into, for good; returns their place in ``numbers``."""
        at = self.numbers_end
        end = at + len(values)
        if end >= len(self.numbers):
            self.numbers = _longer(self.numbers, 2 * end)
        for i, value in enumerate(values):
            self.numbers[at + i] = value
        self.numbers_end = end
        return at

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


def _longer(numbers: Integers, count: int) -> array[int]:
    """A copy with zeros behind, ``count`` numbers in all."""
    longer = array("q", bytes(8 * count))
    memoryview(longer)[: len(numbers)] = memoryview(numbers)
    return longer


def _number(name: bytes | bytearray) -> int:
    h = 0
    for c in name:
        h = (h * 131 + c) & LOW_32
    return h
