# C types of timed.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t

from orbitmq.broker.fast_path.frames cimport FastFrames

cdef int V1, V2, BATCHES, PULLS, LITE_PULLS, BOUNDS, TOTAL, WIDTH, SUCCESS

@cython.final
cdef class FastTimes:
    cdef object times, monotonic
    cdef readonly object release, late
    cdef int64_t[::1] bounds, noted
    cdef double began
    cdef int64_t v1, v2, batches, found, lite

    cpdef begin(self, FastFrames frames)
    cdef _look(self, FastFrames frames)
    @cython.locals(made=TimedAnswers)
    cpdef TimedAnswers answers(self, FastFrames frames, object send, bytes data)
    @cython.locals(lite=int64_t)
    cpdef sent(self, FastFrames frames)
    cpdef _release(self, TimedAnswers answers)
    cpdef _late(self, TimedAnswers answers, status)
    @cython.locals(ms=int64_t, place=int)
    cdef note(self, double began, int64_t v1, int64_t v2, int64_t batches, int64_t pulls, int64_t lite)
    cdef void _add(self, int code, int place, int64_t ms, int64_t number) noexcept

@cython.final
@cython.freelist(256)
cdef class TimedAnswers:
    cdef object send
    cdef bytes data
    cdef double began
    cdef int64_t v1, v2, batches
    cdef int told
