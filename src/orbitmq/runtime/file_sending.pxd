# C types of file_sending.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class FileSender:
    cdef object _transport
    cdef object _socket

    @cython.locals(sent=int64_t, left=int64_t)
    cpdef bint send(self, head, segment, int64_t start, int64_t end, memory=*) except -1
    @cython.locals(sent=int64_t)
    cpdef bint send_memory(self, bytes head, memory) except -1
    @cython.locals(sent=int64_t, more=int64_t)
    cdef int64_t _send_at_once(self, head, segment, int64_t start, int64_t end, memory) except? -1
