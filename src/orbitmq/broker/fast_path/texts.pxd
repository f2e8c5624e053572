# C types of texts.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef int64_t LOW_32

@cython.locals(digits=int, rest=int64_t, end=Py_ssize_t, i=int)
cdef Py_ssize_t put_decimal(uint8_t* out, Py_ssize_t at, int64_t value) noexcept nogil
@cython.locals(i=int, digit=int)
cdef Py_ssize_t put_hex(uint8_t* out, Py_ssize_t at, int64_t value, int digits) noexcept nogil
@cython.locals(i=Py_ssize_t)
cdef uint32_t hash_bytes(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length, uint32_t h) noexcept nogil
@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef Py_ssize_t find_sorted(int64_t[::1] table, Py_ssize_t width, int64_t number) noexcept nogil
cpdef bytes decimal(int64_t value)
cdef Py_ssize_t _decimal_view(uint8_t[::1] out, int64_t value)
