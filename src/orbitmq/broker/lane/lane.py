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
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.lane import layout
from orbitmq.broker.lane.properties import Properties
from orbitmq.broker.lane.responses import Responses
from orbitmq.broker.lane.tables import FieldTable, NameTable
from orbitmq.store import layout as store_layout
from orbitmq.wire.scan import HeaderScan

if TYPE_CHECKING:
    from orbitmq.broker.lane.layout import Texts
    from orbitmq.runtime.buffers import Integers, Readable
    from orbitmq.store.appender import Appender
    from orbitmq.store.lookup import Lookup

if not cython.compiled:
    from orbitmq.message.octets import get_i16, get_i32
    from orbitmq.wire.scan import parse_int

# C integers in the compiled module, so that no Python object is touched on the path of a message.
DONE = layout.DONE
ORDINARY = layout.ORDINARY
NEED_ROOM = layout.NEED_ROOM
DRAIN = layout.DRAIN
NEED_INDEX = layout.NEED_INDEX
PARK = layout.PARK
HANDLED = -1
SCAN_OK = 0
INT_BAD = -(1 << 62)
MAX_32 = 0x7FFFFFFF

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

# Slots of layout.SEND_FIELDS.
S_GROUP = 0
S_TOPIC = 1
S_DEFAULT_TOPIC = 2
S_DEFAULT_QUEUES = 3
S_QUEUE_ID = 4
S_SYS_FLAG = 5
S_BORN = 6
S_FLAG = 7
S_PROPERTIES = 8
S_RECONSUME = 9
S_UNIT_MODE = 10
S_MAX_RECONSUME = 11
S_BATCH = 12

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
T_WRITE_QUEUES = layout.T_WRITE_QUEUES
T_ROWS_AT = layout.T_ROWS_AT
G_TOPIC = layout.G_TOPIC
G_CODES_AT = layout.G_CODES_AT
G_CODES_COUNT = layout.G_CODES_COUNT
G_VERSION = layout.G_VERSION
G_TOPIC_FLAG = layout.G_TOPIC_FLAG
G_GROUP_FLAG = layout.G_GROUP_FLAG
NO_SUBSCRIPTION = layout.NO_SUBSCRIPTION
ROW_AT = layout.ROW_AT
ROW_LENGTH = layout.ROW_LENGTH
EVENT_WIDTH = layout.EVENT_WIDTH

ONE_WAY = 2
MAX_EVENTS = 256
MAX_FRAME = 16 * 1024 * 1024
MAX_BATCH_ITEMS = 256
MIN_ITEM_BYTES = 22
MAX_ASKED_BYTES = 512 * 1024  # a pull that asks for more than this is not worth a fast lane
ID_CHARS = 48  # an offset message id and a comma, in the response to a batch; more with an IPv6 address
LATER_BYTES = 1 << 18
NOW_BYTES = 1 << 20
SYS_ORDINARY = 0xC | 0x40 | 0x80  # transaction bits, need-unwrap, inner batch
PULL_COMMITS = 1
PULL_SUSPENDS = 2
PULL_HAS_SUBSCRIPTION = 4
PULL_CLASS_FILTER = 8


class Lane:
    """See the module.

    Args:
        appender, lookup: the store's inner loops.
        texts: constant parts of responses and properties.
        max_body_bytes: larger bodies are left to the ordinary handler, which refuses them.
        max_pull_count: most messages in one pull response; ``max_pull_bytes`` likewise.
        sync_flush: responses wait for the device, except those to messages that say WAIT=false.
    """

    def __init__(
        self,
        appender: Appender,
        lookup: Lookup,
        texts: Texts,
        *,
        max_body_bytes: int,
        max_pull_count: int,
        max_pull_bytes: int,
        sync_flush: bool,
    ) -> None:
        self.a = appender
        self.lookup = lookup
        self.scan = HeaderScan()
        self.max_body_bytes = max_body_bytes
        self.max_pull_count = max_pull_count
        self.max_pull_bytes = max_pull_bytes
        self.sync_flush = sync_flush
        self.lite_pull = False
        self.parks = False
        self.park_offset = 0
        self.park_ms = 0
        slots = array("q", bytes(8 * layout.MAX_SLOTS))
        self.slots = slots
        self.v1_fields = FieldTable(layout.SEND_FIELDS, S_PROPERTIES, slots)
        self.v2_fields = FieldTable(layout.SEND_V2_FIELDS, S_PROPERTIES, slots)
        self.pull_fields = FieldTable(layout.PULL_FIELDS, -1, slots)
        self.props = Properties(texts.added)
        self.now = Responses(texts, NOW_BYTES)
        self.later = Responses(texts, LATER_BYTES)
        self.events_array = array("q", bytes(8 * EVENT_WIDTH * MAX_EVENTS))
        self.events = self.events_array
        self.event_count = 0
        self.topics = NameTable(layout.T_WIDTH)
        self.pulls = NameTable(layout.G_WIDTH)
        self.topic_rows = array("q", bytes(8))
        self.codes = array("q", bytes(8))
        self.reason = DONE
        self.frame_end = 0
        self.need_code = 0
        self.need_row = 0
        self.sends = 0
        self.pulled = 0

    # -- tables, filled from outside -------------------------------------------------------------------

    def set_topics(self, names: bytes, topics: Integers, rows: Integers, count: int) -> None:
        """Which topics may be sent to here: see ``layout.topic_table``."""
        self.topics.set(names, topics, count)
        self.topic_rows = rows
        # Pulls name topics by their number.
        self.set_pulls(*layout.pull_table([]))

    def set_pulls(self, names: bytes, pulls: Integers, codes: Integers, count: int) -> None:
        """Which (group, topic) may pull here: see ``layout.pull_table``."""
        self.pulls.set(names, pulls, count)
        self.codes = codes

    def set_unique_ids(self, prefix: bytes, start_ms: int) -> None:
        """See ``Properties.set_unique_ids``."""
        self.props.set_unique_ids(prefix, start_ms)

    # -- the call of every chunk -----------------------------------------------------------------------

    def feed(self, buffer: Readable, start: int, end: int, born: Readable) -> int:
        """Work on whole frames from ``start``; the position behind the last one that was handled.

        :attr:`reason` says why it stopped: DONE (only an unfinished frame is left), ORDINARY (the frame up to
        :attr:`frame_end` is for the ordinary handlers), NEED_ROOM (``store.make_room(need_code, need_row)``),
        DRAIN (take the outputs), NEED_INDEX (map the index of ``need_row``), PARK (the frame is a pull that
        waits up to ``park_ms`` for messages from ``park_offset`` on; its event names the queue).

        Raises:
            ValueError: positions outside of ``buffer``, or ``born`` is no address of a record.
        """
        if start < 0 or start > end or end > len(buffer) or len(born) not in (8, 20):
            raise ValueError(f"{start} to {end} of {len(buffer)} bytes, from an address of {len(born)} bytes")
        if start == end:
            self.reason = DONE
            return start
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

    # -- fields of the header --------------------------------------------------------------------------

    def _number(self, buf: Readable, slot: int, default: int) -> int:
        """The number in a field, ``default`` when it is absent, INT_BAD when it is none."""
        i = self.slots[slot]
        if i < 0:
            return default
        return parse_int(buf, self.scan.starts[i], self.scan.lengths[i])

    def _number_32(self, buf: Readable, slot: int, default: int) -> int:
        """As :meth:`_number`; what is beyond 32 bits is no number either."""
        value = self._number(buf, slot, default)
        return value if -MAX_32 <= value <= MAX_32 else INT_BAD

    def _is_false(self, buf: Readable, slot: int) -> bool:
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

    def _is_true(self, buf: Readable, slot: int) -> bool:
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

    def _find_topic(self, buf: Readable) -> int:
        i = self.slots[S_TOPIC]
        if i < 0:
            return -1
        return self.topics.find(buf, self.scan.starts[i], self.scan.lengths[i])

    # -- send ------------------------------------------------------------------------------------------

    def _send(self, buf: Readable, end: int, born: Readable, born_length: int, code: int) -> int:
        if code == SEND_MESSAGE:
            known = self.v1_fields.fill(buf, self.scan)
        else:
            known = self.v2_fields.fill(buf, self.scan)
        if not known:
            return ORDINARY
        topic = self._find_topic(buf)
        if topic < 0 or not self._send_is_plain(buf, code):
            return ORDINARY
        queue_id = self._number(buf, S_QUEUE_ID, INT_BAD)
        if queue_id < 0 or queue_id >= self.topics.get(topic, T_WRITE_QUEUES):
            return ORDINARY
        length = end - self.scan.body_start
        if length <= 0 or length > self.max_body_bytes:
            return ORDINARY
        i = self.slots[S_PROPERTIES]
        if i < 0:
            i = self.props.load(buf, 0, 0, False)
        else:
            i = self.props.load(buf, self.scan.starts[i], self.scan.lengths[i], self.scan.escaped[i] != 0)
        if i == 0:
            return ORDINARY
        row = self.topic_rows[self.topics.get(topic, T_ROWS_AT) + queue_id]
        if code == SEND_BATCH_MESSAGE:
            return self._send_batch(buf, self.scan.body_start, end, topic, row, queue_id, born, born_length)
        return self._send_single(buf, length, topic, row, queue_id, born, born_length)

    def _send_is_plain(self, buf: Readable, code: int) -> bool:
        """Whether all fields are there and as an ordinary producer fills them; sets ``send_*``."""
        self.send_sys_flag = self._number_32(buf, S_SYS_FLAG, INT_BAD)
        self.send_flag = self._number_32(buf, S_FLAG, INT_BAD)
        self.send_born = self._number(buf, S_BORN, INT_BAD)
        self.send_reconsumed = self._number_32(buf, S_RECONSUME, 0)
        return not (
            self.slots[S_GROUP] < 0
            or self.slots[S_DEFAULT_TOPIC] < 0
            or self._number_32(buf, S_DEFAULT_QUEUES, INT_BAD) == INT_BAD
            or self._number_32(buf, S_MAX_RECONSUME, 0) == INT_BAD
            or self.send_sys_flag < 0
            or self.send_sys_flag & SYS_ORDINARY
            or self.send_born == INT_BAD
            or self.send_flag == INT_BAD
            or self.send_reconsumed < 0
            or not self._is_false(buf, S_UNIT_MODE)
            or not (
                self._is_true(buf, S_BATCH) if code == SEND_BATCH_MESSAGE else self._is_false(buf, S_BATCH)
            )
        )

    def _no_output(self, ids_bytes: int) -> bool:
        """Whether the response to a send would not fit."""
        return not self.later.has_room(ids_bytes) or not self.now.has_room(ids_bytes)

    def _room_for(self, row: int, size: int, count: int) -> int:
        """HANDLED when the records can be appended now, else what to do before."""
        if self.a.never_fits(size, count):
            return ORDINARY
        room = self.a.check_room(row, size, count)
        if room == 0:
            return HANDLED
        self.need_code = room
        self.need_row = row
        return NEED_ROOM

    def _send_single(
        self,
        buf: Readable,
        length: int,
        topic: int,
        row: int,
        queue_id: int,
        born: Readable,
        born_length: int,
    ) -> int:
        if self._no_output(0):
            return DRAIN
        if not self.props.complete(self.a.now_ms):
            return ORDINARY
        name_length = self.topics.get(topic, ROW_LENGTH)
        size = self.a.record_bytes(length, name_length, self.props.used, born_length)
        room = self._room_for(row, size, 1)
        if room != HANDLED:
            return room
        if cython.compiled:
            data = cython.address(self.props.view[0])
            names = cython.address(self.topics.names[0])
        else:
            data = self.props.data
            names = self.topics.names
        physical = self.a.append(
            row, queue_id, self.send_flag, self.send_sys_flag, self.send_born, born, born_length,
            self.send_reconsumed, 0, buf, self.scan.body_start, length,
            names, self.topics.get(topic, ROW_AT), name_length,
            data, 0, self.props.used, self.props.tags_code,
        )  # fmt: skip
        self.sends += 1
        self._answer_send(
            physical, queue_id, self.a.get(row, Q_NEXT) - 1, 1,
            self.props.waits, self.props.unique_at, self.props.unique_length,
        )  # fmt: skip
        return HANDLED

    def _answer_send(
        self,
        physical: int,
        queue_id: int,
        queue_offset: int,
        count: int,
        waits: bool,
        unique_at: int,
        unique_length: int,
    ) -> None:
        if self.scan.flag & ONE_WAY:
            return
        if cython.compiled:
            data = cython.address(self.props.view[0])
            records = cython.address(self.a.turn_view[physical - self.a.turn_base])
        else:
            data = self.props.data
            records = memoryview(self.a.turn)[physical - self.a.turn_base :]
        if waits or not self.sync_flush:
            self.later.answer_send(
                self.scan, physical, queue_id, queue_offset, count, records, data, unique_at, unique_length
            )
        else:
            self.now.answer_send(
                self.scan, physical, queue_id, queue_offset, count, records, data, unique_at, unique_length
            )

    # -- batch -----------------------------------------------------------------------------------------

    def _send_batch(
        self, buf: Readable, body: int, end: int, topic: int, row: int, queue_id: int, born: Readable,
        born_length: int,
    ) -> int:  # fmt: skip
        # Reading the items forgets what the header's properties said.
        waits = self.props.waits
        unique_at = self.props.unique_at
        unique_length = self.props.unique_length
        # First look at all items, so that the batch goes in as a whole or not at all.
        size = self._batch_size(buf, body, end, self.topics.get(topic, ROW_LENGTH), born_length)
        if size <= 0:
            return ORDINARY
        count = self.batch_count
        if self._no_output(count * ID_CHARS):
            return DRAIN
        room = self._room_for(row, size, count)
        if room != HANDLED:
            return room
        first_offset = self.a.get(row, Q_NEXT)
        first = self.a.turn_base + self.a.turn_used
        self._append_items(buf, body, end, topic, row, queue_id, born, born_length)
        self.sends += count
        self._answer_send(first, queue_id, first_offset, count, waits, unique_at, unique_length)
        return HANDLED

    def _batch_size(self, buf: Readable, at: int, end: int, name_length: int, born_length: int) -> int:
        """Bytes that the items need as records, and ``batch_count``; 0 when one of them is not plain."""
        count = 0
        size = 0
        while at < end:
            if count >= MAX_BATCH_ITEMS or end - at < MIN_ITEM_BYTES:
                return 0
            total = get_i32(buf, at)
            length = get_i32(buf, at + 16)
            if (
                total < MIN_ITEM_BYTES
                or total > end - at
                or length <= 0
                or length > total - MIN_ITEM_BYTES
                or length > self.max_body_bytes
            ):
                return 0
            props_at = at + MIN_ITEM_BYTES + length
            props_length = get_i16(buf, props_at - 2)
            if MIN_ITEM_BYTES + length + props_length != total or props_length < 0:
                return 0
            if props_length > 0 and buf[props_at + props_length - 1] != 0x02:
                return 0
            if not self.props.check(buf, props_at, props_length):
                return 0
            size += self.a.record_bytes(length, name_length, props_length, born_length)
            count += 1
            at += total
        self.batch_count = count
        return size

    def _append_items(
        self, buf: Readable, at: int, end: int, topic: int, row: int, queue_id: int, born: Readable,
        born_length: int,
    ) -> None:  # fmt: skip
        if cython.compiled:
            names = cython.address(self.topics.names[0])
        else:
            names = self.topics.names
        while at < end:
            total = get_i32(buf, at)
            length = get_i32(buf, at + 16)
            props_at = at + MIN_ITEM_BYTES + length
            props_length = get_i16(buf, props_at - 2)
            self.props.check(buf, props_at, props_length)
            self.a.append(
                row, queue_id, get_i32(buf, at + 12), self.send_sys_flag, self.send_born, born, born_length,
                self.send_reconsumed, 0, buf, at + 20, length,
                names, self.topics.get(topic, ROW_AT), self.topics.get(topic, ROW_LENGTH),
                buf, props_at, props_length, self.props.tags_code,
            )  # fmt: skip
            at += total

    # -- pull ------------------------------------------------------------------------------------------

    def _pull(self, buf: Readable) -> int:
        if self.scan.flag & ONE_WAY or not self.pull_fields.fill(buf, self.scan):
            return ORDINARY
        if self.slots[P_GROUP] < 0 or self.slots[P_TOPIC] < 0:
            return ORDINARY
        pull = self.pulls.find_pair(
            buf, self.scan.starts[self.slots[P_GROUP]], self.scan.lengths[self.slots[P_GROUP]],
            self.scan.starts[self.slots[P_TOPIC]], self.scan.lengths[self.slots[P_TOPIC]],
        )  # fmt: skip
        if pull < 0:
            return ORDINARY
        topic = self.pulls.get(pull, G_TOPIC)
        sys_flag = self._number_32(buf, P_SYS_FLAG, INT_BAD)
        queue_id = self._number(buf, P_QUEUE_ID, INT_BAD)
        sub_version = self._number(buf, P_SUB_VERSION, INT_BAD)
        if (
            sys_flag < 0
            or sys_flag & PULL_CLASS_FILTER
            or queue_id < 0
            or queue_id >= self.topics.get(topic, T_READ_QUEUES)
            or sub_version == INT_BAD
            or self._number(buf, P_COMMIT_OFFSET, INT_BAD) == INT_BAD
            or self._number(buf, P_SUSPEND, INT_BAD) == INT_BAD
            or self._number_32(buf, P_SOURCE, 0) == INT_BAD
        ):
            return ORDINARY
        codes_count = self.pulls.get(pull, G_CODES_COUNT)
        if sys_flag & PULL_HAS_SUBSCRIPTION:
            if not self._takes_all(buf):
                return ORDINARY
            codes_count = -1
        elif codes_count == NO_SUBSCRIPTION or sub_version > self.pulls.get(pull, G_VERSION):
            return ORDINARY
        row = self.topic_rows[self.topics.get(topic, T_ROWS_AT) + queue_id]
        return self._read(buf, pull, queue_id, sys_flag, row, codes_count)

    def _takes_all(self, buf: Readable) -> bool:
        """Whether the request's own subscription is ``*`` by tags."""
        i = self.slots[P_SUBSCRIPTION]
        if i < 0 or self.scan.lengths[i] != 1 or buf[self.scan.starts[i]] != 0x2A:
            return False
        i = self.slots[P_EXPRESSION_TYPE]
        if i < 0:
            return True
        at = self.scan.starts[i]
        return self.scan.lengths[i] == 3 and buf[at] == 0x54 and buf[at + 1] == 0x41 and buf[at + 2] == 0x47

    def _read(
        self, buf: Readable, pull: int, queue_id: int, sys_flag: int, row: int, codes_count: int
    ) -> int:
        offset = self._number(buf, P_OFFSET, INT_BAD)
        max_count = self._number_32(buf, P_MAX_COUNT, INT_BAD)
        max_bytes = self._number_32(buf, P_MAX_BYTES, 0)
        lowest = self.a.get(row, Q_MIN)
        highest = self.a.get(row, Q_VISIBLE)
        if offset < lowest or offset > highest or max_count <= 0 or max_bytes < 0:
            return ORDINARY
        if offset == highest:
            return self._park(buf, pull, queue_id, sys_flag, offset, codes_count)
        if max_count > self.max_pull_count:
            max_count = self.max_pull_count
        if max_bytes == 0:
            max_bytes = self.max_pull_bytes
        if max_bytes > MAX_ASKED_BYTES:
            return ORDINARY
        if self.event_count >= MAX_EVENTS or not self.now.has_room(max_bytes):
            return DRAIN
        if cython.compiled:
            out = cython.address(self.now.view[0])
            codes = cython.address(self.codes[0])
        else:
            out = self.now.data
            codes = self.codes
        body = self.now.body_at()
        status = self.lookup.read(
            row, offset, highest, max_count, max_bytes, codes, self.pulls.get(pull, G_CODES_AT), codes_count,
            out, body, self.now.size - body,
        )  # fmt: skip
        if status == READ_NEED_INDEX:
            self.need_row = row
            return NEED_INDEX
        if status != READ_FOUND:
            return ORDINARY
        self._note_event(pull, queue_id, self._number(buf, P_COMMIT_OFFSET, -1), sys_flag)
        self.now.answer_pull(
            self.scan, lowest, highest, self.lookup.read_next,
            self.pulls.get(pull, G_TOPIC_FLAG), self.pulls.get(pull, G_GROUP_FLAG), self.lookup.read_bytes,
        )  # fmt: skip
        return HANDLED

    def _park(
        self, buf: Readable, pull: int, queue_id: int, sys_flag: int, offset: int, codes_count: int
    ) -> int:
        """Leave a pull at the end of its queue to the caller, when it may wait and takes all messages."""
        if not self.parks or not sys_flag & PULL_SUSPENDS or codes_count >= 0:
            return ORDINARY
        if self.event_count >= MAX_EVENTS:
            return DRAIN
        self.lookup.read_next = offset
        self.lookup.read_count = 0
        self._note_event(pull, queue_id, self._number(buf, P_COMMIT_OFFSET, -1), sys_flag)
        self.park_offset = offset
        self.park_ms = self._number(buf, P_SUSPEND, 0)
        return PARK

    def _note_event(self, pull: int, queue_id: int, commit_offset: int, sys_flag: int) -> None:
        event = self.event_count * EVENT_WIDTH
        self.events[event] = pull
        self.events[event + 1] = queue_id
        self.events[event + 2] = commit_offset if sys_flag & PULL_COMMITS else -1
        self.events[event + 3] = self.lookup.read_next
        self.event_count += 1
        self.pulled += self.lookup.read_count
