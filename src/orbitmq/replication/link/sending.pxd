# C types of sending.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

from orbitmq.replication.link.cursor cimport Cursor, Flow
from orbitmq.runtime.file_sending cimport FileSender

@cython.final
cdef class Rest:
    cdef readonly double seconds
    cdef double _due

    cpdef double begins(self, double now) except? -1
    @cython.locals(due=double)
    cpdef ended(self, double now)

@cython.final
cdef class LogSender:
    cdef object _monotonic
    cdef object _store
    cdef object _in_memory
    cdef object _pace
    cdef object _transport
    cdef FileSender _out
    cdef object _header
    cdef int64_t _piece_bytes
    cdef object _awaited
    cdef bint _paused
    cdef object _next
    cdef bint _gathers
    cdef int64_t _ahead
    cdef int64_t _end_seen
    cdef Flow _flow
    cdef double _last_step
    cdef Rest _rest
    cdef readonly int64_t begin
    cdef readonly Cursor cursor
    cdef readonly double last_sent

    @cython.locals(position=int64_t)
    cpdef str broken(self)
    cpdef pump(self)
    @cython.locals(offset=int64_t, size=int64_t, now=double)
    cdef bint _send_batch(self) except -1
    @cython.locals(cursor=Cursor, end=int64_t, left=int64_t, allowed=int64_t, share=int64_t, behind=int64_t, flows=bint)
    cpdef _step(self)
    @cython.locals(now=double)
    cdef _sent(self, int64_t size_bytes)
    @cython.locals(grown=int64_t)
    cdef int64_t _share(self, int64_t end) except? -1
    cdef _read_ahead(self, int64_t behind)
