# C types of plain_acks.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.gateway.plain_fields cimport PlainFields, is_plain, varint_bytes

cdef int MAX_HANDLE, MAX_ID, MAX_PLACES, MAX_DIGITS, IN_ORDER
cdef int _FIRST, _SECOND, _THIRD
cdef int P_GROUP, P_TOPIC, P_ENTRY, P_ID, P_HANDLE, P_PARTS

@cython.final
cdef class PlainAcks(PlainFields):
    cdef object find_place, acknowledge
    cdef public bytes broker
    cdef bytes head, end
    cdef readonly dict places
    cdef int64_t start, pop_time, revive, queue_id, offset

    cdef bytes take(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end)
    @cython.locals(at=Py_ssize_t, topic=bytes, group=bytes, key=bytes, parts=int64_t[::1])
    cdef object _place(self, const uint8_t* buf)
    @cython.locals(tag=int64_t, good=bint, length=int64_t, parts=int64_t[::1])
    cdef bint _read(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) noexcept
    @cython.locals(end=Py_ssize_t, invisible=int64_t, retry=int64_t, length=Py_ssize_t)
    cdef bint _handle(self, const uint8_t* buf) except -1
    @cython.locals(start=Py_ssize_t, value=int64_t, byte=int)
    cdef int64_t _digits(self, const uint8_t* buf, Py_ssize_t end) noexcept
    @cython.locals(id_bytes=int64_t, length=int64_t, size=int64_t, parts=int64_t[::1])
    cdef bytes _answer(self, const uint8_t* buf)
