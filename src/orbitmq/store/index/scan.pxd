# C types of scan.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.message.octets cimport copy, fetch, find, get_i32, put_i32, put_i64
from orbitmq.store.log.records cimport RecordReader, hash_on

ctypedef uint8_t* bytes_out

cdef int RECORD, BLANK, ROLLBACK
cdef int HEADER_BYTES, SLOT_BYTES, ENTRY_BYTES, PAGE_BYTES, HEAD_BYTES, AHEAD, MAX_STEPS
cdef uint32_t _MASK, _SIGN
cdef int64_t _MAX_INT
cdef int DONE, MORE, FULL, BROKEN
cdef int PAGE_LOADED, PAGE_CHANGED

@cython.locals(value=int64_t, i=Py_ssize_t)
cdef int64_t get_int(const uint8_t* buf, Py_ssize_t at, int width) noexcept nogil
@cython.locals(value=int64_t)
cdef int64_t positive(uint32_t h) noexcept nogil

cpdef int64_t key_hash(const uint8_t[::1] key)
cpdef list select(const uint8_t[::1] file, int64_t slot_count, int64_t entry, int64_t next_entry, int64_t h, int64_t begin, int64_t end, int limit)
@cython.locals(at=Py_ssize_t, seconds=int64_t, entries_at=Py_ssize_t)
cdef list _select(const uint8_t* file, int64_t slot_count, int64_t entry, int64_t next_entry, int64_t h, int64_t begin, int64_t end, int limit)

@cython.final
cdef class IndexBuilder:
    cdef public int64_t slot_count
    cdef public int64_t entry_limit
    cdef public int64_t begin_time
    cdef public int64_t end_time
    cdef public int64_t begin_offset
    cdef public int64_t end_offset
    cdef public int64_t used_slots
    cdef public int64_t next_entry
    cdef public int64_t first_entry
    cdef public int64_t position
    cdef public bytearray slots
    cdef public bytearray pages
    cdef public bytearray entries
    cdef uint8_t[::1] slots_view
    cdef uint8_t[::1] pages_view
    cdef uint8_t[::1] entries_view
    cdef int64_t entries_room
    cdef RecordReader reader

    @cython.locals(room=int64_t)
    cpdef int scan(self, const uint8_t[::1] log, int64_t start, int64_t end, const uint8_t[::1] file)
    @cython.locals(at=int64_t, found=int, status=int)
    cdef int _scan(self, const uint8_t* log, int64_t room, int64_t start, int64_t end, const uint8_t* file) noexcept nogil
    @cython.locals(size=int64_t, ahead=int64_t)
    cdef void _fetch_ahead(self, const uint8_t* log, int64_t at, int64_t room) noexcept nogil
    @cython.locals(wanted=int64_t)
    cdef int _record(self, const uint8_t* log, const uint8_t* file) noexcept nogil
    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, count=int64_t, topic=uint32_t)
    cdef int64_t _each_key(self, const uint8_t* log, int64_t physical, int64_t stored, const uint8_t* file, int put) noexcept nogil
    @cython.locals(key=int64_t, at=Py_ssize_t, page=Py_ssize_t, previous=int64_t, slots=bytes_out)
    cdef void _put(self, uint32_t h, int64_t physical, int64_t stored, const uint8_t* file) noexcept nogil
    @cython.locals(at=Py_ssize_t, out=bytes_out)
    cdef void _write_entry(self, int64_t key, int64_t physical, int64_t seconds, int64_t previous) noexcept nogil
    @cython.locals(at=Py_ssize_t, slots=bytes_out)
    cdef void _load_page(self, Py_ssize_t page, const uint8_t* file) noexcept nogil
