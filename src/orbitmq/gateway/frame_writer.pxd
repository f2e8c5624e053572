# C types of frame_writer.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

from orbitmq.message.octets cimport put_i32

cdef int _DATA, _HEADERS, _WINDOW_UPDATE, _CONTINUATION, _END_STREAM, _END_HEADERS
cdef int64_t _FRAME_BYTES

@cython.final
cdef class FrameWriter:
    cdef public bint tells_table
    cdef bytearray _out, _nine

    cdef void frame(self, int kind, int flags, int64_t stream, bytes payload) except *
    @cython.locals(kind=int, flags=int, last=int, at=Py_ssize_t, part=bytes)
    cdef void headers(self, int64_t stream, bytes block, bint end) except *
    cdef void data(self, int64_t stream, part, Py_ssize_t size) except *
    cdef void window(self, int64_t stream, int64_t size) except *
    @cython.locals(head=bytearray)
    cdef void _head(self, Py_ssize_t length, int kind, int flags, int64_t stream) except *
    cdef bytes take(self)
