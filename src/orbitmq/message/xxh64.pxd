# C types of xxh64.py. No logic lives here.
cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef uint64_t MASK, PRIME_1, PRIME_2, PRIME_3, PRIME_4, PRIME_5

@cython.locals(value=uint64_t)
cdef uint64_t _u64(const uint8_t[::1] data, Py_ssize_t at) noexcept nogil
@cython.locals(value=uint64_t)
cdef uint64_t _u32(const uint8_t[::1] data, Py_ssize_t at) noexcept nogil
cdef uint64_t _rotated(uint64_t value, int bits) noexcept nogil
cdef uint64_t _round(uint64_t lane, uint64_t value) noexcept nogil
cdef uint64_t _merged(uint64_t hashed, uint64_t lane) noexcept nogil
@cython.locals(end=Py_ssize_t, a=uint64_t, b=uint64_t, c=uint64_t, d=uint64_t, h=uint64_t)
cpdef uint64_t xxh64(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t size, uint64_t seed)
