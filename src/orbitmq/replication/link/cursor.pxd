# C types of cursor.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class Cursor:
    cdef object _store
    cdef public int64_t position

    cpdef take(self, int64_t most)

@cython.final
cdef class Flow:
    cdef int64_t _second
    cdef int64_t _sent
    cdef public int64_t last_second

    cpdef int64_t left(self, double now, int64_t limit) except? -1
    cpdef sent(self, double now, int64_t size_bytes)
    cpdef int64_t rate(self, double now) except? -1
    cpdef double until_next(self, double now) except? -1
    @cython.locals(second=int64_t)
    cdef _turn(self, double now)
