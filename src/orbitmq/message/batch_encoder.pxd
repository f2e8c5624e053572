cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from orbitmq.message.xxh64 cimport xxh64

cdef int ITEM_BYTES, MAX_PROPERTIES_BYTES
cdef uint64_t MASK
cdef const uint8_t[::1] UNIQ_KEY

cdef class Slot:
    cdef const uint8_t[::1] name, data, bits
    cdef const int32_t[::1] offsets
    cdef Py_ssize_t name_size
    cdef uint64_t seed
    cdef bint stored, has_bits

    cdef Py_ssize_t size(self, Py_ssize_t row)

cdef class BatchEncoder:
    cdef const uint8_t[::1] key_prefix, id_head
    cdef Py_ssize_t id_head_size
    cdef list foreign, own, delays, waited, slots
    cdef int64_t first_row
    cdef Py_ssize_t rows
    cdef public Py_ssize_t used
    cdef public int fault
    cdef bint has_pairs, has_pair_bits, has_value_bits
    cdef const int32_t[::1] body_offsets, pair_offsets, name_offsets, value_offsets, codes
    cdef const uint8_t[::1] body_data, pair_bits, name_data, value_data, value_bits
    cdef uint8_t[::1] kept
    cdef uint64_t[::1] seeds
    cdef public object sizes, digests
    cdef int32_t[::1] _sizes
    cdef uint64_t[::1] _digests

    @cython.locals(row=Py_ssize_t, size=Py_ssize_t)
    cpdef Py_ssize_t measure(self)

    @cython.locals(row=Py_ssize_t)
    cpdef Py_ssize_t fill(self, const int64_t[::1] selection, Py_ssize_t at, Py_ssize_t stop, uint8_t[::1] out, Py_ssize_t limit)

    @cython.locals(start=Py_ssize_t, size=Py_ssize_t, value=Py_ssize_t)
    cdef int _pair_is_kept(self, Py_ssize_t row, Py_ssize_t j)

    @cython.locals(start=Py_ssize_t, j=Py_ssize_t)
    cdef int _has_waited(self, Py_ssize_t row)

    @cython.locals(size=Py_ssize_t, own=int, slot=Slot, length=Py_ssize_t, j=Py_ssize_t, stop=Py_ssize_t, kept=int)
    cdef Py_ssize_t _properties_size(self, Py_ssize_t row)

    @cython.locals(start=Py_ssize_t, length=Py_ssize_t, slot=Slot, same_length=bint)
    cdef int _has_own(self, Py_ssize_t row, Py_ssize_t j)

    @cython.locals(at=Py_ssize_t, total=uint64_t, slot=Slot, size=Py_ssize_t, j=Py_ssize_t, stop=Py_ssize_t, start=Py_ssize_t, seed=uint64_t)
    cdef uint64_t _digest(self, Py_ssize_t row)

    @cython.locals(body=Py_ssize_t, total=Py_ssize_t, i=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _put(self, Py_ssize_t row, uint8_t[::1] out, Py_ssize_t at)

    @cython.locals(j=Py_ssize_t, stop=Py_ssize_t, start=Py_ssize_t, slot=Slot, size=Py_ssize_t, number=int64_t)
    cdef Py_ssize_t _put_properties(self, Py_ssize_t row, uint8_t[::1] out, Py_ssize_t at)

@cython.locals(name=bytes, i=Py_ssize_t)
cdef int _is_one_of(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t size, list names)
@cython.locals(i=Py_ssize_t)
cdef int _same(const uint8_t[::1] data, Py_ssize_t at, const uint8_t[::1] name, Py_ssize_t size) noexcept nogil
@cython.locals(i=Py_ssize_t)
cdef int _has_control(const uint8_t[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t _copy(uint8_t[::1] out, Py_ssize_t at, const uint8_t[::1] source, Py_ssize_t pos, Py_ssize_t size) noexcept nogil
cdef void _put_i32(uint8_t[::1] out, Py_ssize_t at, int64_t value) noexcept nogil
@cython.locals(i=Py_ssize_t, low=int)
cdef void _put_hex(uint8_t[::1] out, Py_ssize_t at, uint64_t value, int digits, int letter) noexcept nogil
@cython.locals(count=int)
cdef int _digits(int64_t value) noexcept nogil
@cython.locals(end=Py_ssize_t, i=Py_ssize_t)
cdef Py_ssize_t _put_decimal(uint8_t[::1] out, Py_ssize_t at, int64_t value) noexcept nogil
