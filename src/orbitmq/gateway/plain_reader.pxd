# C types of plain_reader.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.gateway.plain_acks cimport PlainAcks
from orbitmq.gateway.plain_sends cimport PlainSends
from orbitmq.message.octets cimport get_i32

cdef int MAX_CLIENT_ID, SEND, ACKNOWLEDGE
cdef str _CONTENT_TYPE
cdef int _H_METHOD, _H_PATH, _H_TYPE, _H_ID, _H_ENCODING, _H_TIMEOUT, _H_KEY, _H_TIME, _H_TOKEN, _NEEDED
cdef dict _HEADERS, _PATHS

@cython.final
cdef class PlainCalls:
    cdef public list streams, answers, timeouts_ms
    cdef public object timer

@cython.final
cdef class PlainReader:
    cdef PlainSends sends
    cdef PlainAcks acks
    cdef object seen, check, read_timeout
    cdef readonly int room
    cdef str client
    cdef readonly int kind
    cdef readonly int64_t timeout_ms
    cdef readonly PlainCalls sent, acknowledged

    cpdef begin(self, bytes born, bytes address, int room)
    cpdef end(self)
    @cython.locals(seen=int, kind=int, bit=int, name=str, value=str, client=str, timeout=str)
    cpdef bint wants(self, list headers) except -1
    @cython.locals(answer=bytes, calls=PlainCalls)
    cdef bint take(self, int64_t stream, int kind, int64_t timeout_ms, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) except -1
    cdef PlainCalls _calls(self, int kind)
