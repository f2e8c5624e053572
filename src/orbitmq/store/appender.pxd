# C types of appender.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out
ctypedef const uint8_t** bytes_pp

cdef int Q_NEXT, Q_VISIBLE, Q_MIN, Q_TAIL, Q_TAIL_FIRST, Q_SAVED, Q_DIRTY, Q_WATCHED
cdef int Q_MAP_FIRST, Q_MAP_COUNT, Q_LAST_STORED, Q_WIDTH
cdef int NO_ROOM, ROLL, TAIL_FULL
cdef int READ_FOUND, READ_NO_MATCH, READ_NEED_INDEX, READ_NEED_LOG, READ_NO_SPACE, READ_BROKEN
cdef int MAGIC_V1, MAGIC_V2, RECORD_FIXED_BYTES, END_OF_FILE_RESERVE, CQ_ENTRY_BYTES, SCAN_LIMIT
cdef uint32_t[::1] _TABLE

cdef uint32_t crc32(const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
@cython.locals(c=uint32_t, end=Py_ssize_t)
cdef uint32_t _crc32_by_eight(const uint32_t[::1] t, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
cdef void copy(uint8_t* out, Py_ssize_t at, const uint8_t* source, Py_ssize_t pos, Py_ssize_t length) noexcept nogil
cdef void put_i16(uint8_t* out, Py_ssize_t at, int64_t value) noexcept nogil
cdef void put_i32(uint8_t* out, Py_ssize_t at, int64_t value) noexcept nogil
cdef void put_i64(uint8_t* out, Py_ssize_t at, int64_t value) noexcept nogil
cdef int get_i32(const uint8_t* buf, Py_ssize_t pos) noexcept nogil
cdef int64_t get_i64(const uint8_t* buf, Py_ssize_t pos) noexcept nogil

@cython.final
cdef class Appender:
    cdef public bytearray turn
    cdef uint8_t[::1] turn_view
    cdef public Py_ssize_t turn_room
    cdef public Py_ssize_t turn_used
    cdef public int64_t turn_base
    cdef public int64_t turn_records
    cdef public int64_t file_end
    cdef public int64_t segment_bytes
    cdef public int64_t tail_entries
    cdef public bytes host
    cdef const uint8_t[::1] host_view
    cdef public Py_ssize_t host_length
    cdef public Py_ssize_t rows
    cdef int64_t[::1] q
    cdef int64_t[::1] tails
    cdef Py_ssize_t tails_used
    cdef int64_t[::1] dirty
    cdef public Py_ssize_t dirty_count
    cdef int64_t[::1] filters
    cdef public int64_t now_ms
    cdef public Py_ssize_t log_slots
    cdef public int64_t log_first
    cdef dict kept_index_maps
    cdef dict kept_log_maps
    cdef const uint8_t** index_maps
    cdef Py_ssize_t index_map_slots
    cdef const uint8_t** log_maps
    cdef public int64_t need
    cdef public int64_t entry_physical
    cdef public int64_t entry_size
    cdef public int64_t entry_tags
    cdef public int64_t read_count
    cdef public int64_t read_bytes
    cdef public int64_t read_next

    cpdef int64_t get(self, Py_ssize_t row, int column) noexcept nogil
    cpdef set(self, Py_ssize_t row, int column, int64_t value)
    @cython.locals(fresh=bytes_pp)
    cdef _realloc_index_maps(self, Py_ssize_t count)
    cdef _point_index(self, Py_ssize_t row, const uint8_t[::1] view)
    @cython.locals(fresh=bytes_pp, i=Py_ssize_t)
    cdef _point_log(self, list views)
    cdef _point_one_log(self, Py_ssize_t i, const uint8_t[::1] view)
    @cython.locals(i=Py_ssize_t, row=Py_ssize_t, base=Py_ssize_t)
    cpdef list publish(self)
    @cython.locals(base=Py_ssize_t)
    cpdef int check_room(self, Py_ssize_t row, int64_t size_bytes, int64_t count) noexcept nogil
    @cython.locals(size=int64_t)
    cpdef int64_t record_bytes(self, Py_ssize_t body_length, Py_ssize_t topic_length, Py_ssize_t props_length, Py_ssize_t born_length) noexcept nogil
    @cython.locals(size=int64_t, room=int, out=bytes_out, host=bytes_in, at=Py_ssize_t, physical=int64_t, base=Py_ssize_t, offset=int64_t)
    cdef int64_t append(self, Py_ssize_t row, int queue_id, int flag, int sys_flag, int64_t born_timestamp, const uint8_t* born, Py_ssize_t born_length, int reconsume_times, int64_t prepared_offset, const uint8_t* body, Py_ssize_t body_at, Py_ssize_t body_length, const uint8_t* topic, Py_ssize_t topic_at, Py_ssize_t topic_length, const uint8_t* props, Py_ssize_t props_at, Py_ssize_t props_length, int64_t tags_code) noexcept nogil
    @cython.locals(entry=Py_ssize_t)
    cdef void _index(self, Py_ssize_t row, Py_ssize_t base, int64_t offset, int64_t physical, int64_t size, int64_t tags_code) noexcept nogil
    @cython.locals(tail=Py_ssize_t, offset=int64_t, entry=Py_ssize_t, at=Py_ssize_t)
    cpdef bytearray export_index(self, Py_ssize_t row, int64_t first, int64_t last)
    cdef _export_entry(self, uint8_t[::1] out, Py_ssize_t at, Py_ssize_t entry)
    @cython.locals(base=Py_ssize_t, newest=int64_t, entry=Py_ssize_t, place=int64_t, at=Py_ssize_t, index=bytes_in)
    cpdef int find_entry(self, Py_ssize_t row, int64_t offset) noexcept nogil
    @cython.locals(i=Py_ssize_t)
    cdef bint _matches(self, Py_ssize_t filter_at, Py_ssize_t filter_count) noexcept nogil
    @cython.locals(looked=int, status=int, size=int64_t)
    cdef int read(self, Py_ssize_t row, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes, Py_ssize_t filter_at, Py_ssize_t filter_count, uint8_t* out, Py_ssize_t out_at, Py_ssize_t out_room) noexcept nogil
    @cython.locals(slot=int64_t, within=int64_t, log=bytes_in)
    cdef int _copy_record(self, uint8_t* out, Py_ssize_t at, int64_t physical, int64_t size) noexcept nogil
    cdef int64_t _append_views(self, Py_ssize_t row, int queue_id, int flag, int sys_flag, int64_t born_timestamp, const uint8_t[::1] born, int reconsume_times, int64_t prepared_offset, const uint8_t[::1] body, Py_ssize_t body_length, const uint8_t[::1] topic, const uint8_t[::1] props, Py_ssize_t props_length, int64_t tags_code)
    cdef int _read_view(self, Py_ssize_t row, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes, Py_ssize_t filter_count, uint8_t[::1] out)
    @cython.locals(i=Py_ssize_t)
    cpdef set_filter(self, Py_ssize_t at, codes)
