# C types of scan.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.message.octets cimport get_i16, get_i32, is_ascii, is_utf8, text_kind

cdef int MAX_FIELDS
cdef int SCAN_OK
cdef int SCAN_UNUSUAL
cdef uint32_t _MASK
cdef int64_t INT_BAD
cdef uint32_t NAME_EXT_FIELDS
cdef uint32_t NAME_CODE
cdef uint32_t NAME_OPAQUE
cdef uint32_t NAME_FLAG
cdef uint32_t NAME_VERSION

cdef int _UNFINISHED
cdef int _IMPOSSIBLE

cpdef uint32_t field_name(str name)

@cython.locals(total=Py_ssize_t)
cdef Py_ssize_t frame_border(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t max_frame_bytes) noexcept nogil

cpdef Py_ssize_t border_in(const uint8_t[::1] buffer, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t max_frame_bytes) except -3

@cython.final
cdef class HeaderScan:
    cdef int64_t[::1] names
    cdef int64_t[::1] name_starts
    cdef int64_t[::1] name_lengths
    cdef int64_t[::1] starts
    cdef int64_t[::1] lengths
    cdef int64_t[::1] escaped
    cdef public int count
    cdef public int code
    cdef public int flag
    cdef public int opaque
    cdef public int version
    cdef public int binary
    cdef public Py_ssize_t body_start

    @cython.locals(word=int, header_length=Py_ssize_t, kind=int, header=Py_ssize_t)
    cdef int scan(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    cdef int _scan_view(self, const uint8_t[::1] frame)

    @cython.locals(n=int, h=uint32_t, plain=bint, key_length=Py_ssize_t, value_length=Py_ssize_t, ext_length=Py_ssize_t, i=Py_ssize_t)
    cdef int _scan_binary(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    @cython.locals(h=uint32_t, c=uint8_t, start=Py_ssize_t, kind=int)
    cdef int _scan_json(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    @cython.locals(value=int64_t, pos=Py_ssize_t, first=Py_ssize_t, digit=int)
    cdef int _note_number(self, uint32_t h, const uint8_t* buf, Py_ssize_t start, Py_ssize_t end) noexcept nogil

    @cython.locals(n=int, h=uint32_t, start=Py_ssize_t, escaped=int)
    cdef Py_ssize_t _scan_fields(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

@cython.locals(value=int64_t, end=Py_ssize_t, negative=bint, digit=int)
cdef int64_t parse_int(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil

@cython.locals(end=Py_ssize_t, start=Py_ssize_t, limit=Py_ssize_t, c=uint8_t, high=int, low=int)
cdef Py_ssize_t unescape(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length, uint8_t* out, Py_ssize_t at, Py_ssize_t room) noexcept nogil

cdef Py_ssize_t _unescape_view(const uint8_t[::1] text, Py_ssize_t length, uint8_t[::1] out, Py_ssize_t room)

cdef int64_t _parse_view(const uint8_t[::1] text, Py_ssize_t length)

cdef int _hex_digit(int c) noexcept nogil
