# cython: annotation_typing=False
"""Makes columns from the properties of records: tags, keys, the message id, the map of all."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import cython

from orbitmq.message import record_layout
from orbitmq.message.columns import KEYS, MESSAGE_ID, PROPERTIES, TAGS, Pairs, Text
from orbitmq.message.text_column import TextColumn

if TYPE_CHECKING:
    from orbitmq.message.record_parts import RecordParts
    from orbitmq.message.text_column import Allocate
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import find, get_i32

# C integers in the compiled module.
PHYSICAL_OFFSET_AT = record_layout.PHYSICAL_OFFSET_AT
# A message id made of an IPv6 host and an offset, as hexadecimal digits.
LONGEST_ID = 2 * (record_layout.HOST_V6_BYTES + 8)
# Between name and value, and behind a value (MessageDecoder).
BETWEEN = 1
BEHIND = 2


class PropertyColumns:
    """Walks the properties of each record once.

    A pair counts when name and value have at least one character; the last of equal names wins.

    Args:
        columns: the names of the requested columns; names of columns that are not made here are ignored.

    Attributes:
        any: whether one of the requested columns is made here.
    """

    def __init__(self, columns: Collection[str]) -> None:
        self.want_tags = TAGS in columns
        self.want_keys = KEYS in columns
        self.want_id = MESSAGE_ID in columns
        self.want_pairs = PROPERTIES in columns
        self.any = self.want_tags or self.want_keys or self.want_id or self.want_pairs
        self.tags = TextColumn(nullable=True)
        self.keys = TextColumn(nullable=True)
        self.ids = TextColumn()
        self.names = TextColumn()
        self.values = TextColumn()
        self.begin()

    def begin(self) -> None:
        """Reset the counts."""
        self.rows = self.size = self.pairs = 0

    def count(self, src: Readable, parts: RecordParts) -> None:
        """Add up the space that one record needs."""
        self.rows += 1
        self.size += parts.props_bytes
        if self.want_pairs:
            i = parts.props_at
            stop = i + parts.props_bytes
            while i < stop:
                i = find(src, BEHIND, i, stop) + 1
                self.pairs += 1

    def reserve(self, allocate: Allocate) -> None:
        """Make room for the records that were counted."""
        size, pairs = self.size if self.any else 0, self.pairs if self.want_pairs else 0
        self.tags.reserve(self.rows, size if self.want_tags else 0, allocate)
        self.keys.reserve(self.rows, size if self.want_keys else 0, allocate)
        self.ids.reserve(self.rows, size + LONGEST_ID * self.rows if self.want_id else 0, allocate)
        self.names.reserve(pairs, size if self.want_pairs else 0, allocate)
        self.values.reserve(pairs, size if self.want_pairs else 0, allocate)
        self.row = 0
        self.pair_offset_bytes = bytearray(4 * (self.rows + 1))
        self.pair_offsets = memoryview(self.pair_offset_bytes).cast("i")

    def add(self, src: Readable, at: int, parts: RecordParts) -> None:
        """Add the record that begins at ``at``."""
        tags_at = keys_at = id_at = 0
        tags_size = keys_size = id_size = 0
        i = parts.props_at
        stop = i + parts.props_bytes
        first_pair = self.names.rows
        while i < stop:
            end = find(src, BEHIND, i, stop)
            equal = find(src, BETWEEN, i, end)
            if equal > i and equal < end - 1:
                name_size = equal - i
                # The names as big-endian numbers: "TAGS", "KEYS", "UNIQ_KEY".
                if name_size == 4 and get_i32(src, i) == 0x54414753:
                    tags_at = equal + 1
                    tags_size = end - tags_at
                elif name_size == 4 and get_i32(src, i) == 0x4B455953:
                    keys_at = equal + 1
                    keys_size = end - keys_at
                elif name_size == 8 and get_i32(src, i) == 0x554E4951 and get_i32(src, i + 4) == 0x5F4B4559:
                    id_at = equal + 1
                    id_size = end - id_at
                if self.want_pairs:
                    self._pair(src, first_pair, i, equal, end)
            i = end + 1
        self.row += 1
        if self.want_pairs:
            self.pair_offsets[self.row] = self.names.rows
        if self.want_tags:
            self.tags.add(src, tags_at, tags_size)
        if self.want_keys:
            self.keys.add(src, keys_at, keys_size)
        if self.want_id:
            if id_size == 0:
                self.ids.put_hex(src, parts.store_at + 8, parts.host_bytes)
                self.ids.put_hex(src, at + PHYSICAL_OFFSET_AT, 8)
            self.ids.add(src, id_at, id_size)

    def _pair(self, src: Readable, first: int, start: int, equal: int, end: int) -> None:
        """Append one property to the map of the current row, dropping an earlier one of the same name."""
        for row in range(first, self.names.rows):
            if self.names.is_at(row, src, start, equal - start):
                self.names.drop(row)
                self.values.drop(row)
                break
        self.names.add(src, start, equal - start)
        self.values.add(src, equal + 1, end - equal - 1)

    def texts(self) -> dict[str, Text]:
        """The columns of texts, by name."""
        wanted = {TAGS: self.want_tags, KEYS: self.want_keys, MESSAGE_ID: self.want_id}
        columns = {TAGS: self.tags, KEYS: self.keys, MESSAGE_ID: self.ids}
        return {name: column.finish() for name, column in columns.items() if wanted[name]}

    def maps(self) -> Pairs | None:
        """The column of maps, if it is wanted."""
        if not self.want_pairs:
            return None
        return Pairs(self.pair_offset_bytes, self.names.rows, self.names.finish(), self.values.finish())
