# C types of responses.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.broker.fast_path.texts cimport put_decimal, put_hex
from orbitmq.message.octets cimport copy, get_i32, move, put_i16, put_i32
from orbitmq.wire.scan cimport HeaderScan

ctypedef uint8_t* bytes_out

cdef int HOST_HEX, JSON_SEND_IDS, JSON_QUEUE_ID, JSON_QUEUE_OFFSET, JSON_TRANSACTION_ID, JSON_OPAQUE, JSON_END
cdef int BINARY_SEND_IDS, BINARY_QUEUE_ID, BINARY_QUEUE_OFFSET, BINARY_TRANSACTION_ID
cdef int JSON_GROUP_FLAG, JSON_PULL_MAX, JSON_MIN_OFFSET, JSON_NEXT_OFFSET, JSON_TOPIC_FLAG, JSON_PULL_OPAQUE, JSON_PULL_END
cdef int BINARY_REMARK, BINARY_GROUP_FLAG, BINARY_MAX_OFFSET, BINARY_MIN_OFFSET, BINARY_NEXT_OFFSET, BINARY_TOPIC_FLAG, BINARY_SUGGEST
cdef int NUMBERS_BYTES

@cython.final
cdef class Responses:
    cdef const uint8_t[::1] text
    cdef int64_t[::1] parts
    cdef int language, version
    cdef Py_ssize_t room, size, head
    cdef bytearray data
    cdef uint8_t[::1] view
    cdef public Py_ssize_t used

    @cython.locals(out=bytes_out)
    cpdef bytes take(self)
    cdef bint has_room(self, Py_ssize_t more_bytes) noexcept nogil
    @cython.locals(start=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t _text(self, uint8_t* out, Py_ssize_t at, int part) noexcept nogil
    @cython.locals(out=bytes_out, start=Py_ssize_t, at=Py_ssize_t, fields=Py_ssize_t)
    cdef void answer_send(self, HeaderScan scan, int64_t physical, int64_t queue_id, int64_t queue_offset, int64_t count, const uint8_t* records, const uint8_t* unique, Py_ssize_t unique_at, Py_ssize_t unique_length) noexcept nogil
    @cython.locals(place=int64_t, i=int64_t)
    cdef Py_ssize_t _ids(self, uint8_t* out, Py_ssize_t at, int64_t physical, int64_t count, const uint8_t* records) noexcept nogil
    cdef Py_ssize_t body_at(self) noexcept nogil
    cdef Py_ssize_t body_room(self) noexcept nogil
    @cython.locals(out=bytes_out, start=Py_ssize_t, at=Py_ssize_t, length=Py_ssize_t)
    cdef void answer_pull(self, HeaderScan scan, int64_t lowest, int64_t highest, int64_t following, int64_t topic_flag, int64_t group_flag, Py_ssize_t body_length, bint in_place) noexcept nogil
    @cython.locals(fields=Py_ssize_t)
    cdef Py_ssize_t _binary_pull(self, uint8_t* out, Py_ssize_t at, HeaderScan scan, int64_t lowest, int64_t highest, int64_t following, int64_t topic_flag, int64_t group_flag) noexcept nogil
    @cython.locals(start=Py_ssize_t)
    cdef Py_ssize_t _binary_head(self, uint8_t* out, Py_ssize_t at, int opaque, int remark) noexcept nogil
    cdef Py_ssize_t _close(self, uint8_t* out, Py_ssize_t value_at, Py_ssize_t at) noexcept nogil
    cdef void _finish(self, uint8_t* out, Py_ssize_t start, Py_ssize_t header_end, Py_ssize_t end, int kind) noexcept nogil
