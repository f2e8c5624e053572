# cython: annotation_typing=False
"""Plain sends, single and batch: the record goes into the store's write batch, the response is encoded.

Typed in ``sends.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.broker.fast_path import layout
from orbitmq.broker.fast_path.names import FieldTable
from orbitmq.broker.fast_path.properties import Properties
from orbitmq.broker.fast_path.responses import Responses
from orbitmq.store.queues import layout as store_layout

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.fields import Fields
    from orbitmq.broker.fast_path.keys import FrameKeys
    from orbitmq.broker.fast_path.layout import Texts
    from orbitmq.broker.fast_path.names import NameTable
    from orbitmq.runtime.buffers import Readable
    from orbitmq.store.log.appender import Appender

if not cython.compiled:
    from orbitmq.message.octets import get_i16, get_i32

# C integers in the compiled module, so that no Python object is touched on the path of a message.
ORDINARY = layout.ORDINARY
NEED_ROOM = layout.NEED_ROOM
DRAIN = layout.DRAIN
HANDLED = layout.HANDLED
INT_BAD = layout.INT_BAD
SEND = layout.SIGNED_SEND
SEND_V2 = layout.SIGNED_SEND_V2

Q_NEXT = store_layout.Q_NEXT

SEND_MESSAGE = 10
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320

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

T_WRITE_QUEUES = layout.T_WRITE_QUEUES
T_SLOTS_AT = layout.T_SLOTS_AT
ROW_AT = layout.ROW_AT
ROW_LENGTH = layout.ROW_LENGTH

ONE_WAY = 2
MAX_BATCH_ITEMS = 256
MIN_ITEM_BYTES = 22
ID_CHARS = 48  # an offset message id and a comma, in the response to a batch; more with an IPv6 address
LATER_BYTES = 1 << 18
SYS_ORDINARY = 0xC | 0x40 | 0x80  # transaction bits, need-unwrap, inner batch


class Sends:
    """Answers sends, as a part of the fast path.

    Args:
        appender: the store's inner loop for records.
        fields: the fields of the current request.
        keys: decides whether the request's caller may send.
        topics: which topics may be sent to.
        texts: constant parts of responses and properties.
        now: takes the responses that need not wait.
        max_body_bytes: as in ``FastFrames``.

    Attributes:
        holds: whether responses wait for more than the write; those to messages with WAIT=false never do.
        later: the responses that wait for the log.
        messages: how many were stored.
        answered_v1, answered_v2, answered_batches: how many requests of each code got an answer.
        need_code, need_slot: with NEED_ROOM, the arguments for ``store.make_room``.
    """

    def __init__(
        self,
        appender: Appender,
        fields: Fields,
        keys: FrameKeys,
        topics: NameTable,
        texts: Texts,
        now: Responses,
        *,
        max_body_bytes: int,
    ) -> None:
        self.a = appender
        self.fields = fields
        self.keys = keys
        self.scan = self.fields.scan
        self.slots = self.fields.slots
        self.topics = topics
        self.v1_names = FieldTable(layout.SEND_FIELDS, S_PROPERTIES, self.slots)
        self.v2_names = FieldTable(layout.SEND_V2_FIELDS, S_PROPERTIES, self.slots)
        self.props = Properties(texts.added)
        self.now = now
        self.later = Responses(texts, LATER_BYTES)
        self.max_body_bytes = max_body_bytes
        self.holds = False
        self.messages = 0
        self.answered_v1 = 0
        self.answered_v2 = 0
        self.answered_batches = 0
        # Properties of the items of a batch: the items are read twice, their properties once.
        self.batch_tags = array("q", [0] * MAX_BATCH_ITEMS)
        self.batch_types = array("q", [0] * MAX_BATCH_ITEMS)
        self.need_code = 0
        self.need_slot = 0

    def send(self, buf: Readable, end: int, born: Readable, born_length: int, code: int) -> int:
        if code == SEND_MESSAGE:
            known = self.v1_names.fill(buf, self.scan)
        else:
            known = self.v2_names.fill(buf, self.scan)
        if not known:
            return ORDINARY
        i = self.slots[S_TOPIC]
        if i < 0:
            return ORDINARY
        topic = self.topics.find(buf, self.scan.starts[i], self.scan.lengths[i])
        if topic < 0 or not self._send_is_plain(buf, code):
            return ORDINARY
        queue_id = self.fields.number(buf, S_QUEUE_ID, INT_BAD)
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
        if self.keys.requires_keys and not self.keys.let_send(
            buf, end, topic, SEND if code == SEND_MESSAGE else SEND_V2
        ):
            return ORDINARY
        slot = self.topics.numbers[self.topics.get(topic, T_SLOTS_AT) + queue_id]
        if code == SEND_BATCH_MESSAGE:
            return self._send_batch(buf, self.scan.body_start, end, topic, slot, queue_id, born, born_length)
        return self._send_single(buf, length, topic, slot, queue_id, born, born_length)

    def _send_is_plain(self, buf: Readable, code: int) -> bool:
        """Whether all fields are present, with the values of an ordinary producer; sets ``send_*``."""
        self.send_sys_flag = self.fields.number_32(buf, S_SYS_FLAG, INT_BAD)
        self.send_flag = self.fields.number_32(buf, S_FLAG, INT_BAD)
        self.send_born = self.fields.number(buf, S_BORN, INT_BAD)
        self.send_reconsumed = self.fields.number_32(buf, S_RECONSUME, 0)
        return not (
            self.slots[S_GROUP] < 0
            or self.slots[S_DEFAULT_TOPIC] < 0
            or self.fields.number_32(buf, S_DEFAULT_QUEUES, INT_BAD) == INT_BAD
            or self.fields.number_32(buf, S_MAX_RECONSUME, 0) == INT_BAD
            or self.send_sys_flag < 0
            or self.send_sys_flag & SYS_ORDINARY
            or self.send_born == INT_BAD
            or self.send_flag == INT_BAD
            or self.send_reconsumed < 0
            or not self.fields.is_false(buf, S_UNIT_MODE)
            or not (
                self.fields.is_true(buf, S_BATCH)
                if code == SEND_BATCH_MESSAGE
                else self.fields.is_false(buf, S_BATCH)
            )
        )

    def _no_output(self, ids_bytes: int) -> bool:
        """Whether the response to a send would not fit."""
        return not self.later.has_room(ids_bytes) or not self.now.has_room(ids_bytes)

    def _room_for(self, slot: int, size: int, count: int) -> int:
        """HANDLED when the records can be appended now; otherwise what has to be done first."""
        if self.a.never_fits(size, count):
            return ORDINARY
        room = self.a.check_room(slot, size, count)
        if room == 0:
            return HANDLED
        self.need_code = room
        self.need_slot = slot
        return NEED_ROOM

    def _send_single(
        self,
        buf: Readable,
        length: int,
        topic: int,
        slot: int,
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
        room = self._room_for(slot, size, 1)
        if room != HANDLED:
            return room
        if cython.compiled:
            data = cython.address(self.props.view[0])
            names = cython.address(self.topics.names[0])
        else:
            data = self.props.data
            names = self.topics.names
        physical = self.a.append(
            slot, queue_id, self.send_flag, self.send_sys_flag, self.send_born, born, born_length,
            self.send_reconsumed, 0, buf, self.scan.body_start, length,
            names, self.topics.get(topic, ROW_AT), name_length,
            data, 0, self.props.used, self.props.tags_code, self.props.message_type,
        )  # fmt: skip
        self.messages += 1
        self._answer_send(
            physical, queue_id, self.a.get(slot, Q_NEXT) - 1, 1,
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
        if self.scan.code == SEND_MESSAGE_V2:
            self.answered_v2 += 1
        elif self.scan.code == SEND_MESSAGE:
            self.answered_v1 += 1
        else:
            self.answered_batches += 1
        if cython.compiled:
            data = cython.address(self.props.view[0])
            records = cython.address(self.a.batch_view[physical - self.a.batch_base])
        else:
            data = self.props.data
            records = memoryview(self.a.batch)[physical - self.a.batch_base :]
        if waits or not self.holds:
            self.later.answer_send(
                self.scan, physical, queue_id, queue_offset, count, records, data, unique_at, unique_length
            )
        else:
            self.now.answer_send(
                self.scan, physical, queue_id, queue_offset, count, records, data, unique_at, unique_length
            )

    # -- batch -----------------------------------------------------------------------------------------

    def _send_batch(
        self, buf: Readable, body: int, end: int, topic: int, slot: int, queue_id: int, born: Readable,
        born_length: int,
    ) -> int:  # fmt: skip
        # Reading the items overwrites the header's properties.
        waits = self.props.waits
        unique_at = self.props.unique_at
        unique_length = self.props.unique_length
        # All items are checked first, so that the batch goes in as a whole or not at all.
        size = self._batch_size(buf, body, end, self.topics.get(topic, ROW_LENGTH), born_length)
        if size <= 0:
            return ORDINARY
        count = self.batch_count
        if self._no_output(count * ID_CHARS):
            return DRAIN
        room = self._room_for(slot, size, count)
        if room != HANDLED:
            return room
        first_offset = self.a.get(slot, Q_NEXT)
        first = self.a.batch_base + self.a.batch_used
        self._append_items(buf, body, end, topic, slot, queue_id, born, born_length)
        self.messages += count
        self._answer_send(first, queue_id, first_offset, count, waits, unique_at, unique_length)
        return HANDLED

    def _batch_size(self, buf: Readable, at: int, end: int, name_length: int, born_length: int) -> int:
        """The bytes that the items need as records; sets ``batch_count``. 0: an item is not plain."""
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
            self.batch_tags[count] = self.props.tags_code
            self.batch_types[count] = self.props.message_type
            count += 1
            at += total
        self.batch_count = count
        return size

    def _append_items(
        self, buf: Readable, at: int, end: int, topic: int, slot: int, queue_id: int, born: Readable,
        born_length: int,
    ) -> None:  # fmt: skip
        if cython.compiled:
            names = cython.address(self.topics.names[0])
        else:
            names = self.topics.names
        i = 0
        while at < end:
            total = get_i32(buf, at)
            length = get_i32(buf, at + 16)
            props_at = at + MIN_ITEM_BYTES + length
            props_length = get_i16(buf, props_at - 2)
            self.a.append(
                slot, queue_id, get_i32(buf, at + 12), self.send_sys_flag, self.send_born, born, born_length,
                self.send_reconsumed, 0, buf, at + 20, length,
                names, self.topics.get(topic, ROW_AT), self.topics.get(topic, ROW_LENGTH),
                buf, props_at, props_length, self.batch_tags[i], self.batch_types[i],
            )  # fmt: skip
            at += total
            i += 1
