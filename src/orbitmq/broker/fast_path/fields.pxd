# C types of fields.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.wire.scan cimport HeaderScan, parse_int

cdef int64_t INT_BAD, MAX_32

@cython.final
cdef class Fields:
    cdef HeaderScan scan
    cdef int64_t[::1] slots

    @cython.locals(i=int64_t)
    cdef int64_t number(self, const uint8_t* buf, int slot, int64_t default) noexcept nogil
    @cython.locals(value=int64_t)
    cdef int64_t number_32(self, const uint8_t* buf, int slot, int64_t default) noexcept nogil
    @cython.locals(i=int64_t, at=Py_ssize_t)
    cdef bint is_false(self, const uint8_t* buf, int slot) noexcept nogil
    @cython.locals(i=int64_t, at=Py_ssize_t)
    cdef bint is_true(self, const uint8_t* buf, int slot) noexcept nogil
