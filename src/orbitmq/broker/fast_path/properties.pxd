# C types of properties.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.broker.fast_path.texts cimport find_sorted, put_hex
from orbitmq.message.octets cimport copy, find
from orbitmq.wire.scan cimport unescape

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out

cdef int64_t RESERVED_BITS, LOW_32, SIGN_32, NAME_TAGS, NAME_UNIQUE_KEY, NAME_WAIT, NAME_SHARDING_KEY
cdef int NORMAL, FIFO
cdef int MAX_PROPERTIES, MAX_UNIQUE_KEY, PREFIX_BYTES, ID_BYTES
cdef int64_t[::1] RESERVED_NAMES

@cython.final
cdef class Properties:
    cdef const uint8_t[::1] added
    cdef Py_ssize_t added_length
    cdef bytearray data
    cdef uint8_t[::1] view
    cdef const uint8_t[::1] unique_name
    cdef bytes unique_prefix
    cdef const uint8_t[::1] unique_view
    cdef int64_t unique_start_ms
    cdef int unique_count
    cdef Py_ssize_t used
    cdef int64_t tags_code
    cdef bint waits
    cdef Py_ssize_t unique_at, unique_length
    cdef int message_type

    @cython.locals(data=bytes_out)
    cdef bint load(self, const uint8_t* buf, Py_ssize_t start, Py_ssize_t length, bint escaped) noexcept nogil
    @cython.locals(end=Py_ssize_t, h=uint32_t, start=Py_ssize_t, name_length=Py_ssize_t)
    cdef bint check(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t length) noexcept nogil
    @cython.locals(i=Py_ssize_t, odd=uint8_t)
    cdef bint _note(self, const uint8_t* data, int64_t h, Py_ssize_t name_length, Py_ssize_t start, Py_ssize_t end) noexcept nogil
    @cython.locals(code=int64_t)
    cdef bint _hash_tags(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(data=bytes_out, added=bytes_in, used=Py_ssize_t, extra=Py_ssize_t)
    cdef bint complete(self, int64_t now_ms) noexcept nogil
    @cython.locals(i=int)
    cdef Py_ssize_t _add_unique_key(self, uint8_t* data, Py_ssize_t at, int64_t now_ms) noexcept nogil
