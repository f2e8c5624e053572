# C types of text_column.py. No logic lives here.
cimport cython
from libc.stdint cimport int32_t, uint8_t

from orbitmq.message.octets cimport copy, move, same

@cython.final
cdef class TextColumn:
    cdef bint nullable
    cdef readonly Py_ssize_t rows, used
    cdef object offset_bytes, data_bytes, bit_bytes
    cdef int32_t[::1] offsets
    cdef uint8_t[::1] data, bits

    cdef void add(self, const uint8_t* src, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    @cython.locals(i=Py_ssize_t, high=int, low=int)
    cdef void put_hex(self, const uint8_t* src, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    @cython.locals(start=Py_ssize_t)
    cdef bint is_at(self, Py_ssize_t row, const uint8_t* src, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    @cython.locals(start=Py_ssize_t, size=int, rest=Py_ssize_t, i=Py_ssize_t)
    cdef void drop(self, Py_ssize_t row) noexcept nogil
