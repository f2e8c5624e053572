# C types of pulls.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.broker.fast_path.fields cimport Fields
from orbitmq.broker.fast_path.keys cimport FrameKeys
from orbitmq.broker.fast_path.responses cimport Responses
from orbitmq.broker.fast_path.names cimport FieldTable, NameTable
from orbitmq.broker.fast_path.notes cimport PullNotes
from orbitmq.store.log.appender cimport Appender
from orbitmq.store.queues.lookup cimport Lookup
from orbitmq.wire.scan cimport HeaderScan

ctypedef uint8_t* bytes_out
ctypedef const int64_t* integers_in

cdef int LITE_PULL_MESSAGE
cdef int ORDINARY, DRAIN, NEED_INDEX, PARK, IN_PLACE, HANDLED, Q_MIN, Q_VISIBLE, READ_FOUND, READ_NEED_ENTRIES
cdef int64_t INT_BAD
cdef int P_GROUP, P_TOPIC, P_QUEUE_ID, P_OFFSET, P_MAX_COUNT, P_SYS_FLAG, P_COMMIT_OFFSET, P_SUBSCRIPTION
cdef int P_EXPRESSION_TYPE, P_MAX_BYTES, P_SUSPEND, P_SUB_VERSION, P_SOURCE
cdef int T_READ_QUEUES, T_SLOTS_AT, G_TOPIC, G_CODES_AT, G_CODES_COUNT, G_VERSION, G_TOPIC_FLAG, G_GROUP_FLAG
cdef int NO_SUBSCRIPTION, ALL_CODES, X_CODES_AT, X_CODES_COUNT
cdef int ONE_WAY, MAX_EXPRESSIONS, MAX_ASKED_BYTES, IN_PLACE_BYTES, PULL_COMMITS, PULL_SUSPENDS, PULL_HAS_SUBSCRIPTION, PULL_CLASS_FILTER

@cython.final
cdef class Pulls:
    cdef Appender a
    cdef Lookup lookup
    cdef Fields fields
    cdef FrameKeys keys
    cdef HeaderScan scan
    cdef int64_t[::1] slots
    cdef NameTable topics
    cdef readonly NameTable permitted, expressions
    cdef FieldTable names
    cdef Responses answers
    cdef int64_t max_count, max_bytes
    cdef readonly PullNotes notes
    cdef public bint commits
    cdef public bint parks
    cdef public int64_t far_bytes
    cdef public int64_t park_row, park_queue, park_offset, park_ms
    cdef public Py_ssize_t need_slot
    cdef public int64_t found, found_lite, messages

    @cython.locals(pull=int64_t, expression=int64_t, topic=int64_t, sys_flag=int64_t, queue_id=int64_t, sub_version=int64_t, codes_count=int64_t, slot=Py_ssize_t)
    cdef int pull(self, const uint8_t* buf, Py_ssize_t end) noexcept nogil
    @cython.locals(i=int64_t, at=Py_ssize_t)
    cdef int64_t _expression(self, const uint8_t* buf) noexcept nogil
    @cython.locals(offset=int64_t, max_count=int64_t, max_bytes=int64_t, lowest=int64_t, highest=int64_t, in_place=bint, status=int)
    cdef int _read(self, const uint8_t* buf, int64_t pull, int64_t expression, int64_t queue_id, int64_t sys_flag, Py_ssize_t slot, int64_t codes_count) noexcept nogil
    cdef bint _find_in_place(self, Py_ssize_t slot, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes) noexcept nogil
    @cython.locals(codes_at=int64_t, out=bytes_out, codes=integers_in)
    cdef int _copy(self, int64_t pull, int64_t expression, Py_ssize_t slot, int64_t offset, int64_t last, int64_t max_count, int64_t max_bytes, int64_t codes_count) noexcept nogil
    cdef int _park(self, const uint8_t* buf, int64_t pull, int64_t queue_id, int64_t sys_flag, int64_t offset, int64_t codes_count) noexcept nogil
    @cython.locals(commit=int64_t)
    cdef void _note(self, const uint8_t* buf, int64_t pull, int64_t queue_id, int64_t sys_flag, int64_t before, int64_t after, int64_t size) noexcept nogil
