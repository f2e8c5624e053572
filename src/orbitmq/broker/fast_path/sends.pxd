# C types of sends.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.broker.fast_path.fields cimport Fields
from orbitmq.broker.fast_path.keys cimport FrameKeys
from orbitmq.broker.fast_path.properties cimport Properties
from orbitmq.broker.fast_path.responses cimport Responses
from orbitmq.broker.fast_path.names cimport FieldTable, NameTable
from orbitmq.message.octets cimport get_i16, get_i32
from orbitmq.store.log.appender cimport Appender
from orbitmq.wire.scan cimport HeaderScan

ctypedef const uint8_t* bytes_in

cdef int ORDINARY, NEED_ROOM, DRAIN, HANDLED, Q_NEXT, SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND, SEND_V2
cdef int64_t INT_BAD
cdef int S_GROUP, S_TOPIC, S_DEFAULT_TOPIC, S_DEFAULT_QUEUES, S_QUEUE_ID, S_SYS_FLAG, S_BORN, S_FLAG, S_PROPERTIES
cdef int S_RECONSUME, S_UNIT_MODE, S_MAX_RECONSUME, S_BATCH
cdef int T_WRITE_QUEUES, T_SLOTS_AT, ROW_AT, ROW_LENGTH
cdef int ONE_WAY, MAX_BATCH_ITEMS, MIN_ITEM_BYTES, ID_CHARS, LATER_BYTES, SYS_ORDINARY

@cython.final
cdef class Sends:
    cdef Appender a
    cdef Fields fields
    cdef FrameKeys keys
    cdef HeaderScan scan
    cdef int64_t[::1] slots
    cdef NameTable topics
    cdef FieldTable v1_names, v2_names
    cdef Properties props
    cdef Responses now, later
    cdef int64_t max_body_bytes
    cdef public bint holds
    cdef public int64_t messages
    cdef readonly int64_t answered_v1, answered_v2, answered_batches
    cdef public int need_code
    cdef public Py_ssize_t need_slot
    cdef int64_t send_sys_flag, send_flag, send_born, send_reconsumed
    cdef Py_ssize_t batch_count
    cdef int64_t[::1] batch_tags, batch_types

    @cython.locals(known=bint, topic=int64_t, queue_id=int64_t, length=Py_ssize_t, i=int64_t, slot=Py_ssize_t)
    cdef int send(self, const uint8_t* buf, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length, int code) noexcept nogil
    cdef bint _send_is_plain(self, const uint8_t* buf, int code) noexcept nogil
    cdef bint _no_output(self, Py_ssize_t ids_bytes) noexcept nogil
    @cython.locals(room=int)
    cdef int _room_for(self, Py_ssize_t slot, int64_t size, int64_t count) noexcept nogil
    @cython.locals(name_length=Py_ssize_t, size=int64_t, room=int, data=bytes_in, names=bytes_in, physical=int64_t)
    cdef int _send_single(self, const uint8_t* buf, Py_ssize_t length, int64_t topic, Py_ssize_t slot, int64_t queue_id, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(data=bytes_in, records=bytes_in)
    cdef void _answer_send(self, int64_t physical, int64_t queue_id, int64_t queue_offset, int64_t count, bint waits, Py_ssize_t unique_at, Py_ssize_t unique_length) noexcept nogil
    @cython.locals(waits=bint, unique_at=Py_ssize_t, unique_length=Py_ssize_t, size=int64_t, count=int64_t, room=int, first_offset=int64_t, first=int64_t)
    cdef int _send_batch(self, const uint8_t* buf, Py_ssize_t body, Py_ssize_t end, int64_t topic, Py_ssize_t slot, int64_t queue_id, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(count=int64_t, size=int64_t, total=Py_ssize_t, length=Py_ssize_t, props_at=Py_ssize_t, props_length=Py_ssize_t)
    cdef int64_t _batch_size(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end, Py_ssize_t name_length, Py_ssize_t born_length) noexcept nogil
    @cython.locals(names=bytes_in, total=Py_ssize_t, length=Py_ssize_t, props_at=Py_ssize_t, props_length=Py_ssize_t, i=Py_ssize_t)
    cdef void _append_items(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end, int64_t topic, Py_ssize_t slot, int64_t queue_id, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
