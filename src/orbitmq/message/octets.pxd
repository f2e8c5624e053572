# C types of octets.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memmove


cdef extern from "orbitmq/message/crc32_fold.h" nogil:
    bint folds "orbitmq_crc32_folds" ()
    uint32_t fold "orbitmq_crc32_fold" (uint32_t state, const uint8_t* data, size_t length)

cdef extern from "orbitmq/message/octets.h" nogil:
    int get_i16 "orbitmq_get_i16" (const uint8_t* buf, Py_ssize_t pos)
    int get_i32 "orbitmq_get_i32" (const uint8_t* buf, Py_ssize_t pos)
    int64_t get_i64 "orbitmq_get_i64" (const uint8_t* buf, Py_ssize_t pos)
    void put_i16 "orbitmq_put_i16" (uint8_t* out, Py_ssize_t at, int64_t value)
    void put_i32 "orbitmq_put_i32" (uint8_t* out, Py_ssize_t at, int64_t value)
    void put_i64 "orbitmq_put_i64" (uint8_t* out, Py_ssize_t at, int64_t value)
    void copy "orbitmq_copy" (uint8_t* out, Py_ssize_t at, const uint8_t* source, Py_ssize_t pos, Py_ssize_t length)
    void fetch "orbitmq_fetch" (const uint8_t* buf, Py_ssize_t at, Py_ssize_t length)
    Py_ssize_t find "orbitmq_find" (const uint8_t* buf, int byte, Py_ssize_t start, Py_ssize_t end)
    bint same "orbitmq_same" (const uint8_t* buf, Py_ssize_t pos, const uint8_t* other, Py_ssize_t at, Py_ssize_t length)

cdef uint32_t[::1] _TABLE
cdef Py_ssize_t FOLD_BYTES

cdef uint32_t crc32(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
@cython.locals(c=uint32_t, end=Py_ssize_t, folded=Py_ssize_t)
cdef uint32_t _crc32_by_eight(const uint32_t[::1] t, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
cpdef uint32_t crc32_of(bytes data)
cdef uint32_t _crc32_of_view(const uint8_t[::1] data, Py_ssize_t length)
cdef void move(uint8_t* out, Py_ssize_t to, Py_ssize_t at, Py_ssize_t length) noexcept nogil
@cython.locals(seen=uint8_t, i=Py_ssize_t)
cdef bint is_ascii(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
@cython.locals(seen=uint8_t, i=Py_ssize_t)
cdef int text_kind(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
@cython.locals(end=Py_ssize_t, c=int, low=int, high=int, more=int, i=Py_ssize_t)
cdef bint is_utf8(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
cpdef bint is_utf8_bytes(bytes data)
cdef bint _is_utf8_view(const uint8_t[::1] data, Py_ssize_t length)
