# C types of dispatch.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from orbitmq.message.octets cimport same
from orbitmq.store.log.appender cimport Appender
from orbitmq.store.log.records cimport RecordReader

cdef int Q_NEXT, Q_TAIL, Q_SAVED, Q_RING, Q_WIDTH, RECORD, BAD_HOLE
cdef int SCAN_DONE, SCAN_NEW_QUEUE, SCAN_TAIL_FULL, SCAN_NEEDS_CODE, SCAN_AHEAD, SCAN_BEHIND
cdef int TRANSACTION_MASK, PREPARED, ROLLED_BACK
cdef int R_HASH, R_NAME_AT, R_NAME_LENGTH, R_QUEUE_ID, R_SLOT, R_NEEDS_CODE, R_WIDTH
cdef uint64_t FNV_START, FNV_PRIME, HASH_MASK

@cython.final
cdef class Dispatcher:
    cdef Appender a
    cdef readonly RecordReader reader
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t slot
    cdef readonly int64_t records
    cdef readonly int64_t stored
    cdef int64_t code
    cdef bint code_known
    cdef bytearray names
    cdef uint8_t[::1] names_view
    cdef Py_ssize_t names_used
    cdef int64_t[::1] rows
    cdef Py_ssize_t rows_used
    cdef int64_t[::1] places
    cdef int64_t places_mask

    cpdef clear(self)
    cdef _make_tables(self, int64_t places_mask)
    @cython.locals(old=int64_t[::1], number=Py_ssize_t)
    cdef _grow(self)
    @cython.locals(at=int64_t)
    cdef _place_row(self, Py_ssize_t number)
    cdef int64_t _hash_of(self, const uint8_t[::1] topic, int64_t queue_id)
    @cython.locals(h=uint64_t)
    cdef int64_t _hash(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end, int64_t queue_id) noexcept nogil
    @cython.locals(at=Py_ssize_t, length=Py_ssize_t, h=int64_t, place=int64_t, base=Py_ssize_t)
    cdef Py_ssize_t _find(self, const uint8_t* log) noexcept nogil
    cdef bint _same_name(self, const uint8_t* log, Py_ssize_t at, Py_ssize_t name_at, Py_ssize_t length) noexcept nogil
    @cython.locals(limit=Py_ssize_t)
    cpdef int scan(self, const uint8_t[::1] log, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t have, int64_t base, bint check_crc, bint find_holes) except -1
    @cython.locals(at=Py_ssize_t, status=int)
    cdef int _scan(self, const uint8_t* log, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t have, Py_ssize_t limit, int64_t base, bint check_crc, bint find_holes) noexcept nogil
    @cython.locals(kind=int64_t, row=Py_ssize_t, slot=Py_ssize_t, queue=Py_ssize_t, ahead=int64_t)
    cdef int _take(self, const uint8_t* log) noexcept nogil
