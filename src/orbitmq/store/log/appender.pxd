# C types of appender.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.message.octets cimport copy, crc32, put_i16, put_i32, put_i64

ctypedef const uint8_t* bytes_in
ctypedef uint8_t* bytes_out

cdef int Q_NEXT, Q_VISIBLE, Q_MIN, Q_TAIL, Q_TAIL_FIRST, Q_SAVED, Q_DIRTY, Q_WATCHED
cdef int Q_MAP_FIRST, Q_MAP_COUNT, Q_RING, Q_UNSAVED, Q_MIN_PLACE, Q_COUNTED, Q_WIDTH, FIRST_RING, RING_GROWTH
cdef int NO_ROOM, ROLL, TAIL_FULL
cdef int MAGIC_V1, MAGIC_V2, RECORD_FIXED_BYTES, END_OF_FILE_RESERVE, CQ_ENTRY_BYTES, BORN_V6, STORE_V6
@cython.final
cdef class Appender:
    cdef public bytearray batch
    cdef uint8_t[::1] batch_view
    cdef public Py_ssize_t batch_room
    cdef public Py_ssize_t batch_used
    cdef public int64_t batch_base
    cdef public int64_t batch_records
    cdef public int64_t file_end
    cdef public int64_t segment_bytes
    cdef public int64_t tail_entries
    cdef public bytes host
    cdef const uint8_t[::1] host_view
    cdef public Py_ssize_t host_length
    cdef public Py_ssize_t slots
    cdef int64_t[::1] q
    cdef int64_t[::1] tails
    cdef Py_ssize_t tails_used
    cdef Py_ssize_t rings_limit
    cdef dict free_rings
    cdef int64_t[::1] dirty
    cdef public Py_ssize_t dirty_count
    cdef int64_t[::1] unsaved
    cdef public Py_ssize_t unsaved_count
    cdef list grown
    cdef public int64_t now_ms

    @cython.locals(first=Py_ssize_t, slot=Py_ssize_t, base=Py_ssize_t, room=Py_ssize_t)
    cpdef Py_ssize_t add_slots(self, Py_ssize_t count) except -1
    @cython.locals(base=Py_ssize_t)
    cpdef reset_slot(self, Py_ssize_t slot, int64_t next_offset, int64_t min_offset)
    @cython.locals(base=Py_ssize_t, i=Py_ssize_t)
    cpdef set_column(self, Py_ssize_t first, int column, const int64_t[::1] values)
    @cython.locals(values=int64_t[::1], slot=Py_ssize_t)
    cpdef column(self, int column)
    @cython.locals(base=Py_ssize_t, old=int64_t, size=int64_t, place=Py_ssize_t, newest=int64_t, first=int64_t, offset=int64_t, source=Py_ssize_t, target=Py_ssize_t)
    cpdef bint prepare_tail(self, Py_ssize_t slot) except -1
    cdef Py_ssize_t _take_ring(self, int64_t size) except -1
    @cython.locals(base=Py_ssize_t)
    cdef _free_ring(self, Py_ssize_t slot)
    @cython.locals(base=Py_ssize_t, slot=Py_ssize_t)
    cdef _free_idle_rings(self)
    @cython.locals(left=Py_ssize_t, i=Py_ssize_t, slot=Py_ssize_t, base=Py_ssize_t)
    cpdef list take_unsaved(self)
    @cython.locals(slot=Py_ssize_t, base=Py_ssize_t)
    cpdef list slots_below(self, int64_t physical_offset)
    @cython.locals(base=Py_ssize_t)
    cpdef note_unsaved(self, Py_ssize_t slot)
    cpdef int64_t get(self, Py_ssize_t slot, int column) noexcept nogil
    cpdef set(self, Py_ssize_t slot, int column, int64_t value)
    @cython.locals(i=Py_ssize_t, slot=Py_ssize_t, base=Py_ssize_t)
    cpdef list publish(self)
    @cython.locals(slot=Py_ssize_t, base=Py_ssize_t, more=int64_t)
    cpdef list take_grown(self)
    @cython.locals(slot=Py_ssize_t)
    cpdef count_from_here(self)
    @cython.locals(base=Py_ssize_t)
    cpdef int check_room(self, Py_ssize_t slot, int64_t size_bytes, int64_t count) noexcept nogil
    cdef bint never_fits(self, int64_t size_bytes, int64_t count) noexcept nogil
    @cython.locals(size=int64_t)
    cpdef int64_t record_bytes(self, Py_ssize_t body_length, Py_ssize_t topic_length, Py_ssize_t props_length, Py_ssize_t born_length) noexcept nogil
    @cython.locals(size=int64_t, room=int, out=bytes_out, host=bytes_in, at=Py_ssize_t, physical=int64_t, base=Py_ssize_t, offset=int64_t)
    cdef int64_t append(self, Py_ssize_t slot, int queue_id, int flag, int sys_flag, int64_t born_timestamp, const uint8_t* born, Py_ssize_t born_length, int reconsume_times, int64_t prepared_offset, const uint8_t* body, Py_ssize_t body_at, Py_ssize_t body_length, const uint8_t* topic, Py_ssize_t topic_at, Py_ssize_t topic_length, const uint8_t* props, Py_ssize_t props_at, Py_ssize_t props_length, int64_t tags_code) noexcept nogil
    @cython.locals(base=Py_ssize_t, offset=int64_t, entry=Py_ssize_t)
    cdef void add_entry(self, Py_ssize_t slot, int64_t physical, int64_t size, int64_t tags_code) noexcept nogil
    @cython.locals(base=Py_ssize_t, lowest=int64_t)
    cpdef bytearray export_entries(self, Py_ssize_t slot, int64_t first, int64_t last)
    @cython.locals(out=bytes_out, tail=Py_ssize_t, ring=int64_t, offset=int64_t, entry=Py_ssize_t, at=Py_ssize_t)
    cdef _export(self, uint8_t[::1] view, Py_ssize_t slot, int64_t first, int64_t last)
    cdef int64_t _append_views(self, Py_ssize_t slot, int queue_id, int flag, int sys_flag, int64_t born_timestamp, const uint8_t[::1] born, int reconsume_times, int64_t prepared_offset, const uint8_t[::1] body, Py_ssize_t body_length, const uint8_t[::1] topic, const uint8_t[::1] props, Py_ssize_t props_length, int64_t tags_code)
