# C types of lane.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memmove

from orbitmq.store.appender cimport Appender, copy, get_i32, put_i16, put_i32
from orbitmq.wire.scan cimport HeaderScan, parse_int, unescape

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out

cdef int DONE, ORDINARY, NEED_ROOM, DRAIN, NEED_INDEX, HANDLED, SCAN_OK, Q_NEXT
cdef int Q_MIN, Q_VISIBLE, READ_FOUND, READ_NEED_INDEX, SEND_MESSAGE, PULL_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE
cdef int LITE_PULL_MESSAGE, S_TOPIC, S_QUEUE_ID, S_SYS_FLAG, S_BORN, S_FLAG, S_PROPERTIES, S_RECONSUME
cdef int S_UNIT_MODE, S_BATCH, SEND_SLOTS, P_GROUP, P_TOPIC, P_QUEUE_ID, P_OFFSET, P_MAX_COUNT
cdef int P_SYS_FLAG, P_COMMIT_OFFSET, P_SUBSCRIPTION, P_EXPRESSION_TYPE, P_MAX_BYTES, P_IGNORED, P_SUB_VERSION, MAX_ASKED_BYTES, T_NAME_AT
cdef int T_NAME_LENGTH, T_READ_QUEUES, T_WRITE_QUEUES, T_ROWS_AT, T_WIDTH, G_NAME_AT, G_NAME_LENGTH, G_TOPIC
cdef int G_FILTER_AT, G_FILTER_COUNT, G_WIDTH, G_VERSION, NO_SUBSCRIPTION, EVENT_WIDTH, TEXT_UNIQUE_NAME, TEXT_BROKER_PROPERTIES, TEXT_HOST_HEX
cdef int TEXT_JSON_SEND_IDS, TEXT_JSON_QUEUE_ID, TEXT_JSON_QUEUE_OFFSET, TEXT_JSON_TRANSACTION_ID, TEXT_JSON_OPAQUE, TEXT_JSON_END, TEXT_BINARY_SEND_IDS, TEXT_BINARY_QUEUE_ID
cdef int TEXT_BINARY_QUEUE_OFFSET, TEXT_BINARY_TRANSACTION_ID, TEXT_JSON_PULL_MAX, TEXT_JSON_MIN_OFFSET, TEXT_JSON_NEXT_OFFSET, TEXT_JSON_PULL_OPAQUE, TEXT_JSON_PULL_END, TEXT_BINARY_MAX_OFFSET
cdef int TEXT_BINARY_MIN_OFFSET, TEXT_BINARY_NEXT_OFFSET, TEXT_BINARY_SUGGEST, MAX_EVENTS, MAX_FRAME, MAX_PROPERTIES, MAX_BATCH_ITEMS, RESPONSE_ROOM
cdef int ID_CHARS, MAX_UNIQUE_KEY, SYS_ORDINARY, PULL_COMMITS, PULL_HAS_SUBSCRIPTION, PULL_CLASS_FILTER
cdef int64_t INT_BAD, LOW_32, SIGN_32
cdef int64_t NAME_TAGS, NAME_UNIQUE_KEY
cdef int64_t[::1] SEND_NAMES, PULL_NAMES, RESERVED_NAMES

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef int slot_of(int64_t[::1] table, int64_t name) noexcept nogil
@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef bint is_reserved(int64_t[::1] table, int64_t name) noexcept nogil
@cython.locals(digits=int, rest=int64_t, end=Py_ssize_t, i=int)
cdef Py_ssize_t put_decimal(uint8_t* out, Py_ssize_t at, int64_t value) noexcept nogil
@cython.locals(i=int, digit=int)
cdef Py_ssize_t put_hex(uint8_t* out, Py_ssize_t at, int64_t value, int digits) noexcept nogil
cdef void move_down(uint8_t* out, Py_ssize_t to, Py_ssize_t at, Py_ssize_t length) noexcept nogil
@cython.locals(i=Py_ssize_t)
cdef uint32_t hash_bytes(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length, uint32_t h) noexcept nogil
cdef bint same(const uint8_t* buf, Py_ssize_t pos, const uint8_t* other, Py_ssize_t at, Py_ssize_t length) noexcept nogil

@cython.final
cdef class Lane:
    cdef Appender a
    cdef HeaderScan scan
    cdef public int64_t max_body_bytes, max_pull_count, max_pull_bytes
    cdef const uint8_t[::1] text
    cdef int64_t[::1] parts
    cdef int language, version
    cdef int64_t[::1] slots
    cdef bytearray properties
    cdef uint8_t[::1] properties_view
    cdef public bytearray now_out
    cdef uint8_t[::1] now_view
    cdef Py_ssize_t now_room
    cdef public Py_ssize_t now_used
    cdef public bytearray later_out
    cdef uint8_t[::1] later_view
    cdef Py_ssize_t later_room
    cdef public Py_ssize_t later_used
    cdef public object events_array
    cdef int64_t[::1] events
    cdef public int event_count
    cdef bytes unique_prefix
    cdef const uint8_t[::1] unique_view
    cdef int64_t unique_month_ms
    cdef public bint lite_pull
    cdef int unique_count
    cdef public int reason
    cdef public Py_ssize_t frame_end
    cdef public int need_code
    cdef public Py_ssize_t need_row
    cdef public int64_t sends, send_bytes, pulled, pulled_bytes
    cdef const uint8_t[::1] topic_names
    cdef int64_t[::1] topics, topic_rows, topic_slots
    cdef const uint8_t[::1] pull_names
    cdef int64_t[::1] pulls, pull_slots
    cdef int64_t tags_code
    cdef Py_ssize_t unique_at, unique_length

    cpdef Py_ssize_t feed(self, const uint8_t[::1] buffer, Py_ssize_t start, Py_ssize_t end, const uint8_t[::1] born)
    @cython.locals(total=Py_ssize_t, reason=int)
    cdef Py_ssize_t _run(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(code=int)
    cdef int _frame(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(i=int, name=int64_t, slot=int)
    cdef bint _fill_slots(self, int64_t[::1] names, bint first_letter) noexcept nogil
    @cython.locals(i=int64_t)
    cdef int64_t _number(self, const uint8_t* buf, int slot, int64_t default) noexcept nogil
    @cython.locals(i=int64_t)
    cdef bint _is_true(self, const uint8_t* buf, int slot) noexcept nogil
    @cython.locals(pos=Py_ssize_t, length=Py_ssize_t, mask=Py_ssize_t, slot=Py_ssize_t, topic=int64_t, base=Py_ssize_t)
    cdef int64_t _find_topic(self, const uint8_t* buf, int64_t field) noexcept nogil
    cdef bint _same_name(self, const uint8_t* buf, Py_ssize_t pos, const uint8_t[::1] names, Py_ssize_t at, Py_ssize_t length) noexcept nogil
    @cython.locals(topic=int64_t, queue_id=int64_t, sys_flag=int64_t, born_timestamp=int64_t, flag=int64_t, reconsume_times=int64_t, body=Py_ssize_t, length=Py_ssize_t, row=Py_ssize_t, props=bytes_out, names=bytes_in, used=Py_ssize_t, base=Py_ssize_t, physical=int64_t)
    cdef int _send(self, const uint8_t* buf, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length, int code) noexcept nogil
    @cython.locals(length=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _load_properties(self, const uint8_t* buf, uint8_t* props, int64_t field) noexcept nogil
    @cython.locals(h=uint32_t, start=Py_ssize_t, i=Py_ssize_t)
    cdef Py_ssize_t _walk_properties(self, const uint8_t* props, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(code=int64_t)
    cdef bint _hash_tags(self, const uint8_t* props, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(i=int)
    cdef Py_ssize_t _complete_properties(self, uint8_t* props, Py_ssize_t used) noexcept nogil
    @cython.locals(start=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t _text(self, uint8_t* out, Py_ssize_t at, int part) noexcept nogil
    @cython.locals(base=Py_ssize_t, topic_length=Py_ssize_t, count=int64_t, size=int64_t, at=Py_ssize_t, total=Py_ssize_t, length=Py_ssize_t, props_length=Py_ssize_t, room=int, names=bytes_in, first_offset=int64_t, first=int64_t)
    cdef int _send_batch(self, const uint8_t* buf, Py_ssize_t body, Py_ssize_t end, int64_t topic, Py_ssize_t row, int64_t queue_id, int64_t sys_flag, int64_t born_timestamp, const uint8_t* born, Py_ssize_t born_length, int64_t reconsume_times) noexcept nogil
    cdef Py_ssize_t _walk_item(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t length) noexcept nogil
    @cython.locals(out=bytes_out, start=Py_ssize_t, at=Py_ssize_t, kind=int)
    cdef void _answer_send(self, int64_t physical, int64_t queue_id, int64_t queue_offset, int64_t count) noexcept nogil
    @cython.locals(log=bytes_in, i=int64_t)
    cdef Py_ssize_t _ids(self, uint8_t* out, Py_ssize_t at, int64_t physical, int64_t count) noexcept nogil
    cdef Py_ssize_t _json_send(self, uint8_t* out, Py_ssize_t at, int64_t physical, int64_t queue_id, int64_t queue_offset, int64_t count) noexcept nogil
    cdef Py_ssize_t _unique_key(self, uint8_t* out, Py_ssize_t at) noexcept nogil
    cdef Py_ssize_t _binary_head(self, uint8_t* out, Py_ssize_t at) noexcept nogil
    cdef Py_ssize_t _binary_close(self, uint8_t* out, Py_ssize_t fields, Py_ssize_t at) noexcept nogil
    cdef Py_ssize_t _binary_value(self, uint8_t* out, Py_ssize_t value_at, Py_ssize_t at) noexcept nogil
    @cython.locals(fields=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _binary_send(self, uint8_t* out, Py_ssize_t at, int64_t physical, int64_t queue_id, int64_t queue_offset, int64_t count) noexcept nogil
    @cython.locals(group_at=Py_ssize_t, group_length=Py_ssize_t, topic_at=Py_ssize_t, topic_length=Py_ssize_t, mask=Py_ssize_t, h=uint32_t, slot=Py_ssize_t, pull=int64_t, at=Py_ssize_t)
    cdef int64_t _find_pull(self, const uint8_t* buf, int64_t group, int64_t topic) noexcept nogil
    @cython.locals(pull=int64_t, base=Py_ssize_t, topic=int64_t, sys_flag=int64_t, queue_id=int64_t, offset=int64_t, max_count=int64_t, commit_offset=int64_t, max_bytes=int64_t, filter_at=int64_t, filter_count=int64_t, row=Py_ssize_t, last=int64_t)
    cdef int _pull(self, const uint8_t* buf) noexcept nogil
    @cython.locals(i=int64_t)
    cdef bint _takes_all(self, const uint8_t* buf) noexcept nogil
    @cython.locals(out=bytes_out, start=Py_ssize_t, body=Py_ssize_t, status=int, event=Py_ssize_t, at=Py_ssize_t, kind=int, header=Py_ssize_t)
    cdef int _answer_pull(self, int64_t pull, int64_t queue_id, int64_t commit_offset, int64_t sys_flag, Py_ssize_t row, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes, int64_t filter_at, int64_t filter_count) noexcept nogil
    cdef Py_ssize_t _json_pull(self, uint8_t* out, Py_ssize_t at, Py_ssize_t row, int64_t last) noexcept nogil
    @cython.locals(fields=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _binary_pull(self, uint8_t* out, Py_ssize_t at, Py_ssize_t row, int64_t last) noexcept nogil
