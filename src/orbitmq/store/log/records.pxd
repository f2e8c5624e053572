# C types of records.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.message.octets cimport crc32, find, get_i16, get_i32, get_i64


cdef int MAGIC_V1, MAGIC_V2, MAGIC_BLANK
cdef int CRC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT, BORN_HOST_AT
cdef int HOST_V4_BYTES, HOST_V6_BYTES, BORN_V6, STORE_V6, BODY_LENGTH_AT, MIN_RECORD_BYTES, BLANK_BYTES
cdef int RECORD, BLANK, CUT, BAD_SIZE, BAD_MAGIC, BAD_PLACE, BAD_LENGTHS, BAD_CRC
cdef int DEVICE_BLOCK_BYTES
cdef uint32_t _MASK

@cython.locals(c=uint32_t)
cdef uint32_t hash_on(uint32_t h, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil

@cython.final
cdef class RecordReader:
    cdef readonly int64_t size
    cdef readonly int queue_id
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical
    cdef readonly int64_t sys_flag
    cdef readonly int64_t store_time
    cdef readonly Py_ssize_t body_at, body_end, topic_at, topic_end, props_at, props_end
    cdef readonly Py_ssize_t tags_at, tags_end, keys_at, keys_end, id_at, id_end

    @cython.locals(magic=int)
    cdef int read(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t have, Py_ssize_t limit, int64_t physical, bint check_crc) noexcept nogil
    @cython.locals(end=Py_ssize_t, pos=Py_ssize_t, length=int64_t, expected=int64_t)
    cdef int _parts(self, const uint8_t* buf, Py_ssize_t at, bint wide, bint check_crc) noexcept nogil
    @cython.locals(last=Py_ssize_t)
    cdef bint has_hole(self, const uint8_t* buf) noexcept nogil
    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, stop=Py_ssize_t)
    cdef void find_properties(self, const uint8_t* buf) noexcept nogil
    cdef bint _is_unique_key(self, const uint8_t* buf, Py_ssize_t pos) noexcept nogil
    @cython.locals(h=uint32_t)
    cdef int64_t tags_code(self, const uint8_t* buf) noexcept nogil
    @cython.locals(length=Py_ssize_t)
    cpdef int read_at(self, const uint8_t[::1] view, Py_ssize_t at, int64_t physical, bint check_crc)
