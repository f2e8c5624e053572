# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: annotation_typing=False
"""Encodes rows of columns as the items of a batch body, without a Python object per row.

The columns are buffers in Arrow's layout: 32-bit offsets beside data, a validity bit per row. A row becomes
one message of a SEND_BATCH_MESSAGE body, with a unique key, and if requested an id and a digest of its
content. The module is ordinary Python that also compiles with Cython (``batch_encoder.pxd`` holds the types);
both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cython

from orbitmq.message import property_names, way
from orbitmq.message.batch import MIN_ITEM_BYTES
from orbitmq.message.properties import MAX_PROPERTIES_BYTES as LONGEST_PROPERTIES

if not cython.compiled:
    from orbitmq.message.xxh64 import xxh64

# C integers in the compiled module.
ITEM_BYTES = MIN_ITEM_BYTES
MAX_PROPERTIES_BYTES = LONGEST_PROPERTIES
MASK = 0xFFFFFFFFFFFFFFFF

KEY_PREFIX_BYTES = 16
MAX_ROWS = 1 << 32

# Why a row cannot become a message.
TOO_LONG = 1
CONTROL_CHARACTER = 2
DELAYED = 3

# Properties of a row's map that are not copied to its message: the unique key of the message from which the
# row was read, and properties that were written on that message's way. A job that sends dead letters again
# sets those of a dead letter itself.
FOREIGN = (property_names.UNIQ_KEY, *sorted(way.OF_THE_WAY - way.OF_A_DEAD_LETTER))
# A batch is stored at once, so the broker's timers cannot take single messages out of it.
_DELAYS = tuple(sorted(way.DELAYS))
# A row with one of these was read from a message that has waited already: its delay is over.
_WAITED = (property_names.REAL_TOPIC, property_names.TIMER_OUT_MS)

_NO_OFFSETS = memoryview(bytes(4)).cast("i")
_NO_BYTES = memoryview(bytes(1))


class Strings(NamedTuple):
    """A column of varying width: ``rows + 1`` offsets into ``data``; a bit per row when some are null."""

    offsets: memoryview
    data: memoryview
    validity: memoryview | None = None


class MapColumn(NamedTuple):
    """A column of maps: ``rows + 1`` offsets into ``names`` and ``values``; a bit per row when some are
    null."""

    offsets: memoryview
    names: Strings
    values: Strings
    validity: memoryview | None = None


class Named(NamedTuple):
    """A column that becomes a property. Without ``stored`` the column is part of the digest only."""

    name: str
    strings: Strings
    stored: bool = True


class Slot:
    """A named column with its C types."""

    def __init__(self, named: Named) -> None:
        name = named.name.encode()
        self.name = memoryview(name)
        self.name_size = len(name)
        self.seed = xxh64(memoryview(name), 0, len(name), 1)
        self.stored = named.stored
        self.offsets = named.strings.offsets
        self.data = named.strings.data or _NO_BYTES
        self.has_bits = named.strings.validity is not None
        self.bits = _NO_BYTES if named.strings.validity is None else named.strings.validity

    def size(self, row: int) -> int:
        """The bytes of the row's value, 0 when it has none."""
        if self.has_bits and not self.bits[row >> 3] >> (row & 7) & 1:
            return 0
        return self.offsets[row + 1] - self.offsets[row]


class BatchEncoder:
    """Encodes the rows of one task.

    Args:
        key_prefix: the first 16 characters of all unique keys.
        id_head: the part of the id before the row's number: name of the property, 0x01, text. Empty: the
            messages carry neither id nor digest.
        dropped: names of further properties that are not taken over from a property map.

    Attributes:
        sizes: of the items, by row of the loaded columns.
        digests: of the rows' contents: equal rows have equal digests, whatever the order of their properties.
        used: how many bytes :meth:`fill` has written.
        fault: why the row that :meth:`measure` returns cannot become a message.
    """

    def __init__(self, key_prefix: bytes, id_head: bytes = b"", dropped: Sequence[str] = ()) -> None:
        if len(key_prefix) != KEY_PREFIX_BYTES:
            raise ValueError(f"a key prefix has {KEY_PREFIX_BYTES} characters, not {len(key_prefix)}")
        self.key_prefix = memoryview(key_prefix)
        self.id_head = memoryview(id_head or b"\0")
        self.id_head_size = len(id_head)
        self.foreign = [name.encode() for name in (*FOREIGN, *dropped)]
        self.delays = [name.encode() for name in _DELAYS]
        self.waited = [name.encode() for name in _WAITED]
        self.first_row = 0
        self.rows = 0
        self.used = 0
        self.fault = 0

    def load(
        self,
        rows: int,
        body: Strings,
        named: Sequence[Named],
        pairs: MapColumn | None,
        topics: Sequence[str],
        codes: memoryview,
        first_row: int,
    ) -> None:
        """Take the next columns; their buffers must stay until the next call.

        Args:
            rows: the number of rows.
            named: columns that become properties; they win over equal names in ``pairs``.
            pairs: further properties; pairs without a name or a value do not count.
            topics: of the rows.
            codes: for each row the place of its topic in ``topics``.
            first_row: the number of the first row within its task.

        Raises:
            ValueError: a task has more rows than a unique key can number.
        """
        if first_row + rows > MAX_ROWS:
            raise ValueError(f"a task can write {MAX_ROWS} rows; use more partitions")
        self.rows = rows
        self.first_row = first_row
        self.body_offsets = body.offsets
        self.body_data = body.data or _NO_BYTES
        self.slots = [Slot(entry) for entry in named]
        self.own = [entry.name.encode() for entry in named if entry.stored]
        self.has_pairs = pairs is not None
        self.has_pair_bits = pairs is not None and pairs.validity is not None
        self.has_value_bits = pairs is not None and pairs.values.validity is not None
        self.pair_offsets = _NO_OFFSETS if pairs is None else pairs.offsets
        self.pair_bits = pairs.validity if pairs is not None and pairs.validity is not None else _NO_BYTES
        self.name_offsets = _NO_OFFSETS if pairs is None else pairs.names.offsets
        self.name_data = _NO_BYTES if pairs is None else pairs.names.data or _NO_BYTES
        self.value_offsets = _NO_OFFSETS if pairs is None else pairs.values.offsets
        self.value_data = _NO_BYTES if pairs is None else pairs.values.data or _NO_BYTES
        bits = pairs.values.validity if pairs is not None else None
        self.value_bits = _NO_BYTES if bits is None else bits
        count = 0 if pairs is None else self.pair_offsets[rows]
        self.kept = memoryview(bytearray(count or 1))
        self.codes = codes
        self.seeds = memoryview(bytearray(8 * (len(topics) or 1))).cast("Q")
        for i, topic in enumerate(topics):
            name = topic.encode()
            self.seeds[i] = xxh64(memoryview(name), 0, len(name), 0)
        self.sizes = memoryview(bytearray(4 * (rows or 1))).cast("i")
        self.digests = memoryview(bytearray(8 * (rows or 1))).cast("Q")
        # The same memory with a C type.
        self._sizes = self.sizes
        self._digests = self.digests

    def measure(self) -> int:
        """Find sizes and digests of all rows; returns -1, or the first row that cannot become a message."""
        row = 0
        while row < self.rows:
            size = self._properties_size(row)
            if size < 0:
                return row
            if size > MAX_PROPERTIES_BYTES:
                self.fault = TOO_LONG
                return row
            self._sizes[row] = ITEM_BYTES + size + self.body_offsets[row + 1] - self.body_offsets[row]
            if self.id_head_size:
                self._digests[row] = self._digest(row)
            row += 1
        return -1

    def fill(self, selection: memoryview, at: int, stop: int, out: memoryview, limit: int) -> int:
        """Append items to ``out`` behind the ``used`` bytes until ``limit``.

        Args:
            selection: rows, by their places in the loaded columns.
            at: the first of the selection to append.
            stop: the first not to append.

        Returns:
            The first of the selection that did not fit any more, or ``stop``.
        """
        while at < stop:
            row = selection[at]
            if self.used + self._sizes[row] > limit:
                break
            self.used = self._put(row, out, self.used)
            at += 1
        return at

    def _pair_is_kept(self, row: int, j: int) -> int:
        """Whether the row's pair ``j`` becomes a property. 1: yes; 2: unless a column gives that property; 0:
        no; -1: the row cannot become a message (``fault``)."""
        start = self.name_offsets[j]
        size = self.name_offsets[j + 1] - start
        value = self.value_offsets[j + 1] - self.value_offsets[j]
        if size == 0 or value == 0:
            return 0
        if self.has_value_bits and not self.value_bits[j >> 3] >> (j & 7) & 1:
            return 0
        if _is_one_of(self.name_data, start, size, self.foreign):
            return 0
        if _is_one_of(self.name_data, start, size, self.delays):
            if self._has_waited(row):
                return 0
            self.fault = DELAYED
            return -1
        if _has_control(self.name_data, start, size) or _has_control(
            self.value_data, self.value_offsets[j], value
        ):
            self.fault = CONTROL_CHARACTER
            return -1
        return 2 if _is_one_of(self.name_data, start, size, self.own) else 1

    def _properties_size(self, row: int) -> int:
        """The bytes of the row's properties; -1 when the row cannot become a message (``fault``)."""
        # UNIQ_KEY, 0x01, 32 digits, 0x02
        size = 42
        if self.id_head_size:
            size += self.id_head_size + _digits(self.first_row + row) + 18
        own = 0
        for item in self.slots:
            slot = item
            length = slot.size(row)
            if length > 0:
                if _has_control(slot.data, slot.offsets[row], length):
                    self.fault = CONTROL_CHARACTER
                    return -1
                if slot.stored:
                    own += 1
                    size += slot.name_size + length + 2
        if self.has_pairs:
            j = self.pair_offsets[row]
            stop = self.pair_offsets[row + 1]
            if self.has_pair_bits and not self.pair_bits[row >> 3] >> (row & 7) & 1:
                stop = j
            while j < stop:
                kept = self._pair_is_kept(row, j)
                if kept < 0:
                    return -1
                if kept == 2:
                    kept = 0 if own and self._has_own(row, j) else 1
                self.kept[j] = kept
                if kept:
                    size += self.name_offsets[j + 1] - self.name_offsets[j]
                    size += self.value_offsets[j + 1] - self.value_offsets[j] + 2
                j += 1
        return size

    def _has_waited(self, row: int) -> int:
        """Whether the row was read from a message whose delay is over."""
        j = self.pair_offsets[row]
        while j < self.pair_offsets[row + 1]:
            start = self.name_offsets[j]
            if _is_one_of(self.name_data, start, self.name_offsets[j + 1] - start, self.waited):
                return 1
            j += 1
        return 0

    def _has_own(self, row: int, j: int) -> int:
        """Whether a column gives the row the property that pair ``j`` names."""
        start = self.name_offsets[j]
        length = self.name_offsets[j + 1] - start
        for item in self.slots:
            slot = item
            same_length = slot.stored and slot.name_size == length and slot.size(row) > 0
            if same_length and _same(self.name_data, start, slot.name, length):
                return 1
        return 0

    def _digest(self, row: int) -> int:
        at = self.body_offsets[row]
        total = xxh64(self.body_data, at, self.body_offsets[row + 1] - at, self.seeds[self.codes[row]])
        # The hashes of properties are added up, because maps have no order.
        for item in self.slots:
            slot = item
            size = slot.size(row)
            if size > 0:
                total = (total + xxh64(slot.data, slot.offsets[row], size, slot.seed)) & MASK
        if self.has_pairs:
            j = self.pair_offsets[row]
            stop = self.pair_offsets[row + 1]
            if self.has_pair_bits and not self.pair_bits[row >> 3] >> (row & 7) & 1:
                stop = j
            while j < stop:
                if self.kept[j]:
                    start = self.name_offsets[j]
                    seed = xxh64(self.name_data, start, self.name_offsets[j + 1] - start, 1)
                    start = self.value_offsets[j]
                    size = self.value_offsets[j + 1] - start
                    total = (total + xxh64(self.value_data, start, size, seed)) & MASK
                j += 1
        return total

    def _put(self, row: int, out: memoryview, at: int) -> int:
        body = self.body_offsets[row + 1] - self.body_offsets[row]
        total = self._sizes[row]
        _put_i32(out, at, total)
        i = 4
        while i < 16:
            out[at + i] = 0
            i += 1
        _put_i32(out, at + 16, body)
        at = _copy(out, at + 20, self.body_data, self.body_offsets[row], body)
        size = total - ITEM_BYTES - body
        out[at] = size >> 8
        out[at + 1] = size & 0xFF
        return self._put_properties(row, out, at + 2)

    def _put_properties(self, row: int, out: memoryview, at: int) -> int:
        if self.has_pairs:
            j = self.pair_offsets[row]
            stop = self.pair_offsets[row + 1]
            if self.has_pair_bits and not self.pair_bits[row >> 3] >> (row & 7) & 1:
                stop = j
            while j < stop:
                if self.kept[j]:
                    start = self.name_offsets[j]
                    at = _copy(out, at, self.name_data, start, self.name_offsets[j + 1] - start)
                    out[at] = 1
                    start = self.value_offsets[j]
                    at = _copy(out, at + 1, self.value_data, start, self.value_offsets[j + 1] - start)
                    out[at] = 2
                    at += 1
                j += 1
        for item in self.slots:
            slot = item
            size = slot.size(row)
            if slot.stored and size > 0:
                at = _copy(out, at, slot.name, 0, slot.name_size)
                out[at] = 1
                at = _copy(out, at + 1, slot.data, slot.offsets[row], size)
                out[at] = 2
                at += 1
        number = self.first_row + row
        at = _copy(out, at, UNIQ_KEY, 0, 9)
        at = _copy(out, at, self.key_prefix, 0, 16)
        # The eight time digits in the middle are zero: the first instant of the month, from which admin tools
        # that search for the key begin.
        _put_hex(out, at, number >> 16, 4, 0x41)
        _put_hex(out, at + 4, 0, 8, 0x41)
        _put_hex(out, at + 12, number & 0xFFFF, 4, 0x41)
        out[at + 16] = 2
        at += 17
        if self.id_head_size:
            at = _copy(out, at, self.id_head, 0, self.id_head_size)
            at = _put_decimal(out, at, number)
            out[at] = 0x2F
            _put_hex(out, at + 1, self._digests[row] >> 32, 8, 0x61)
            _put_hex(out, at + 9, self._digests[row] & 0xFFFFFFFF, 8, 0x61)
            out[at + 17] = 2
            at += 18
        return at


UNIQ_KEY = memoryview(property_names.UNIQ_KEY.encode() + b"\x01")


def _is_one_of(data: memoryview, at: int, size: int, names: list[bytes]) -> int:
    for item in names:
        name = item
        if len(name) == size:
            i = 0
            while i < size and data[at + i] == name[i]:
                i += 1
            if i == size:
                return 1
    return 0


def _same(data: memoryview, at: int, name: memoryview, size: int) -> int:
    i = 0
    while i < size:
        if data[at + i] != name[i]:
            return 0
        i += 1
    return 1


def _has_control(data: memoryview, at: int, size: int) -> int:
    """1 when a byte is 0x01 or 0x02, which separate properties, or 0, which brokers do not store in them."""
    i = 0
    while i < size:
        if data[at + i] <= 2:
            return 1
        i += 1
    return 0


def _copy(out: memoryview, at: int, source: memoryview, pos: int, size: int) -> int:
    """Copy ``size`` bytes and return the position after them."""
    if size > 0:
        if cython.compiled:
            memcpy(cython.address(out[at]), cython.address(source[pos]), size)  # type: ignore[name-defined]  # noqa: F821
        else:
            out[at : at + size] = source[pos : pos + size]
    return at + size


def _put_i32(out: memoryview, at: int, value: int) -> None:
    out[at] = (value >> 24) & 0xFF
    out[at + 1] = (value >> 16) & 0xFF
    out[at + 2] = (value >> 8) & 0xFF
    out[at + 3] = value & 0xFF


def _put_hex(out: memoryview, at: int, value: int, digits: int, letter: int) -> None:
    """``digits`` hexadecimal digits; ``letter`` is the code of A or of a."""
    i = digits - 1
    while i >= 0:
        low = value & 15
        out[at + i] = 48 + low if low < 10 else letter + low - 10
        value >>= 4
        i -= 1


def _digits(value: int) -> int:
    """How many decimal digits a number has."""
    count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


def _put_decimal(out: memoryview, at: int, value: int) -> int:
    end = at + _digits(value)
    i = end - 1
    while i >= at:
        out[i] = 48 + value % 10
        value //= 10
        i -= 1
    return end
