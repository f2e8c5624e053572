# C types of replicas.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

cdef double NOTHING_OWED

@cython.final
cdef class _Link:
    cdef readonly object replica
    cdef readonly int64_t received
    cdef readonly int64_t durable
    cdef double heard
    cdef double alive_s
    cdef double owes_since
    cdef readonly bint silent
    cdef readonly bint in_sync

@cython.final
cdef class Replicas:
    cdef public object rule
    cdef object _log_end
    cdef dict _links
    cdef int64_t _reached
    cdef double _judged_s
    cdef object _grew_s
    cdef object _changed
    cdef public int64_t in_sync
    cdef public int64_t need
    cdef public bint awaited
    cdef public int64_t replicated

    @cython.locals(silent_s=double)
    cdef _state(self, _Link each)
    @cython.locals(each=_Link)
    cpdef reported(self, object link, int64_t received, int64_t durable, double now)
    @cython.locals(each=_Link)
    cpdef note_alive(self, object link, double now)
    @cython.locals(end=int64_t)
    cdef _fault(self, _Link each, int64_t received, int64_t durable)
    @cython.locals(end=int64_t, each=_Link, has=int64_t, owes_s=double, on_device=bint)
    cpdef judge(self, double now)
    @cython.locals(each=_Link, has=int64_t, votes=dict, in_sync=int64_t, need=int64_t, replicated=int64_t, on_device=bint)
    cdef _decide(self)
