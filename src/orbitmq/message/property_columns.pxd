# C types of property_columns.py. No logic lives here.
cimport cython
from libc.stdint cimport int32_t, uint8_t

from orbitmq.message.octets cimport find, get_i32
from orbitmq.message.record_parts cimport RecordParts
from orbitmq.message.text_column cimport TextColumn

cdef int PHYSICAL_OFFSET_AT, LONGEST_ID, BETWEEN, BEHIND

@cython.final
cdef class PropertyColumns:
    cdef readonly bint any
    cdef bint want_tags, want_keys, want_id, want_pairs
    cdef TextColumn tags, keys, ids, names, values
    # What was counted, and where the next record goes.
    cdef Py_ssize_t rows, size, pairs, row
    cdef object pair_offset_bytes
    cdef int32_t[::1] pair_offsets

    @cython.locals(i=Py_ssize_t, stop=Py_ssize_t)
    cdef void count(self, const uint8_t* src, RecordParts parts) noexcept nogil

    @cython.locals(tags_at=Py_ssize_t, keys_at=Py_ssize_t, id_at=Py_ssize_t, tags_size=Py_ssize_t, keys_size=Py_ssize_t, id_size=Py_ssize_t, i=Py_ssize_t, stop=Py_ssize_t, first_pair=Py_ssize_t, end=Py_ssize_t, equal=Py_ssize_t, name_size=Py_ssize_t)
    cdef void add(self, const uint8_t* src, Py_ssize_t at, RecordParts parts) noexcept nogil

    @cython.locals(row=Py_ssize_t)
    cdef void _pair(self, const uint8_t* src, Py_ssize_t first, Py_ssize_t start, Py_ssize_t equal, Py_ssize_t end) noexcept nogil
