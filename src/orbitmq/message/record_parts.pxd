# C types of record_parts.py. No logic lives here.
cimport cython
from libc.stdint cimport uint8_t

from orbitmq.message.octets cimport get_i32

cdef int MAGIC_V1, MAGIC_V2, SYS_FLAG_AT, BORN_HOST_AT, HOST_V4_BYTES, HOST_V6_BYTES, BORN_V6, STORE_V6
cdef int BODY_LENGTH_AT, MIN_BYTES, INNER_BATCH

@cython.final
cdef class RecordParts:
    cdef Py_ssize_t total, store_at, host_bytes, tail_at, body_at, body_bytes, topic_at, topic_bytes, props_at, props_bytes
    cdef int sys_flag

    @cython.locals(magic=int, stop=Py_ssize_t, length_bytes=int)
    cdef bint find(self, const uint8_t* src, Py_ssize_t at, Py_ssize_t end) noexcept nogil
