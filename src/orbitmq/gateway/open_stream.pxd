# C types of open_stream.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

cdef int64_t _MOST_WINDOW

@cython.no_gc
@cython.final
cdef class OpenStream:
    cdef int64_t window, come, length, taken, timeout_ms
    cdef bint ended
    cdef int kind
    cdef list untold

    cdef void brings(self, int64_t size, bint ended) except *
    cdef bint grow(self, int64_t more) noexcept
