cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef int MAGIC_V1, MAGIC_V2, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT, BORN_TIME_AT, BORN_HOST_AT
cdef int HOST_V4_BYTES, HOST_V6_BYTES, BORN_V6, STORE_V6, BODY_LENGTH_AT, MIN_BYTES

cdef int _u16(const uint8_t[::1] src, Py_ssize_t at) noexcept nogil

cdef int64_t _i32(const uint8_t[::1] src, Py_ssize_t at) noexcept nogil

cdef int64_t _i64(const uint8_t[::1] src, Py_ssize_t at) noexcept nogil

@cython.locals(i=Py_ssize_t)
cdef Py_ssize_t _find(const uint8_t[::1] src, uint8_t byte, Py_ssize_t start, Py_ssize_t end) noexcept nogil

@cython.locals(i=Py_ssize_t)
cdef bint _same(const uint8_t[::1] a, Py_ssize_t a_at, const uint8_t[::1] b, Py_ssize_t b_at, Py_ssize_t size) noexcept nogil

cdef Py_ssize_t _copy(uint8_t[::1] dst, Py_ssize_t dst_at, const uint8_t[::1] src, Py_ssize_t src_at, Py_ssize_t size) noexcept nogil

@cython.locals(i=Py_ssize_t, byte=int, high=int, low=int)
cdef Py_ssize_t _hex(uint8_t[::1] dst, Py_ssize_t dst_at, const uint8_t[::1] src, Py_ssize_t src_at, Py_ssize_t size) noexcept nogil

@cython.locals(size=Py_ssize_t, at=Py_ssize_t, count=Py_ssize_t, total=int64_t, offset=int64_t, found=int64_t)
cpdef scan_range(const uint8_t[::1] src, int64_t expected, int64_t end, bint strict)

cdef class ColumnDecoder:
    cdef readonly object names, bad_body
    cdef dict errors
    cdef bint want_topic, want_tags, want_keys, want_body, want_id, want_pairs, want_block, want_numbers, want_properties
    # The record that _parse looked at last.
    cdef Py_ssize_t total, store_at, host_bytes, tail_at, body_at, body_bytes, topic_at, topic_bytes, props_at, props_bytes
    cdef int64_t sys_flag
    # What _measure counted.
    cdef Py_ssize_t rows, bodies_size, topics_size, props_size, pair_limit, pairs, compressed
    # Where _fill writes.
    cdef int32_t[::1] queue_ids, reconsumed, topic_offsets, tags_offsets, keys_offsets, body_offsets, id_offsets
    cdef int32_t[::1] pair_offsets, name_offsets, value_offsets, body_sizes, block_offsets
    cdef int64_t[::1] queue_offsets, born, stored
    cdef uint8_t[::1] topic_data, tags_data, tags_bits, keys_data, keys_bits, body_data, id_data, block_data, name_data, value_data

    @cython.locals(magic=int64_t, stop=Py_ssize_t, length_bytes=Py_ssize_t)
    cdef bint _parse(self, const uint8_t[::1] src, Py_ssize_t at, Py_ssize_t end) noexcept nogil

    @cython.locals(at=Py_ssize_t, i=Py_ssize_t, stop=Py_ssize_t)
    cdef Py_ssize_t _measure(self, const uint8_t[::1] src, Py_ssize_t end) noexcept nogil

    @cython.locals(at=Py_ssize_t, row=Py_ssize_t)
    cdef void _fill(self, const uint8_t[::1] src, Py_ssize_t end) noexcept nogil

    @cython.locals(tags_at=Py_ssize_t, keys_at=Py_ssize_t, id_at=Py_ssize_t, tags_size=Py_ssize_t, keys_size=Py_ssize_t, id_size=Py_ssize_t, i=Py_ssize_t, stop=Py_ssize_t, first_pair=Py_ssize_t, end=Py_ssize_t, equal=Py_ssize_t, name_size=Py_ssize_t, to=Py_ssize_t)
    cdef void _properties(self, const uint8_t[::1] src, Py_ssize_t at, Py_ssize_t row) noexcept nogil

    @cython.locals(size=Py_ssize_t, j=Py_ssize_t, n=Py_ssize_t)
    cdef void _pair(self, const uint8_t[::1] src, Py_ssize_t first, Py_ssize_t start, Py_ssize_t equal, Py_ssize_t end) noexcept nogil

    @cython.locals(i=Py_ssize_t, names=Py_ssize_t, values=Py_ssize_t)
    cdef void _drop_pair(self, Py_ssize_t j) noexcept nogil
