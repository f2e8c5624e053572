# C types of comparing.py. No logic lives here.
cimport cython
from libc.math cimport copysign
from libc.stdint cimport uint8_t

ctypedef const uint8_t* bytes_in

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    void *memmem(const void *, size_t, const void *, size_t);
    #endif
    """
    const void* memmem(const void*, size_t, const void*, size_t) noexcept nogil

@cython.locals(found=bytes_in)
cdef bint find_text(const uint8_t* source, Py_ssize_t start, Py_ssize_t length, const uint8_t* other, Py_ssize_t place, Py_ssize_t wanted) noexcept nogil
@cython.locals(left_rank=int, right_rank=int)
cdef int order_doubles(double left, double right) noexcept nogil
cdef int _rank(double value) noexcept nogil
cdef double slow_double(const uint8_t* source, Py_ssize_t at, Py_ssize_t length) noexcept with gil
