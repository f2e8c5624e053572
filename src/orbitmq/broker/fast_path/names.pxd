# C types of names.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.broker.fast_path.texts cimport find_sorted, hash_bytes
from orbitmq.message.octets cimport same
from orbitmq.wire.scan cimport HeaderScan

ctypedef const uint8_t* bytes_in

cdef int ROW_AT, ROW_LENGTH, MAX_SLOTS, FIELD_WIDTH
cdef int64_t LOW_32

@cython.final
cdef class FieldTable:
    cdef int64_t[::1] table
    cdef const uint8_t[::1] names
    cdef int may_escape
    cdef int64_t[::1] found, letters

    @cython.locals(names=bytes_in, i=int, slot=int64_t)
    cdef bint fill(self, const uint8_t* buf, HeaderScan scan) noexcept nogil
    @cython.locals(row=Py_ssize_t)
    cdef int64_t _slot(self, const uint8_t* buf, const uint8_t* names, int64_t number, Py_ssize_t start, Py_ssize_t length) noexcept nogil

@cython.final
cdef class NameTable:
    cdef int64_t width, count, names_end
    cdef readonly int64_t numbers_end
    cdef object name_bytes
    cdef const uint8_t[::1] names
    cdef int64_t[::1] rows, numbers, hashed

    @cython.locals(names=bytes_in, mask=Py_ssize_t, slot=Py_ssize_t, row=int64_t, at=int64_t)
    cdef object _hash_again(self)
    @cython.locals(names=bytes_in, mask=Py_ssize_t, slot=Py_ssize_t, row=int64_t, base=int64_t)
    cdef int64_t find(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
    @cython.locals(names=bytes_in, mask=Py_ssize_t, h=uint32_t, slot=Py_ssize_t, row=int64_t, at=int64_t)
    cdef int64_t find_pair(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length, Py_ssize_t second, Py_ssize_t second_length) noexcept nogil
    cdef int64_t get(self, int64_t row, int column) noexcept nogil
