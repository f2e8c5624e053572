# C types of table.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.message.octets cimport put_i32, put_i64

ctypedef uint8_t* bytes_out

cdef int Q_NEXT, Q_VISIBLE, Q_MIN, Q_TAIL, Q_TAIL_FIRST, Q_SAVED, Q_DIRTY, Q_WATCHED
cdef int Q_MAP_COUNT, Q_RING, Q_UNSAVED, Q_MIN_PLACE, Q_COUNTED, Q_COUNTS, Q_WIDTH, FIRST_RING, RING_GROWTH
cdef int CQ_ENTRY_BYTES

cdef class QueueTable:
    cdef public int64_t tail_entries
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

    @cython.locals(first=Py_ssize_t, slot=Py_ssize_t, base=Py_ssize_t, room=Py_ssize_t)
    cpdef Py_ssize_t add_slots(self, Py_ssize_t count) except -1
    @cython.locals(base=Py_ssize_t)
    cpdef reset_slot(self, Py_ssize_t slot, int64_t next_offset, int64_t min_offset)
    @cython.locals(base=Py_ssize_t, i=Py_ssize_t)
    cpdef set_column(self, Py_ssize_t first, int column, const int64_t[::1] values)
    @cython.locals(values=int64_t[::1], slot=Py_ssize_t)
    cpdef column(self, int column)
    @cython.locals(slot=Py_ssize_t, base=Py_ssize_t)
    cpdef list slots_below(self, int64_t physical_offset)
    @cython.final
    @cython.locals(base=Py_ssize_t, offset=int64_t, entry=Py_ssize_t)
    cdef void add_entry(self, Py_ssize_t slot, int64_t physical, int64_t size, int64_t tags_code) noexcept nogil
    @cython.locals(base=Py_ssize_t, old=int64_t, size=int64_t, place=Py_ssize_t, newest=int64_t, first=int64_t, offset=int64_t, source=Py_ssize_t, target=Py_ssize_t)
    cpdef bint prepare_tail(self, Py_ssize_t slot) except -1
    cdef Py_ssize_t _take_ring(self, int64_t size) except -1
    @cython.locals(base=Py_ssize_t)
    cdef _free_ring(self, Py_ssize_t slot)
    @cython.locals(base=Py_ssize_t, slot=Py_ssize_t)
    cdef _free_idle_rings(self)
    @cython.locals(left=Py_ssize_t, i=Py_ssize_t, slot=Py_ssize_t, base=Py_ssize_t)
    cpdef list take_unsaved(self)
    @cython.locals(base=Py_ssize_t)
    cpdef note_unsaved(self, Py_ssize_t slot)
    @cython.locals(base=Py_ssize_t, lowest=int64_t)
    cpdef bytearray export_entries(self, Py_ssize_t slot, int64_t first, int64_t last)
    @cython.locals(out=bytes_out, tail=Py_ssize_t, ring=int64_t, offset=int64_t, entry=Py_ssize_t, at=Py_ssize_t)
    cdef _export(self, uint8_t[::1] view, Py_ssize_t slot, int64_t first, int64_t last)
    @cython.locals(i=Py_ssize_t, slot=Py_ssize_t, base=Py_ssize_t)
    cpdef list publish(self)
    @cython.locals(slot=Py_ssize_t)
    cpdef count_from_here(self)
    @cython.locals(slot=Py_ssize_t, base=Py_ssize_t, more=int64_t)
    cpdef list take_grown(self)
