# C types of keys.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.broker.fast_path.fields cimport Fields
from orbitmq.message.octets cimport copy, same
from orbitmq.wire.scan cimport HeaderScan, unescape

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out

cdef int ACCESS_KEY, SIGNATURE, ZONE_NAME, ZONE_MODE, PULL, SIGNED, CONTENT_BYTES

@cython.final
cdef class SignedCaller:
    cdef readonly str name
    cdef object key
    cdef const uint8_t[::1] text
    cdef uint8_t[::1] sends, pulls
    cdef public bint is_open

@cython.final
cdef class FrameKeys:
    cdef Fields fields
    cdef HeaderScan scan
    cdef int64_t[::1] slots, order
    cdef readonly bint requires_keys
    cdef public SignedCaller caller
    cdef public bint signed, certified
    cdef public object chunk
    cdef object data, content
    cdef uint8_t[::1] view

    cdef bint let_send(self, const uint8_t* buf, Py_ssize_t end, int64_t row, int kind) noexcept nogil
    cdef bint let_pull(self, const uint8_t* buf, Py_ssize_t end, int64_t row) noexcept nogil
    cdef bint _is_made(self, const uint8_t* buf, Py_ssize_t end, int kind) noexcept nogil
    @cython.locals(i=int64_t, text=bytes_in)
    cdef bint _names_caller(self, const uint8_t* buf) noexcept nogil
    @cython.locals(out=bytes_out, used=Py_ssize_t, length=Py_ssize_t, count=int64_t, n=int, i=int64_t)
    cdef bint _is_signed(self, const uint8_t* buf, Py_ssize_t end, int kind) noexcept nogil
    cdef bint _made(self, Py_ssize_t used, Py_ssize_t body, Py_ssize_t end, Py_ssize_t at, Py_ssize_t length) noexcept with gil
