# cython: annotation_typing=False
"""Plain pulls that find messages, and those at the end of their queue that may wait there.

Typed in ``pulls.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.broker.fast_path.names import FieldTable, NameTable
from orbitmq.broker.fast_path.notes import PullNotes
from orbitmq.store.queues import layout as store_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.fast_path.fields import Fields
    from orbitmq.broker.fast_path.keys import FrameKeys
    from orbitmq.broker.fast_path.responses import Responses
    from orbitmq.runtime.buffers import Readable
    from orbitmq.store.log.appender import Appender
    from orbitmq.store.queues.lookup import Lookup

# C integers in the compiled module, so that no Python object is touched on the path of a message.
ORDINARY = layout.ORDINARY
DRAIN = layout.DRAIN
NEED_INDEX = layout.NEED_INDEX
PARK = layout.PARK
IN_PLACE = layout.IN_PLACE
HANDLED = layout.HANDLED
INT_BAD = layout.INT_BAD

Q_MIN = store_layout.Q_MIN
Q_VISIBLE = store_layout.Q_VISIBLE
READ_FOUND = store_layout.READ_FOUND
READ_NEED_ENTRIES = store_layout.READ_NEED_ENTRIES
ALL_CODES = store_layout.ALL_CODES

# Slots of layout.PULL_FIELDS.
P_GROUP = 0
P_TOPIC = 1
P_QUEUE_ID = 2
P_OFFSET = 3
P_MAX_COUNT = 4
P_SYS_FLAG = 5
P_COMMIT_OFFSET = 6
P_SUBSCRIPTION = 7
P_EXPRESSION_TYPE = 8
P_MAX_BYTES = 9
P_SUSPEND = 10
P_SUB_VERSION = 11
P_SOURCE = 12

T_READ_QUEUES = layout.T_READ_QUEUES
T_SLOTS_AT = layout.T_SLOTS_AT
G_TOPIC = layout.G_TOPIC
G_CODES_AT = layout.G_CODES_AT
G_CODES_COUNT = layout.G_CODES_COUNT
G_VERSION = layout.G_VERSION
G_TOPIC_FLAG = layout.G_TOPIC_FLAG
G_GROUP_FLAG = layout.G_GROUP_FLAG
NO_SUBSCRIPTION = layout.NO_SUBSCRIPTION
X_CODES_AT = layout.X_CODES_AT
X_CODES_COUNT = layout.X_CODES_COUNT

LITE_PULL_MESSAGE = 361
ONE_WAY = 2
MAX_EXPRESSIONS = 10_000
MAX_ASKED_BYTES = 512 * 1024  # pulls of more bytes than this gain nothing from a fast path
IN_PLACE_BYTES = 64 * 1024  # a smaller answer is copied and goes out together with others
PULL_COMMITS = 1
PULL_SUSPENDS = 2
PULL_HAS_SUBSCRIPTION = 4
PULL_CLASS_FILTER = 8


class Pulls:
    """Answers pulls, as a part of the fast path.

    Args:
        appender, lookup: the store's inner loops.
        fields: the fields of the current request.
        keys: decides whether the request's caller may pull.
        topics: the table of topics; permitted pulls refer to its rows.
        answers: takes the responses.
        max_count: most messages in one response; ``max_bytes`` likewise.

    Attributes:
        permitted: which (group, topic) may pull.
        expressions: the expressions of tags that requests may bring along.
        parks: whether pulls may wait.
        far_bytes: a consumer this many bytes behind the end of the log is left to the ordinary handler.
        notes: notes of answered and of waiting pulls.
        commits: whether pulls commit the offsets that they bring along.
        park_row, park_queue, park_offset, park_ms: with PARK, which pull waits, from which offset, how long.
        need_slot: with NEED_INDEX, the queue whose index has to be mapped.
        found, found_lite: how many pulls found messages, and how many of these were lite pulls.
        messages: how many messages were handed out.
    """

    def __init__(
        self,
        appender: Appender,
        lookup: Lookup,
        fields: Fields,
        keys: FrameKeys,
        topics: NameTable,
        answers: Responses,
        *,
        max_count: int,
        max_bytes: int,
    ) -> None:
        self.a = appender
        self.lookup = lookup
        self.fields = fields
        self.keys = keys
        self.scan = self.fields.scan
        self.slots = self.fields.slots
        self.topics = topics
        self.permitted = NameTable(layout.G_WIDTH)
        self.expressions = NameTable(layout.X_WIDTH)
        self.expressions.put(b"*", [0, ALL_CODES])
        self.names = FieldTable(layout.PULL_FIELDS, -1, self.slots)
        self.answers = answers
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.notes = PullNotes()
        self.commits = True
        self.parks = False
        self.far_bytes = 1 << 62
        self.park_row = 0
        self.park_queue = 0
        self.park_offset = 0
        self.park_ms = 0
        self.need_slot = 0
        self.found = 0
        self.found_lite = 0
        self.messages = 0

    def add_expression(self, text: bytes, codes: Sequence[int], count: int) -> None:
        """Let requests bring this expression of tags from now on; ``codes`` as in a MessageFilter."""
        if self.expressions.row_of(text) >= 0:
            return
        if self.expressions.count >= MAX_EXPRESSIONS:
            self.expressions.clear()
            self.expressions.put(b"*", [0, ALL_CODES])
        self.expressions.put(text, [self.expressions.keep_numbers(codes), count])

    def pull(self, buf: Readable, end: int) -> int:
        if self.scan.flag & ONE_WAY or not self.names.fill(buf, self.scan):
            return ORDINARY
        if self.slots[P_GROUP] < 0 or self.slots[P_TOPIC] < 0:
            return ORDINARY
        pull = self.permitted.find_pair(
            buf, self.scan.starts[self.slots[P_GROUP]], self.scan.lengths[self.slots[P_GROUP]],
            self.scan.starts[self.slots[P_TOPIC]], self.scan.lengths[self.slots[P_TOPIC]],
        )  # fmt: skip
        if pull < 0:
            return ORDINARY
        topic = self.permitted.get(pull, G_TOPIC)
        sys_flag = self.fields.number_32(buf, P_SYS_FLAG, INT_BAD)
        queue_id = self.fields.number(buf, P_QUEUE_ID, INT_BAD)
        sub_version = self.fields.number(buf, P_SUB_VERSION, INT_BAD)
        if (
            sys_flag < 0
            or sys_flag & PULL_CLASS_FILTER
            or queue_id < 0
            or queue_id >= self.topics.get(topic, T_READ_QUEUES)
            or sub_version == INT_BAD
            or self.fields.number(buf, P_COMMIT_OFFSET, INT_BAD) == INT_BAD
            or self.fields.number(buf, P_SUSPEND, INT_BAD) == INT_BAD
            or self.fields.number_32(buf, P_SOURCE, 0) == INT_BAD
        ):
            return ORDINARY
        codes_count = self.permitted.get(pull, G_CODES_COUNT)
        expression = -1
        if sys_flag & PULL_HAS_SUBSCRIPTION:
            expression = self._expression(buf)
            if expression < 0:
                return ORDINARY
            codes_count = self.expressions.get(expression, X_CODES_COUNT)
        elif codes_count == NO_SUBSCRIPTION or sub_version > self.permitted.get(pull, G_VERSION):
            return ORDINARY
        if self.keys.requires_keys and not self.keys.let_pull(buf, end, pull):
            return ORDINARY
        slot = self.topics.numbers[self.topics.get(topic, T_SLOTS_AT) + queue_id]
        return self._read(buf, pull, expression, queue_id, sys_flag, slot, codes_count)

    def _expression(self, buf: Readable) -> int:
        """The row of the request's own expression; -1: the expression is unknown, or not one of tags."""
        i = self.slots[P_EXPRESSION_TYPE]
        if i >= 0:
            at = self.scan.starts[i]
            if self.scan.lengths[i] != 3 or buf[at] != 0x54 or buf[at + 1] != 0x41 or buf[at + 2] != 0x47:
                return -1
        i = self.slots[P_SUBSCRIPTION]
        if i < 0:
            return -1
        return self.expressions.find(buf, self.scan.starts[i], self.scan.lengths[i])

    def _read(
        self,
        buf: Readable,
        pull: int,
        expression: int,
        queue_id: int,
        sys_flag: int,
        slot: int,
        codes_count: int,
    ) -> int:
        offset = self.fields.number(buf, P_OFFSET, INT_BAD)
        max_count = self.fields.number_32(buf, P_MAX_COUNT, INT_BAD)
        max_bytes = self.fields.number_32(buf, P_MAX_BYTES, 0)
        lowest = self.a.get(slot, Q_MIN)
        highest = self.a.get(slot, Q_VISIBLE)
        if offset < lowest or offset > highest or max_count <= 0 or max_bytes < 0:
            return ORDINARY
        if offset == highest:
            return self._park(buf, pull, queue_id, sys_flag, offset, codes_count)
        if max_count > self.max_count:
            max_count = self.max_count
        if max_bytes == 0:
            max_bytes = self.max_bytes
        if max_bytes > MAX_ASKED_BYTES:
            return ORDINARY
        if self.notes.full() or not self.answers.has_room(0):
            return DRAIN
        in_place = (
            codes_count == ALL_CODES
            and max_bytes >= IN_PLACE_BYTES
            and self._find_in_place(slot, offset, highest, max_count, max_bytes)
        )
        if not in_place:
            if not self.answers.has_room(max_bytes):
                return DRAIN
            status = self._copy(pull, expression, slot, offset, highest, max_count, max_bytes, codes_count)
            if status == READ_NEED_ENTRIES:
                if self.lookup.read_next > offset:
                    # No message of the mapped file passes. A second look would begin in that file, which is
                    # no longer mapped once the next file is. The handler continues where this look ended.
                    return ORDINARY
                self.need_slot = slot
                return NEED_INDEX
            if status != READ_FOUND:
                return ORDINARY
        if self.a.batch_base - self.lookup.entry_physical > self.far_bytes:
            return ORDINARY
        self.found += 1
        if self.scan.code == LITE_PULL_MESSAGE:
            self.found_lite += 1
        self.messages += self.lookup.read_count
        self._note(buf, pull, queue_id, sys_flag, offset, self.lookup.read_next, self.lookup.read_bytes)
        self.answers.answer_pull(
            self.scan, lowest, highest, self.lookup.read_next,
            self.permitted.get(pull, G_TOPIC_FLAG), self.permitted.get(pull, G_GROUP_FLAG),
            self.lookup.read_bytes, in_place,
        )  # fmt: skip
        return IN_PLACE if in_place else HANDLED

    def _find_in_place(self, slot: int, offset: int, last: int, max_count: int, max_bytes: int) -> bool:
        """Find many bytes of records that are contiguous in the log; ``False``: copy them instead."""
        if self.lookup.find_entry(slot, offset) != READ_FOUND:
            return False
        # An estimate by the length of the first record: most pulls, those of a few messages, are then spared
        # the second search.
        if min(max_count, last - offset) * self.lookup.entry_size < IN_PLACE_BYTES:
            return False
        found = self.lookup.find_spans(slot, offset, last, max_count, max_bytes)
        return found == READ_FOUND and self.lookup.read_bytes >= IN_PLACE_BYTES

    def _copy(
        self,
        pull: int,
        expression: int,
        slot: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        codes_count: int,
    ) -> int:
        """Copy the matching records into the body of the next response."""
        if cython.compiled:
            out = cython.address(self.answers.view[0])
            codes = cython.address(self.permitted.numbers[0])
        else:
            out = self.answers.data
            codes = self.permitted.numbers
        codes_at = self.permitted.get(pull, G_CODES_AT)
        if expression >= 0:
            codes_at = self.expressions.get(expression, X_CODES_AT)
            if cython.compiled:
                codes = cython.address(self.expressions.numbers[0])
            else:
                codes = self.expressions.numbers
        return self.lookup.read(
            slot, offset, last, max_count, max_bytes, codes, codes_at, codes_count, out,
            self.answers.body_at(), self.answers.body_room(),
        )  # fmt: skip

    def _park(
        self, buf: Readable, pull: int, queue_id: int, sys_flag: int, offset: int, codes_count: int
    ) -> int:
        """Leave a pull at the end of its queue to the caller, when it may wait and takes all messages."""
        if not self.parks or not sys_flag & PULL_SUSPENDS or codes_count != ALL_CODES:
            return ORDINARY
        if self.notes.full():
            return DRAIN
        self._note(buf, pull, queue_id, sys_flag, offset, offset, 0)
        self.park_row = pull
        self.park_queue = queue_id
        self.park_offset = offset
        self.park_ms = self.fields.number(buf, P_SUSPEND, 0)
        return PARK

    def _note(
        self, buf: Readable, pull: int, queue_id: int, sys_flag: int, before: int, after: int, size: int
    ) -> None:
        commit = -1
        if self.commits and sys_flag & PULL_COMMITS:
            commit = self.fields.number(buf, P_COMMIT_OFFSET, -1)
        self.notes.keep(pull, queue_id, commit, before, after, size)
