# C types of hpack.py. No logic lives here.
cimport cython
from libc.stdint cimport int32_t, uint8_t

cdef int _PLACES, _MORE_BYTES, _LIST_BYTES, _MOST_BYTES, _EACH, _FIXED, _EMIT, _FAIL, _NIBBLES
cdef list _STATIC
cdef const int32_t[::1] _FOLLOWING
cdef const int32_t[::1] _EMITTED
cdef const int32_t[::1] _ENDS
cdef const uint8_t[::1] _NAME_BYTES

@cython.final
cdef class HeaderReader:
    cdef list table
    cdef int32_t[::1] sizes
    cdef int places, newest, count, used, limit
    cdef Py_ssize_t at, text_bytes

    cpdef list read(self, bytes block)
    @cython.locals(headers=list, left=Py_ssize_t, first=int, number=Py_ssize_t, pair=tuple, size=Py_ssize_t, name=str, value=str)
    cdef list read_part(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end)
    cdef tuple _known(self, Py_ssize_t number)
    @cython.locals(name=str, value=str)
    cdef Py_ssize_t _size(self, Py_ssize_t number) except -1
    cdef void _add(self, tuple pair, Py_ssize_t size) except *
    @cython.locals(table=list, sizes=int32_t[::1], i=int, old=int)
    cdef void _grow(self) except *
    @cython.locals(oldest=int)
    cdef void _shrink(self, Py_ssize_t most) except *
    cdef void _resize(self, Py_ssize_t limit) except *
    @cython.locals(value=Py_ssize_t, place=int, byte=int)
    cdef Py_ssize_t _number(self, const uint8_t* buf, Py_ssize_t end, int mask) except -1
    @cython.locals(packed=int, length=Py_ssize_t, start=Py_ssize_t, out=bytearray, used=Py_ssize_t)
    cdef bytes _text(self, const uint8_t* buf, Py_ssize_t end)
    @cython.locals(text=bytes)
    cdef str _name(self, const uint8_t* buf, Py_ssize_t end)
    @cython.locals(text=bytes, kind=int)
    cdef str _value(self, const uint8_t* buf, Py_ssize_t end)

@cython.locals(node=int, used=Py_ssize_t, i=Py_ssize_t, step=int, what=int)
cdef Py_ssize_t _unpack(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, uint8_t* out) noexcept
@cython.locals(start=Py_ssize_t, i=Py_ssize_t, good=bint)
cdef bint _is_name(const uint8_t* text, Py_ssize_t length) noexcept
@cython.locals(kind=int, i=Py_ssize_t, byte=int)
cdef int _value_kind(const uint8_t* text, Py_ssize_t length) noexcept
