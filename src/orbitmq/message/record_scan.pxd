# C types of record_scan.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.message.octets cimport get_i32, get_i64

ctypedef const uint8_t* bytes_in

cdef int QUEUE_OFFSET_AT, SEEN_BYTES

@cython.locals(buf=bytes_in, size=Py_ssize_t, at=Py_ssize_t, count=Py_ssize_t, total=int64_t, offset=int64_t, found=int64_t)
cpdef scan_range(const uint8_t[::1] src, int64_t expected, int64_t end, bint strict)
