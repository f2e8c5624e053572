# C types of stream.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class StreamReader:
    cdef public int64_t expected
    cdef public bint hurry
    cdef int64_t _file_bytes
    cdef bytearray _kept
    cdef int64_t _left

    cpdef tuple only_ack(self, bytes data)
    @cython.locals(offset=int64_t, size=int64_t)
    cpdef tuple only_piece(self, data)
    @cython.locals(missing=int64_t)
    cdef _keep(self, data, int64_t wanted)
    @cython.locals(least=int64_t, most=int64_t, size=int64_t)
    cdef tuple _head(self)
    cdef bint _begin(self, int64_t offset, int64_t size) except -1
