# C types of refusals.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef int _PADDED, _NEEDED, _MOST_DIGITS
cdef dict _PSEUDO
cdef frozenset _JUDGED

@cython.locals(seen=int, behind=bint, bit=int, length=int64_t, name=str, value=str)
cdef int64_t check_headers(list headers, bint trailers) except -2
cdef void check_connection(str name, int64_t stream) except *
cdef void check_stream(str name, int64_t stream) except *
cdef int padding_of(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int flags) except -1
