# C types of appender.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.message.octets cimport copy, crc32, put_i16, put_i32, put_i64
from orbitmq.store.queues.table cimport QueueTable

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out

cdef int Q_NEXT, Q_TAIL, Q_SAVED, Q_RING, Q_COUNTS, Q_WIDTH
cdef int64_t SIZE_1, SIZE_2, SIZE_3, SIZE_4, SIZE_5, SIZE_6
cdef int TYPE_BYTES, TYPE_WIDTH, COUNTS_WIDTH
cdef int NO_ROOM, ROLL, TAIL_FULL
cdef int MAGIC_V1, MAGIC_V2, RECORD_FIXED_BYTES, END_OF_FILE_RESERVE, BORN_V6, STORE_V6

@cython.final
cdef class Appender(QueueTable):
    cdef public bytearray batch
    cdef uint8_t[::1] batch_view
    cdef public Py_ssize_t batch_room
    cdef public Py_ssize_t batch_used
    cdef public int64_t batch_base
    cdef public int64_t batch_records
    cdef public int64_t file_end
    cdef public int64_t segment_bytes
    cdef public bytes host
    cdef const uint8_t[::1] host_view
    cdef public Py_ssize_t host_length
    cdef public int64_t now_ms
    cdef int64_t[::1] counts
    cdef Py_ssize_t counts_used

    cpdef int64_t get(self, Py_ssize_t slot, int column) noexcept nogil
    cpdef set(self, Py_ssize_t slot, int column, int64_t value)
    @cython.locals(base=Py_ssize_t)
    cpdef int check_room(self, Py_ssize_t slot, int64_t size_bytes, int64_t count) noexcept nogil
    cdef bint never_fits(self, int64_t size_bytes, int64_t count) noexcept nogil
    @cython.locals(place=Py_ssize_t)
    cdef void _count(self, Py_ssize_t at, int64_t size) noexcept nogil
    @cython.locals(size=int64_t)
    cpdef int64_t record_bytes(self, Py_ssize_t body_length, Py_ssize_t topic_length, Py_ssize_t props_length, Py_ssize_t born_length) noexcept nogil
    @cython.locals(size=int64_t, room=int, out=bytes_out, host=bytes_in, at=Py_ssize_t, physical=int64_t, base=Py_ssize_t, offset=int64_t)
    cdef int64_t append(self, Py_ssize_t slot, int queue_id, int flag, int sys_flag, int64_t born_timestamp, const uint8_t* born, Py_ssize_t born_length, int reconsume_times, int64_t prepared_offset, const uint8_t* body, Py_ssize_t body_at, Py_ssize_t body_length, const uint8_t* topic, Py_ssize_t topic_at, Py_ssize_t topic_length, const uint8_t* props, Py_ssize_t props_at, Py_ssize_t props_length, int64_t tags_code, int message_type) noexcept nogil
    cdef int64_t _append_views(self, Py_ssize_t slot, int queue_id, int flag, int sys_flag, int64_t born_timestamp, const uint8_t[::1] born, int reconsume_times, int64_t prepared_offset, const uint8_t[::1] body, Py_ssize_t body_length, const uint8_t[::1] topic, const uint8_t[::1] props, Py_ssize_t props_length, int64_t tags_code, int message_type)
