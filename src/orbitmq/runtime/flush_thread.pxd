# C types of flush_thread.py. No logic lives here.
cimport cython
from libc.errno cimport EINTR, errno
from posix.unistd cimport fdatasync, read, write

cdef int END_OF_REQUEST, CLOSE, NUMBERS, UNKNOWN_ERROR

cpdef serve(int requests, int results, int[::1] numbers)
@cython.locals(error=int, count=int, at=int, number=int, code=int)
cdef void _serve(int requests, int results, int* numbers) noexcept nogil
@cython.locals(count=Py_ssize_t)
cdef int receive(int requests, int* numbers) noexcept nogil
cdef void reply(int results, int error) noexcept nogil
@cython.locals(code=int)
cdef int sync_one(int descriptor) noexcept nogil
