# C types of frames.py. No logic lives here.
cimport cython

cdef int _DATA, _HEADERS, _RST_STREAM, _CONTINUATION, _LONGEST, _SMALL, _OF_A_CALL, _CONTINUED, _END_STREAM

@cython.final
cdef class Allowance:
    cdef double most, per_second, left, at

    cdef void earn(self, double count) noexcept
    cdef bint spend(self, double now) noexcept

@cython.final
cdef class Floods:
    cdef int continuations
    cdef Allowance resets, controls

    cdef void judge(self, int kind, int flags, Py_ssize_t length, double now) except *
    cdef void sent(self) noexcept
