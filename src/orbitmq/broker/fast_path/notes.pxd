# C types of notes.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

cdef int NOTE_WIDTH, SLOTS, MAX_NOTES
cdef int64_t NO_COMMIT, FREE

@cython.final
cdef class PullNotes:
    cdef int64_t[::1] notes, order
    cdef readonly Py_ssize_t count
    cdef bint commits

    cdef bint full(self) noexcept nogil
    @cython.locals(slot=int64_t, at=Py_ssize_t)
    cpdef void keep(self, int64_t pull, int64_t queue_id, int64_t commit, int64_t before, int64_t after, int64_t size) noexcept nogil
    @cython.locals(i=Py_ssize_t, at=Py_ssize_t)
    cpdef list take(self)
