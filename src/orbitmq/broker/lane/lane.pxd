# C types of lane.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.broker.lane.properties cimport Properties
from orbitmq.broker.lane.responses cimport Responses
from orbitmq.broker.lane.tables cimport FieldTable, NameTable
from orbitmq.message.octets cimport get_i16, get_i32
from orbitmq.store.appender cimport Appender
from orbitmq.store.lookup cimport Lookup
from orbitmq.wire.scan cimport HeaderScan, parse_int

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out
ctypedef const int64_t* integers_in

cdef int DONE, ORDINARY, NEED_ROOM, DRAIN, NEED_INDEX, PARK, HANDLED, SCAN_OK
cdef int64_t INT_BAD, MAX_32
cdef int Q_NEXT, Q_MIN, Q_VISIBLE, READ_FOUND, READ_NEED_INDEX
cdef int SEND_MESSAGE, PULL_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, LITE_PULL_MESSAGE
cdef int S_GROUP, S_TOPIC, S_DEFAULT_TOPIC, S_DEFAULT_QUEUES, S_QUEUE_ID, S_SYS_FLAG, S_BORN, S_FLAG, S_PROPERTIES
cdef int S_RECONSUME, S_UNIT_MODE, S_MAX_RECONSUME, S_BATCH
cdef int P_GROUP, P_TOPIC, P_QUEUE_ID, P_OFFSET, P_MAX_COUNT, P_SYS_FLAG, P_COMMIT_OFFSET, P_SUBSCRIPTION
cdef int P_EXPRESSION_TYPE, P_MAX_BYTES, P_SUSPEND, P_SUB_VERSION, P_SOURCE
cdef int T_READ_QUEUES, T_WRITE_QUEUES, T_ROWS_AT, G_TOPIC, G_CODES_AT, G_CODES_COUNT, G_VERSION, G_TOPIC_FLAG, G_GROUP_FLAG
cdef int NO_SUBSCRIPTION, ROW_AT, ROW_LENGTH, EVENT_WIDTH
cdef int ONE_WAY, MAX_EVENTS, MAX_FRAME, MAX_BATCH_ITEMS, MIN_ITEM_BYTES, MAX_ASKED_BYTES, ID_CHARS
cdef int LATER_BYTES, NOW_BYTES, SYS_ORDINARY, PULL_COMMITS, PULL_SUSPENDS, PULL_HAS_SUBSCRIPTION, PULL_CLASS_FILTER

@cython.final
cdef class Lane:
    cdef Appender a
    cdef Lookup lookup
    cdef HeaderScan scan
    cdef int64_t max_body_bytes, max_pull_count, max_pull_bytes
    cdef bint sync_flush
    cdef public bint parks
    cdef public int64_t park_offset, park_ms
    cdef public bint lite_pull
    cdef FieldTable v1_fields, v2_fields, pull_fields
    cdef int64_t[::1] slots
    cdef Properties props
    cdef readonly Responses now, later
    cdef readonly object events_array
    cdef int64_t[::1] events
    cdef public int event_count
    cdef NameTable topics, pulls
    cdef int64_t[::1] topic_rows, codes
    cdef public int reason
    cdef public Py_ssize_t frame_end
    cdef public int need_code
    cdef public Py_ssize_t need_row
    cdef public int64_t sends, pulled
    cdef int64_t send_sys_flag, send_flag, send_born, send_reconsumed
    cdef Py_ssize_t batch_count

    cpdef Py_ssize_t feed(self, const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end, const uint8_t[::1] born) except -1
    @cython.locals(total=Py_ssize_t, reason=int)
    cdef Py_ssize_t _run(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(code=int)
    cdef int _frame(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(i=int64_t)
    cdef int64_t _number(self, const uint8_t* buf, int slot, int64_t default) noexcept nogil
    @cython.locals(value=int64_t)
    cdef int64_t _number_32(self, const uint8_t* buf, int slot, int64_t default) noexcept nogil
    @cython.locals(i=int64_t, at=Py_ssize_t)
    cdef bint _is_false(self, const uint8_t* buf, int slot) noexcept nogil
    @cython.locals(i=int64_t, at=Py_ssize_t)
    cdef bint _is_true(self, const uint8_t* buf, int slot) noexcept nogil
    @cython.locals(i=int64_t)
    cdef int64_t _find_topic(self, const uint8_t* buf) noexcept nogil
    @cython.locals(known=bint, topic=int64_t, queue_id=int64_t, length=Py_ssize_t, i=int64_t, row=Py_ssize_t)
    cdef int _send(self, const uint8_t* buf, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length, int code) noexcept nogil
    cdef bint _send_is_plain(self, const uint8_t* buf, int code) noexcept nogil
    cdef bint _no_output(self, Py_ssize_t ids_bytes) noexcept nogil
    @cython.locals(room=int)
    cdef int _room_for(self, Py_ssize_t row, int64_t size, int64_t count) noexcept nogil
    @cython.locals(name_length=Py_ssize_t, size=int64_t, room=int, data=bytes_in, names=bytes_in, physical=int64_t)
    cdef int _send_single(self, const uint8_t* buf, Py_ssize_t length, int64_t topic, Py_ssize_t row, int64_t queue_id, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(data=bytes_in, records=bytes_in)
    cdef void _answer_send(self, int64_t physical, int64_t queue_id, int64_t queue_offset, int64_t count, bint waits, Py_ssize_t unique_at, Py_ssize_t unique_length) noexcept nogil
    @cython.locals(waits=bint, unique_at=Py_ssize_t, unique_length=Py_ssize_t, size=int64_t, count=int64_t, room=int, first_offset=int64_t, first=int64_t)
    cdef int _send_batch(self, const uint8_t* buf, Py_ssize_t body, Py_ssize_t end, int64_t topic, Py_ssize_t row, int64_t queue_id, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(count=int64_t, size=int64_t, total=Py_ssize_t, length=Py_ssize_t, props_at=Py_ssize_t, props_length=Py_ssize_t)
    cdef int64_t _batch_size(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end, Py_ssize_t name_length, Py_ssize_t born_length) noexcept nogil
    @cython.locals(names=bytes_in, total=Py_ssize_t, length=Py_ssize_t, props_at=Py_ssize_t, props_length=Py_ssize_t)
    cdef void _append_items(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end, int64_t topic, Py_ssize_t row, int64_t queue_id, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(pull=int64_t, topic=int64_t, sys_flag=int64_t, queue_id=int64_t, sub_version=int64_t, codes_count=int64_t, row=Py_ssize_t)
    cdef int _pull(self, const uint8_t* buf) noexcept nogil
    @cython.locals(i=int64_t, at=Py_ssize_t)
    cdef bint _takes_all(self, const uint8_t* buf) noexcept nogil
    @cython.locals(offset=int64_t, max_count=int64_t, max_bytes=int64_t, lowest=int64_t, highest=int64_t, out=bytes_out, codes=integers_in, body=Py_ssize_t, status=int)
    cdef int _read(self, const uint8_t* buf, int64_t pull, int64_t queue_id, int64_t sys_flag, Py_ssize_t row, int64_t codes_count) noexcept nogil
    cdef int _park(self, const uint8_t* buf, int64_t pull, int64_t queue_id, int64_t sys_flag, int64_t offset, int64_t codes_count) noexcept nogil
    @cython.locals(event=Py_ssize_t)
    cdef void _note_event(self, int64_t pull, int64_t queue_id, int64_t commit_offset, int64_t sys_flag) noexcept nogil
