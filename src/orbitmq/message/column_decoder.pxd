# C types of column_decoder.py. No logic lives here.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from orbitmq.message.octets cimport crc32, get_i32, get_i64
from orbitmq.message.property_columns cimport PropertyColumns
from orbitmq.message.record_parts cimport RecordParts
from orbitmq.message.text_column cimport TextColumn

ctypedef const uint8_t* bytes_in

cdef int CRC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, BORN_TIME_AT

@cython.final
cdef class ColumnDecoder:
    cdef readonly object names, bad_body
    cdef object allocate
    cdef dict errors
    cdef bint want_topic, want_body, want_block, want_numbers
    cdef RecordParts parts
    cdef PropertyColumns properties
    cdef TextColumn topic, body, block
    # What _measure counted, and where _fill is.
    cdef Py_ssize_t rows, bodies_size, topics_size, props_size, compressed, damaged, row
    cdef int32_t[::1] queue_ids, reconsumed, body_sizes
    cdef int64_t[::1] queue_offsets, born, stored

    @cython.locals(buf=bytes_in, at=Py_ssize_t)
    cdef Py_ssize_t _measure(self, const uint8_t[::1] src, Py_ssize_t end)

    @cython.locals(expected=uint32_t)
    cdef bint _is_damaged(self, const uint8_t* buf, Py_ssize_t at) noexcept nogil

    cdef bint _looks_damaged(self, const uint8_t[::1] src, Py_ssize_t at)

    @cython.locals(buf=bytes_in, at=Py_ssize_t, row=Py_ssize_t)
    cdef object _fill(self, const uint8_t[::1] src, Py_ssize_t end)

    @cython.locals(at=Py_ssize_t)
    cdef object _add_bodies(self, bytes src, list bodies)

    cdef object _find(self, const uint8_t[::1] src, Py_ssize_t at)

    @cython.locals(buf=bytes_in)
    cdef object _place(self, const uint8_t[::1] src, Py_ssize_t at)
