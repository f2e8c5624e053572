# C types of raw.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class RawLog:
    cdef object _runtime
    cdef object _files
    cdef object _end
    cdef object _in_memory

    cpdef data(self, int64_t offset, int64_t most)
    @cython.locals(size=int64_t, at=int64_t, file_bytes=int64_t)
    cpdef part(self, int64_t offset, int64_t most)
