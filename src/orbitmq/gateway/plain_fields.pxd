# C types of plain_fields.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.message.octets cimport copy, put_i32

ctypedef const uint8_t* bytes_in

cdef int _SECOND

cdef class PlainFields:
    cdef Py_ssize_t at, used
    cdef int count
    cdef bytearray data
    cdef uint8_t[::1] view
    cdef int64_t[::1] parts

    @cython.locals(part=int)
    cdef void _forget(self) noexcept
    @cython.locals(value=int64_t, shift=int, byte=int)
    cdef int64_t _varint(self, const uint8_t* buf, Py_ssize_t end) noexcept
    @cython.locals(start=Py_ssize_t, tag=int64_t)
    cdef int64_t _tag(self, const uint8_t* buf, Py_ssize_t end) noexcept
    @cython.locals(start=Py_ssize_t, length=int64_t)
    cdef int64_t _length(self, const uint8_t* buf, Py_ssize_t end) noexcept
    @cython.locals(length=int64_t)
    cdef bint _span(self, const uint8_t* buf, Py_ssize_t end, int part) noexcept
    @cython.locals(end=Py_ssize_t, parts=int64_t[::1])
    cdef bint _name(self, const uint8_t* buf, int part) noexcept
    cdef void _put(self, bytes text) noexcept
    cdef void _copy(self, const uint8_t* buf, Py_ssize_t start, Py_ssize_t length) noexcept
    cdef void _byte(self, int value) noexcept
    cdef void _number(self, int64_t value) noexcept
    cdef void _begin_answer(self, int64_t length) noexcept
    cdef bytes _made(self)

@cython.locals(count=int)
cdef int varint_bytes(int64_t value) noexcept
@cython.locals(odd=uint8_t, i=Py_ssize_t)
cdef bint is_plain(const uint8_t* buf, Py_ssize_t start, Py_ssize_t length) noexcept
