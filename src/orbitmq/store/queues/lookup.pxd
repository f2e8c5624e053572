# C types of lookup.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from orbitmq.message.octets cimport copy, get_i32, get_i64
from orbitmq.store.log.appender cimport Appender
from orbitmq.store.log.records cimport RecordReader
from orbitmq.store.sql.matcher cimport Matcher

ctypedef const uint8_t* bytes_in
ctypedef const uint8_t** bytes_pp

cdef int Q_NEXT, Q_TAIL, Q_TAIL_FIRST, Q_MAP_FIRST, Q_MAP_COUNT, Q_RING, Q_WIDTH
cdef int READ_FOUND, READ_NO_MATCH, READ_NEED_ENTRIES, READ_NEED_LOG, READ_NO_SPACE, READ_BROKEN, READ_SCATTERED
cdef int RECORD_FIXED_BYTES, CQ_ENTRY_BYTES, SCAN_LIMIT, RECORD_SCAN_LIMIT, ALL_CODES, BY_PROPERTIES, RECORD
cdef int QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, Q_ID
cdef int BLOCK, AHEAD, WARM_BYTES, CACHE_LINE_BYTES, MAX_SPANS

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*) noexcept nogil

@cython.final
cdef class Lookup:
    cdef Appender a
    cdef int64_t segment_bytes
    cdef int64_t[::1] codes
    cdef RecordReader record
    cdef Matcher matcher
    cdef int64_t places[32]
    cdef int64_t sizes[32]
    cdef int64_t tags[32]
    cdef Py_ssize_t loaded
    cdef int64_t span_starts[64]
    cdef int64_t span_ends[64]
    cdef Py_ssize_t span_count
    cdef const uint8_t* log
    cdef int64_t log_start, log_size
    cdef int64_t within
    cdef Py_ssize_t log_map_count
    cdef int64_t log_first
    cdef dict kept_entry_maps
    cdef dict kept_log_maps
    cdef const uint8_t** entry_maps
    cdef Py_ssize_t entry_map_slots
    cdef const uint8_t** log_maps
    cdef public int64_t need
    cdef int64_t queue_id
    cdef public int64_t entry_physical
    cdef public int64_t entry_size
    cdef public int64_t entry_tags
    cdef public int64_t read_count
    cdef public int64_t read_bytes
    cdef public int64_t read_next

    @cython.locals(fresh=bytes_pp)
    cdef _realloc_entry_maps(self, Py_ssize_t count)
    cdef _point_entries(self, Py_ssize_t slot, const uint8_t[::1] view)
    @cython.locals(fresh=bytes_pp, i=Py_ssize_t)
    cdef _point_log(self, list views)
    cdef _point_one_log(self, Py_ssize_t i, const uint8_t[::1] view)
    @cython.locals(status=int)
    cpdef int find_entry(self, Py_ssize_t slot, int64_t offset) noexcept nogil
    @cython.locals(base=Py_ssize_t, ring_at=int64_t, ring=int64_t, place=int64_t, mapped=int64_t, entry=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, index=bytes_in)
    cdef int _load(self, Py_ssize_t slot, int64_t offset, int64_t most) noexcept nogil
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef bint _matches(self, int64_t tag, const int64_t* codes, Py_ssize_t codes_at, Py_ssize_t codes_count) noexcept nogil
    @cython.locals(most=int64_t, status=int)
    cdef int read(self, Py_ssize_t slot, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes, const int64_t* codes, Py_ssize_t codes_at, Py_ssize_t codes_count, uint8_t* out, Py_ssize_t out_at, Py_ssize_t out_room) noexcept nogil
    @cython.locals(i=Py_ssize_t, size=int64_t, end=int64_t, status=int)
    cdef int _copy_loaded(self, int64_t max_count, int64_t max_bytes, const int64_t* codes, Py_ssize_t codes_at, Py_ssize_t codes_count, uint8_t* out, Py_ssize_t out_at, Py_ssize_t out_room) noexcept nogil
    @cython.locals(within=int64_t, end=int64_t)
    cdef void _warm(self, Py_ssize_t i, const int64_t* codes, Py_ssize_t codes_at, Py_ssize_t codes_count) noexcept nogil
    @cython.locals(file=int64_t)
    cdef bint _enter(self, int64_t physical) noexcept nogil
    cdef int _look_into(self, int64_t physical, int64_t size) noexcept nogil
    @cython.locals(found=int)
    cdef bint _matches_properties(self, const int64_t* codes, Py_ssize_t codes_at) noexcept nogil
    @cython.locals(most=int64_t, status=int)
    cpdef int find_spans(self, Py_ssize_t slot, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes) noexcept nogil
    @cython.locals(i=Py_ssize_t, place=int64_t, size=int64_t, status=int)
    cdef int _join_loaded(self, int64_t max_bytes) noexcept nogil
    @cython.locals(i=Py_ssize_t, file=int64_t, base=int64_t)
    cpdef list spans(self)
    cdef int _read_view(self, Py_ssize_t slot, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes, Py_ssize_t codes_count, uint8_t[::1] out)
