# cython: annotation_typing=False
"""The fast lane: a received chunk of many frames in, records and responses out, in one call.

Plain sends (single and batch) and plain pulls that find messages are done here completely: the header is
scanned, the record built in the store's turn buffer, the response encoded. Whatever is not plain (a delay, a
transaction, an unknown topic, nothing to pull, anything odd in the frame) is left to the ordinary handlers,
in order: :meth:`Lane.feed` stops at that frame and says so. The lane never decides on an error itself.

Typed in ``lane.pxd`` and compiled when a C compiler is there; the same text runs uncompiled. While it works
it touches no Python object: topics and permitted pulls are rows of integer tables, rebuilt from outside when
they change.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import cython

from orbitmq.broker import lane_layout as layout
from orbitmq.store import layout as store_layout
from orbitmq.wire.scan import HeaderScan, field_name

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable
    from orbitmq.store.appender import Appender

if not cython.compiled:
    from orbitmq.store.appender import copy, get_i32, put_i16, put_i32
    from orbitmq.wire.scan import parse_int, unescape

# C integers in the compiled module, so that no Python object is touched on the path of a message.
DONE = layout.DONE
ORDINARY = layout.ORDINARY
NEED_ROOM = layout.NEED_ROOM
DRAIN = layout.DRAIN
NEED_INDEX = layout.NEED_INDEX
HANDLED = -1
SCAN_OK = 0
INT_BAD = -(1 << 62)
LOW_32 = 0xFFFFFFFF
SIGN_32 = 0x80000000

Q_NEXT = store_layout.Q_NEXT
Q_MIN = store_layout.Q_MIN
Q_VISIBLE = store_layout.Q_VISIBLE
READ_FOUND = store_layout.READ_FOUND
READ_NEED_INDEX = store_layout.READ_NEED_INDEX

SEND_MESSAGE = 10
PULL_MESSAGE = 11
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320
LITE_PULL_MESSAGE = 361

# Slots for the fields of a send, in the order of the one-letter names of the V2 header.
S_TOPIC = 1
S_QUEUE_ID = 4
S_SYS_FLAG = 5
S_BORN = 6
S_FLAG = 7
S_PROPERTIES = 8
S_RECONSUME = 9
S_UNIT_MODE = 10
S_BATCH = 12
SEND_SLOTS = 14

# Slots for the fields of a pull.
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
P_IGNORED = 10
P_SUB_VERSION = 11

T_NAME_AT = layout.T_NAME_AT
T_NAME_LENGTH = layout.T_NAME_LENGTH
T_READ_QUEUES = layout.T_READ_QUEUES
T_WRITE_QUEUES = layout.T_WRITE_QUEUES
T_ROWS_AT = layout.T_ROWS_AT
T_WIDTH = layout.T_WIDTH
G_NAME_AT = layout.G_NAME_AT
G_NAME_LENGTH = layout.G_NAME_LENGTH
G_TOPIC = layout.G_TOPIC
G_FILTER_AT = layout.G_FILTER_AT
G_FILTER_COUNT = layout.G_FILTER_COUNT
G_VERSION = layout.G_VERSION
G_WIDTH = layout.G_WIDTH
NO_SUBSCRIPTION = layout.NO_SUBSCRIPTION
EVENT_WIDTH = layout.EVENT_WIDTH

# Numbers of the constant texts.
TEXT_UNIQUE_NAME = 0
TEXT_BROKER_PROPERTIES = 1
TEXT_HOST_HEX = 2
TEXT_JSON_SEND_IDS = 3
TEXT_JSON_QUEUE_ID = 4
TEXT_JSON_QUEUE_OFFSET = 5
TEXT_JSON_TRANSACTION_ID = 6
TEXT_JSON_OPAQUE = 7
TEXT_JSON_END = 8
TEXT_BINARY_SEND_IDS = 9
TEXT_BINARY_QUEUE_ID = 10
TEXT_BINARY_QUEUE_OFFSET = 11
TEXT_BINARY_TRANSACTION_ID = 12
TEXT_JSON_PULL_MAX = 13
TEXT_JSON_MIN_OFFSET = 14
TEXT_JSON_NEXT_OFFSET = 15
TEXT_JSON_PULL_OPAQUE = 16
TEXT_JSON_PULL_END = 17
TEXT_BINARY_MAX_OFFSET = 18
TEXT_BINARY_MIN_OFFSET = 19
TEXT_BINARY_NEXT_OFFSET = 20
TEXT_BINARY_SUGGEST = 21

MAX_EVENTS = 256
MAX_FRAME = 16 * 1024 * 1024
MAX_PROPERTIES = 32767
MAX_BATCH_ITEMS = 256
MAX_ASKED_BYTES = 512 * 1024  # a pull that asks for more than this is not worth a fast lane
RESPONSE_ROOM = 640  # a response of a send, or the header of a pull response, with the longest UNIQ_KEY
ID_CHARS = 33  # an offset message id and a comma, in the response to a batch
MAX_UNIQUE_KEY = 128
SYS_ORDINARY = 0xC | 0x40 | 0x80  # transaction bits, need-unwrap, inner batch
PULL_COMMITS = 1
PULL_HAS_SUBSCRIPTION = 4
PULL_CLASS_FILTER = 8

NAME_TAGS = field_name("TAGS")
NAME_UNIQUE_KEY = field_name("UNIQ_KEY")


def names_table(slots: dict[str, int]) -> Integers:
    """Pairs (name, slot) of header fields, sorted by name."""
    table = array("q")
    for name, slot in sorted((field_name(name), slot) for name, slot in slots.items()):
        table.append(name)
        table.append(slot)
    return table


SEND_NAMES = names_table(layout.SEND_FIELDS)
PULL_NAMES = names_table(layout.PULL_FIELDS)
# A message with one of these properties takes the ordinary way.
RESERVED_NAMES = array("q", sorted(field_name(name) for name in layout.RESERVED_PROPERTIES))


def slot_of(table: Integers, name: int) -> int:
    """The slot of a field name, -1 when it is none of the table's."""
    low = 0
    high = len(table) // 2
    while low < high:
        middle = (low + high) // 2
        if table[2 * middle] < name:
            low = middle + 1
        else:
            high = middle
    if 2 * low < len(table) and table[2 * low] == name:
        return table[2 * low + 1]
    return -1


def is_reserved(table: Integers, name: int) -> bool:
    low = 0
    high = len(table)
    while low < high:
        middle = (low + high) // 2
        if table[middle] < name:
            low = middle + 1
        else:
            high = middle
    return low < len(table) and table[low] == name


def put_decimal(out: Writable, at: int, value: int) -> int:
    """Write ``value`` as decimal text; the position behind it."""
    if value < 0:
        out[at] = 0x2D
        at += 1
        value = -value
    digits = 1
    rest = value
    while rest >= 10:
        rest = rest // 10
        digits += 1
    end = at + digits
    for i in range(digits):
        out[end - 1 - i] = 0x30 + value % 10
        value = value // 10
    return end


def put_hex(out: Writable, at: int, value: int, digits: int) -> int:
    """Write the lowest ``digits`` hexadecimal digits, upper case; the position behind them."""
    for i in range(digits):
        digit = (value >> (4 * (digits - 1 - i))) & 0xF
        out[at + i] = digit + 0x30 if digit < 10 else digit + 0x37
    return at + digits


def move_down(out: Writable, to: int, at: int, length: int) -> None:
    """Move bytes inside ``out`` to a lower place."""
    if cython.compiled:
        memmove(cython.address(out[to]), cython.address(out[at]), length)
    else:
        out[to : to + length] = out[at : at + length]


def hash_bytes(buf: Readable, pos: int, length: int, h: int) -> int:
    for i in range(pos, pos + length):
        h = (h * 131 + buf[i]) & LOW_32
    return h


def same(buf: Readable, pos: int, other: Readable, at: int, length: int) -> bool:
    if cython.compiled:
        return memcmp(cython.address(buf[pos]), cython.address(other[at]), length) == 0
    return buf[pos : pos + length] == other[at : at + length]


class Lane:
    """See the module.

    Args:
        appender: the store's inner loop.
        texts: constant parts of responses and properties, see ``lane_layout.texts``.
        max_body_bytes: larger bodies are left to the ordinary handler, which refuses them.
        max_pull_count: most messages in one pull response; ``max_pull_bytes`` likewise.
    """

    def __init__(
        self,
        appender: Appender,
        texts: dict[str, Any],
        max_body_bytes: int,
        max_pull_count: int,
        max_pull_bytes: int,
    ) -> None:
        self.a = appender
        self.scan = HeaderScan()
        self.max_body_bytes = max_body_bytes
        self.max_pull_count = max_pull_count
        self.max_pull_bytes = max_pull_bytes
        self.text = texts["text"]
        self.parts = array("q", texts["parts"])
        self.language = texts["language"]
        self.version = texts["version"]
        self.slots = array("q", bytes(8 * 16))
        self.properties = bytearray(MAX_PROPERTIES + 1024)
        self.properties_view = self.properties
        self.now_out = bytearray(1 << 20)
        self.now_view = self.now_out
        self.now_room = len(self.now_out)
        self.now_used = 0
        self.later_out = bytearray(1 << 18)
        self.later_view = self.later_out
        self.later_room = len(self.later_out)
        self.later_used = 0
        self.events_array = array("q", bytes(8 * EVENT_WIDTH * MAX_EVENTS))
        self.events = self.events_array
        self.event_count = 0
        self.lite_pull = False
        self.unique_prefix = bytes(16)
        self.unique_view = self.unique_prefix
        self.unique_month_ms = 0
        self.unique_count = 0
        self.frame_end = 0
        self.need_code = 0
        self.need_row = 0
        self.sends = 0
        self.send_bytes = 0
        self.pulled = 0
        self.pulled_bytes = 0
        self.set_topics(b"\0", array("q", bytes(8 * T_WIDTH)), array("q", bytes(8)), 0)
        self.set_pulls(b"\0", array("q", bytes(8 * G_WIDTH)), 0)

    # -- tables, filled from outside -------------------------------------------------------------------

    def set_topics(self, names: bytes, topics: Integers, rows: Integers, count: int) -> None:
        """Which topics may be sent to here: see ``lane_layout.TopicTable``."""
        self.topic_names = names
        self.topics = topics
        self.topic_rows = rows
        self.topic_slots = self._hash_slots(names, topics, count, T_WIDTH)

    def set_pulls(self, names: bytes, pulls: Integers, count: int) -> None:
        """Which (group, topic) may pull here: see ``lane_layout.PullTable``."""
        self.pull_names = names
        self.pulls = pulls
        self.pull_slots = self._hash_slots(names, pulls, count, G_WIDTH)

    def _hash_slots(self, names: bytes, table: Integers, count: int, width: int) -> Integers:
        size = 16
        while size < 2 * count:
            size *= 2
        slots = array("q", bytes(8 * size))
        for i in range(count):
            start = table[i * width]
            slot = _hash_name(names[start : start + table[i * width + 1]]) & (size - 1)
            while slots[slot] != 0:
                slot = (slot + 1) & (size - 1)
            slots[slot] = i + 1
        return slots

    def set_unique_ids(self, prefix: bytes, month_start_ms: int) -> None:
        """What the lane's own message ids begin with (10 bytes), and when their clock began."""
        self.unique_prefix = prefix
        self.unique_view = self.unique_prefix
        self.unique_month_ms = month_start_ms

    # -- the call of every chunk -----------------------------------------------------------------------

    def feed(self, buffer: Readable, start: int, end: int, born: Readable) -> int:
        """Work on whole frames from ``start``; the position behind the last one that was handled.

        :attr:`reason` says why it stopped: DONE (only an unfinished frame is left), ORDINARY (the frame up to
        :attr:`frame_end` is for the ordinary handlers), NEED_ROOM (``store.make_room(need_code, need_row)``),
        DRAIN (take the outputs), NEED_INDEX (map the index of ``need_row``).
        """
        if cython.compiled:
            with cython.nogil:
                start = self._run(cython.address(buffer[0]), start, end, cython.address(born[0]), len(born))
            return start  # noqa: RET504  # no Python object may be made without the GIL
        return self._run(buffer, start, end, born, len(born))

    def _run(self, buf: Readable, pos: int, end: int, born: Readable, born_length: int) -> int:
        while end - pos >= 8:
            total = get_i32(buf, pos)
            if total < 4 or total > MAX_FRAME:
                # Not a frame: the ordinary decoder says what is wrong with it.
                self.frame_end = end
                self.reason = ORDINARY
                return pos
            if end - pos - 4 < total:
                break
            self.frame_end = pos + 4 + total
            reason = self._frame(buf, pos + 4, self.frame_end, born, born_length)
            if reason != HANDLED:
                self.reason = reason
                return pos
            pos = self.frame_end
        self.reason = DONE
        return pos

    def _frame(self, buf: Readable, pos: int, end: int, born: Readable, born_length: int) -> int:
        if self.scan.scan(buf, pos, end) != SCAN_OK or self.scan.flag & 1:
            return ORDINARY
        code = self.scan.code
        if code in (SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_MESSAGE):
            return self._send(buf, end, born, born_length, code)
        if code == PULL_MESSAGE or (code == LITE_PULL_MESSAGE and self.lite_pull):
            return self._pull(buf)
        return ORDINARY

    def _fill_slots(self, names: Integers, first_letter: bool) -> bool:
        """Note for each known field where it is; False when a field is unknown."""
        for i in range(16):
            self.slots[i] = -1
        for i in range(self.scan.count):
            name = self.scan.names[i]
            if first_letter and 0x61 <= name < 0x61 + SEND_SLOTS:
                slot = name - 0x61
            else:
                slot = slot_of(names, name)
                if slot < 0:
                    return False
            self.slots[slot] = i
        return True

    def _number(self, buf: Readable, slot: int, default: int) -> int:
        """The number in a field, ``default`` when it is absent, INT_BAD when it is none."""
        i = self.slots[slot]
        if i < 0:
            return default
        return parse_int(buf, self.scan.starts[i], self.scan.lengths[i])

    def _is_true(self, buf: Readable, slot: int) -> bool:
        """Whether a flag is anything but absent or "false"."""
        i = self.slots[slot]
        return i >= 0 and not (self.scan.lengths[i] == 5 and buf[self.scan.starts[i]] == 0x66)

    def _find_topic(self, buf: Readable, field: int) -> int:
        """The topic's number, -1 when it is not in the table."""
        if field < 0 or self.scan.escaped[field]:
            return -1
        pos = self.scan.starts[field]
        length = self.scan.lengths[field]
        mask = len(self.topic_slots) - 1
        slot = hash_bytes(buf, pos, length, 0) & mask
        while self.topic_slots[slot] != 0:
            topic = self.topic_slots[slot] - 1
            base = topic * T_WIDTH
            if self.topics[base + T_NAME_LENGTH] == length and self._same_name(
                buf, pos, self.topic_names, self.topics[base + T_NAME_AT], length
            ):
                return topic
            slot = (slot + 1) & mask
        return -1

    def _same_name(self, buf: Readable, pos: int, names: Readable, at: int, length: int) -> bool:
        if cython.compiled:
            return length == 0 or same(buf, pos, cython.address(names[0]), at, length)
        return same(buf, pos, names, at, length)

    # -- send ------------------------------------------------------------------------------------------

    def _send(self, buf: Readable, end: int, born: Readable, born_length: int, code: int) -> int:
        if not self._fill_slots(SEND_NAMES, code != SEND_MESSAGE):
            return ORDINARY
        topic = self._find_topic(buf, self.slots[S_TOPIC])
        queue_id = self._number(buf, S_QUEUE_ID, INT_BAD)
        sys_flag = self._number(buf, S_SYS_FLAG, INT_BAD)
        born_timestamp = self._number(buf, S_BORN, INT_BAD)
        flag = self._number(buf, S_FLAG, INT_BAD)
        reconsume_times = self._number(buf, S_RECONSUME, 0)
        if (
            topic < 0
            or queue_id < 0
            or queue_id >= self.topics[topic * T_WIDTH + T_WRITE_QUEUES]
            or sys_flag < 0
            or sys_flag & SYS_ORDINARY
            or born_timestamp == INT_BAD
            or flag == INT_BAD
            or reconsume_times < 0
            or self._is_true(buf, S_UNIT_MODE)
            or self._is_true(buf, S_BATCH) != (code == SEND_BATCH_MESSAGE)
        ):
            return ORDINARY
        body = self.scan.body_start
        length = end - body
        if length <= 0 or length > self.max_body_bytes:
            return ORDINARY
        row = self.topic_rows[self.topics[topic * T_WIDTH + T_ROWS_AT] + queue_id]
        if code == SEND_BATCH_MESSAGE:
            return self._send_batch(
                buf,
                body,
                end,
                topic,
                row,
                queue_id,
                sys_flag,
                born_timestamp,
                born,
                born_length,
                reconsume_times,
            )
        if self.later_used + RESPONSE_ROOM > self.later_room:
            return DRAIN
        if cython.compiled:
            props = cython.address(self.properties_view[0])
            names = cython.address(self.topic_names[0])
        else:
            props = self.properties
            names = self.topic_names
        used = self._load_properties(buf, props, self.slots[S_PROPERTIES])
        if used >= 0:
            used = self._walk_properties(props, 0, used)
        if used < 0:
            return ORDINARY
        used = self._complete_properties(props, used)
        if used > MAX_PROPERTIES:
            return ORDINARY
        base = topic * T_WIDTH
        physical = self.a.append(
            row, queue_id, flag, sys_flag, born_timestamp, born, born_length, reconsume_times, 0,
            buf, body, length, names, self.topics[base + T_NAME_AT], self.topics[base + T_NAME_LENGTH],
            props, 0, used, self.tags_code,
        )  # fmt: skip
        if physical < 0:
            self.need_code = physical
            self.need_row = row
            return NEED_ROOM
        self.sends += 1
        self.send_bytes += length
        if self.scan.flag & 2 == 0:
            self._answer_send(physical, queue_id, self.a.get(row, Q_NEXT) - 1, 1)
        return HANDLED

    def _load_properties(self, buf: Readable, props: Writable, field: int) -> int:
        """Copy the properties field to the scratch buffer; its length, -1 for the ordinary way."""
        if field < 0:
            return 0
        length = self.scan.lengths[field]
        if length > MAX_PROPERTIES:
            return -1
        start = self.scan.starts[field]
        if self.scan.escaped[field]:
            length = unescape(buf, start, length, props, 0, MAX_PROPERTIES)
        else:
            copy(props, 0, buf, start, length)
        if length > 0 and props[length - 1] != 0x02:
            props[length] = 0x02
            length += 1
        return length

    def _walk_properties(self, props: Readable, at: int, end: int) -> int:
        """Check ``name 0x01 value 0x02`` pairs, note tags and UNIQ_KEY; ``end``, -1 when one is not plain."""
        self.tags_code = 0
        self.unique_at = -1
        while at < end:
            h = 0
            start = at
            while at < end and props[at] != 0x01:
                h = (h * 131 + props[at]) & LOW_32
                if props[at] == 0x02:
                    return -1
                at += 1
            if at == start or at >= end:
                return -1
            at += 1
            start = at
            while at < end and props[at] != 0x02:
                if props[at] == 0x01:
                    return -1
                at += 1
            if at == start or at >= end:
                return -1
            if h == NAME_TAGS:
                if not self._hash_tags(props, start, at):
                    return -1
            elif h == NAME_UNIQUE_KEY:
                if at - start > MAX_UNIQUE_KEY:
                    return -1
                for i in range(start, at):
                    if props[i] < 0x20 or props[i] > 0x7E or props[i] == 0x22 or props[i] == 0x5C:
                        return -1
                self.unique_at = start
                self.unique_length = at - start
            elif is_reserved(RESERVED_NAMES, h):
                return -1
            at += 1
        return end

    def _hash_tags(self, props: Readable, at: int, end: int) -> bool:
        """Java's hash of an ASCII tag; False for any other."""
        code = 0
        while at < end:
            if props[at] >= 0x80:
                return False
            code = (code * 31 + props[at]) & LOW_32
            at += 1
        self.tags_code = code if code < SIGN_32 else code - SIGN_32 - SIGN_32
        return True

    def _complete_properties(self, props: Writable, used: int) -> int:
        """Add what the broker adds to a single send; the new length."""
        if self.unique_at < 0:
            used = self._text(props, used, TEXT_UNIQUE_NAME)
            self.unique_at = used
            self.unique_length = 32
            for i in range(10):
                used = put_hex(props, used, self.unique_view[i], 2)
            used = put_hex(props, used, self.a.now_ms - self.unique_month_ms, 8)
            used = put_hex(props, used, self.unique_count, 4)
            self.unique_count = (self.unique_count + 1) & 0xFFFF
            props[used] = 0x02
            used += 1
        return self._text(props, used, TEXT_BROKER_PROPERTIES)

    def _text(self, out: Writable, at: int, part: int) -> int:
        """Write constant text number ``part``; the position behind it."""
        start = self.parts[part]
        length = self.parts[part + 1] - start
        if cython.compiled:
            copy(out, at, cython.address(self.text[0]), start, length)
        else:
            copy(out, at, self.text, start, length)
        return at + length

    # -- batch -----------------------------------------------------------------------------------------

    def _send_batch(
        self,
        buf: Readable,
        body: int,
        end: int,
        topic: int,
        row: int,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born: Readable,
        born_length: int,
        reconsume_times: int,
    ) -> int:
        base = topic * T_WIDTH
        topic_length = self.topics[base + T_NAME_LENGTH]
        # First look at all items, so that the batch goes in as a whole or not at all.
        count = 0
        size = 0
        at = body
        while at < end:
            if count >= MAX_BATCH_ITEMS or end - at < 22:
                return ORDINARY
            total = get_i32(buf, at)
            length = get_i32(buf, at + 16)
            if total < 22 or total > end - at or length <= 0 or length > total - 22:
                return ORDINARY
            props_length = (buf[at + 20 + length] << 8) | buf[at + 21 + length]
            if 22 + length + props_length != total:
                return ORDINARY
            if self._walk_item(buf, at + 22 + length, props_length) < 0:
                return ORDINARY
            size += self.a.record_bytes(length, topic_length, props_length, born_length)
            count += 1
            at += total
        if count == 0:
            return ORDINARY
        if self.later_used + RESPONSE_ROOM + count * ID_CHARS > self.later_room:
            return DRAIN
        room = self.a.check_room(row, size, count)
        if room != 0:
            self.need_code = room
            self.need_row = row
            return NEED_ROOM
        if cython.compiled:
            names = cython.address(self.topic_names[0])
        else:
            names = self.topic_names
        first_offset = self.a.get(row, Q_NEXT)
        first = self.a.turn_base + self.a.turn_used
        at = body
        while at < end:
            total = get_i32(buf, at)
            length = get_i32(buf, at + 16)
            props_length = (buf[at + 20 + length] << 8) | buf[at + 21 + length]
            self._walk_item(buf, at + 22 + length, props_length)
            self.a.append(
                row, queue_id, get_i32(buf, at + 12), sys_flag, born_timestamp, born, born_length,
                reconsume_times, 0, buf, at + 20, length, names, self.topics[base + T_NAME_AT], topic_length,
                buf, at + 22 + length, props_length, self.tags_code,
            )  # fmt: skip
            at += total
        self.sends += count
        self.send_bytes += end - body
        if self.scan.flag & 2 == 0:
            self._answer_send(first, queue_id, first_offset, count)
        return HANDLED

    def _walk_item(self, buf: Readable, at: int, length: int) -> int:
        """:meth:`_walk_properties` of a batch item; one without its last end mark is left to the handler."""
        if length == 0:
            self.tags_code = 0
            return 0
        if buf[at + length - 1] != 0x02:
            return -1
        return self._walk_properties(buf, at, at + length)

    # -- responses -------------------------------------------------------------------------------------

    def _answer_send(self, physical: int, queue_id: int, queue_offset: int, count: int) -> None:
        """Encode the response to a send behind the others; ``count`` records begin at ``physical``."""
        if cython.compiled:
            out = cython.address(self.later_view[0])
        else:
            out = self.later_out
        start = self.later_used
        if self.scan.binary:
            at = self._binary_send(out, start + 8, physical, queue_id, queue_offset, count)
            kind = 1
        else:
            at = self._json_send(out, start + 8, physical, queue_id, queue_offset, count)
            kind = 0
        put_i32(out, start, at - start - 4)
        put_i32(out, start + 4, (kind << 24) | (at - start - 8))
        self.later_used = at

    def _ids(self, out: Writable, at: int, physical: int, count: int) -> int:
        """Offset message ids of ``count`` records from ``physical`` on, joined by commas."""
        if count == 1:
            at = self._text(out, at, TEXT_HOST_HEX)
            return put_hex(out, at, physical, 16)
        if cython.compiled:
            log = cython.address(self.a.turn_view[0])
        else:
            log = self.a.turn
        for i in range(count):
            if i > 0:
                out[at] = 0x2C
                at += 1
            at = self._text(out, at, TEXT_HOST_HEX)
            at = put_hex(out, at, physical, 16)
            physical += get_i32(log, physical - self.a.turn_base)
        return at

    def _json_send(
        self, out: Writable, at: int, physical: int, queue_id: int, queue_offset: int, count: int
    ) -> int:
        at = self._text(out, at, TEXT_JSON_SEND_IDS)
        at = self._ids(out, at, physical, count)
        at = self._text(out, at, TEXT_JSON_QUEUE_ID)
        at = put_decimal(out, at, queue_id)
        at = self._text(out, at, TEXT_JSON_QUEUE_OFFSET)
        at = put_decimal(out, at, queue_offset)
        if count == 1 and self.scan.code != SEND_BATCH_MESSAGE:
            at = self._text(out, at, TEXT_JSON_TRANSACTION_ID)
            at = self._unique_key(out, at)
        at = self._text(out, at, TEXT_JSON_OPAQUE)
        at = put_decimal(out, at, self.scan.opaque)
        return self._text(out, at, TEXT_JSON_END)

    def _unique_key(self, out: Writable, at: int) -> int:
        if cython.compiled:
            copy(out, at, cython.address(self.properties_view[0]), self.unique_at, self.unique_length)
        else:
            copy(out, at, self.properties, self.unique_at, self.unique_length)
        return at + self.unique_length

    def _binary_head(self, out: Writable, at: int) -> int:
        """A binary header up to its fields; their length is filled in by :meth:`_binary_close`."""
        put_i16(out, at, 0)
        out[at + 2] = self.language
        put_i16(out, at + 3, self.version)
        put_i32(out, at + 5, self.scan.opaque)
        put_i32(out, at + 9, 1)
        put_i32(out, at + 13, 0)
        return at + 21

    def _binary_close(self, out: Writable, fields: int, at: int) -> int:
        put_i32(out, fields - 4, at - fields)
        return at

    def _binary_value(self, out: Writable, value_at: int, at: int) -> int:
        """Fill in the length of a value that begins at ``value_at``."""
        put_i32(out, value_at - 4, at - value_at)
        return at

    def _binary_send(
        self, out: Writable, at: int, physical: int, queue_id: int, queue_offset: int, count: int
    ) -> int:
        fields = self._binary_head(out, at)
        start = self._text(out, fields, TEXT_BINARY_SEND_IDS)
        at = self._binary_value(out, start, self._ids(out, start, physical, count))
        start = self._text(out, at, TEXT_BINARY_QUEUE_ID)
        at = self._binary_value(out, start, put_decimal(out, start, queue_id))
        start = self._text(out, at, TEXT_BINARY_QUEUE_OFFSET)
        at = self._binary_value(out, start, put_decimal(out, start, queue_offset))
        if count == 1 and self.scan.code != SEND_BATCH_MESSAGE:
            start = self._text(out, at, TEXT_BINARY_TRANSACTION_ID)
            at = self._binary_value(out, start, self._unique_key(out, start))
        return self._binary_close(out, fields, at)

    # -- pull ------------------------------------------------------------------------------------------

    def _find_pull(self, buf: Readable, group: int, topic: int) -> int:
        """The row of (group, topic), -1 when pulling is not cleared for it."""
        if group < 0 or topic < 0 or self.scan.escaped[group] or self.scan.escaped[topic]:
            return -1
        group_at = self.scan.starts[group]
        group_length = self.scan.lengths[group]
        topic_at = self.scan.starts[topic]
        topic_length = self.scan.lengths[topic]
        mask = len(self.pull_slots) - 1
        h = hash_bytes(buf, group_at, group_length, 0)
        h = (h * 131) & LOW_32  # the zero byte between the two names
        slot = hash_bytes(buf, topic_at, topic_length, h) & mask
        while self.pull_slots[slot] != 0:
            pull = self.pull_slots[slot] - 1
            at = self.pulls[pull * G_WIDTH + G_NAME_AT]
            if (
                self.pulls[pull * G_WIDTH + G_NAME_LENGTH] == group_length + 1 + topic_length
                and self._same_name(buf, group_at, self.pull_names, at, group_length)
                and self.pull_names[at + group_length] == 0
                and self._same_name(buf, topic_at, self.pull_names, at + group_length + 1, topic_length)
            ):
                return pull
            slot = (slot + 1) & mask
        return -1

    def _pull(self, buf: Readable) -> int:
        if not self._fill_slots(PULL_NAMES, False):
            return ORDINARY
        pull = self._find_pull(buf, self.slots[P_GROUP], self.slots[P_TOPIC])
        if pull < 0:
            return ORDINARY
        base = pull * G_WIDTH
        topic = self.pulls[base + G_TOPIC]
        sys_flag = self._number(buf, P_SYS_FLAG, INT_BAD)
        queue_id = self._number(buf, P_QUEUE_ID, INT_BAD)
        offset = self._number(buf, P_OFFSET, INT_BAD)
        max_count = self._number(buf, P_MAX_COUNT, INT_BAD)
        commit_offset = self._number(buf, P_COMMIT_OFFSET, INT_BAD)
        max_bytes = self._number(buf, P_MAX_BYTES, self.max_pull_bytes)
        if (
            sys_flag < 0
            or sys_flag & PULL_CLASS_FILTER
            or queue_id < 0
            or queue_id >= self.topics[topic * T_WIDTH + T_READ_QUEUES]
            or max_count <= 0
            or max_bytes < 0
            or commit_offset == INT_BAD
        ):
            return ORDINARY
        if sys_flag & PULL_HAS_SUBSCRIPTION:
            if not self._takes_all(buf):
                return ORDINARY
            filter_at = 0
            filter_count = -1
        else:
            filter_at = self.pulls[base + G_FILTER_AT]
            filter_count = self.pulls[base + G_FILTER_COUNT]
            if (
                filter_count == NO_SUBSCRIPTION
                or self._number(buf, P_SUB_VERSION, 0) > self.pulls[base + G_VERSION]
            ):
                return ORDINARY
        row = self.topic_rows[self.topics[topic * T_WIDTH + T_ROWS_AT] + queue_id]
        last = self.a.get(row, Q_VISIBLE)
        if offset < self.a.get(row, Q_MIN) or offset >= last:
            return ORDINARY
        if max_count > self.max_pull_count:
            max_count = self.max_pull_count
        if max_bytes == 0:
            max_bytes = self.max_pull_bytes
        if max_bytes > MAX_ASKED_BYTES:
            return ORDINARY
        if self.event_count >= MAX_EVENTS or self.now_used + RESPONSE_ROOM + max_bytes > self.now_room:
            return DRAIN
        return self._answer_pull(
            pull, queue_id, commit_offset, sys_flag, row, offset, last, max_count, max_bytes,
            filter_at, filter_count,
        )  # fmt: skip

    def _takes_all(self, buf: Readable) -> bool:
        """Whether the request's own subscription is ``*`` by tags."""
        i = self.slots[P_SUBSCRIPTION]
        if i < 0 or self.scan.lengths[i] != 1 or buf[self.scan.starts[i]] != 0x2A:
            return False
        i = self.slots[P_EXPRESSION_TYPE]
        return i < 0 or (self.scan.lengths[i] == 3 and buf[self.scan.starts[i]] == 0x54)

    def _answer_pull(
        self,
        pull: int,
        queue_id: int,
        commit_offset: int,
        sys_flag: int,
        row: int,
        offset: int,
        last: int,
        max_count: int,
        max_bytes: int,
        filter_at: int,
        filter_count: int,
    ) -> int:
        if cython.compiled:
            out = cython.address(self.now_view[0])
        else:
            out = self.now_out
        start = self.now_used
        body = start + RESPONSE_ROOM
        status = self.a.read(
            row, offset, last, max_count, max_bytes, filter_at, filter_count, out, body, self.now_room - body
        )
        if status == READ_NEED_INDEX:
            self.need_row = row
            return NEED_INDEX
        if status != READ_FOUND:
            return ORDINARY
        event = self.event_count * EVENT_WIDTH
        self.events[event] = pull
        self.events[event + 1] = queue_id
        self.events[event + 2] = commit_offset if sys_flag & PULL_COMMITS else -1
        self.events[event + 3] = self.a.read_next
        self.event_count += 1
        self.pulled += self.a.read_count
        self.pulled_bytes += self.a.read_bytes
        if self.scan.binary:
            at = self._binary_pull(out, start + 8, row, last)
            kind = 1
        else:
            at = self._json_pull(out, start + 8, row, last)
            kind = 0
        header = at - start - 8
        move_down(out, at, body, self.a.read_bytes)
        at += self.a.read_bytes
        put_i32(out, start, at - start - 4)
        put_i32(out, start + 4, (kind << 24) | header)
        self.now_used = at
        return HANDLED

    def _json_pull(self, out: Writable, at: int, row: int, last: int) -> int:
        at = self._text(out, at, TEXT_JSON_PULL_MAX)
        at = put_decimal(out, at, last)
        at = self._text(out, at, TEXT_JSON_MIN_OFFSET)
        at = put_decimal(out, at, self.a.get(row, Q_MIN))
        at = self._text(out, at, TEXT_JSON_NEXT_OFFSET)
        at = put_decimal(out, at, self.a.read_next)
        at = self._text(out, at, TEXT_JSON_PULL_OPAQUE)
        at = put_decimal(out, at, self.scan.opaque)
        return self._text(out, at, TEXT_JSON_PULL_END)

    def _binary_pull(self, out: Writable, at: int, row: int, last: int) -> int:
        fields = self._binary_head(out, at)
        start = self._text(out, fields, TEXT_BINARY_MAX_OFFSET)
        at = self._binary_value(out, start, put_decimal(out, start, last))
        start = self._text(out, at, TEXT_BINARY_MIN_OFFSET)
        at = self._binary_value(out, start, put_decimal(out, start, self.a.get(row, Q_MIN)))
        start = self._text(out, at, TEXT_BINARY_NEXT_OFFSET)
        at = self._binary_value(out, start, put_decimal(out, start, self.a.read_next))
        at = self._text(out, at, TEXT_BINARY_SUGGEST)
        return self._binary_close(out, fields, at)


def _hash_name(name: bytes) -> int:
    h = 0
    for c in name:
        h = (h * 131 + c) & LOW_32
    return h
