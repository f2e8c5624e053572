# C types of plain_sends.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from orbitmq.broker.fast_path.texts cimport find_sorted, hash_bytes, put_decimal
from orbitmq.gateway.plain_fields cimport PlainFields, is_plain, varint_bytes
from orbitmq.message.octets cimport same
from orbitmq.store.log.appender cimport Appender

ctypedef const uint8_t* bytes_in

cdef int Q_NEXT, NORMAL, MAX_USER, MAX_KEYS, _MAX_BYTES, MAX_ANSWER, FIXED_BYTES
cdef int _FIRST, _SECOND, _THIRD, _FOURTH, _SECONDS, _NANOS, _TAG, _KEYS, _MESSAGE_ID
cdef int _BODY_ENCODING, _MESSAGE_TYPE, _BORN_TIMESTAMP, _BORN_HOST, _QUEUE_ID, _TRACE_CONTEXT, _GZIP, _NORMAL
cdef int64_t _MOST_NUMBER, _MOST_SECONDS, _SECOND_NANOS
cdef int P_TOPIC, P_SYSTEM, P_BODY, P_TAG, P_ID, P_BORN, P_HOST, P_TRACE, P_PARTS
cdef bytes _N_TAGS, _N_KEYS, _N_ID, _N_GROUP, _N_TRACE, _N_HOST, _N_BORN

@cython.final
cdef class PlainTopic:
    cdef readonly bytes name
    cdef const uint8_t[::1] view
    cdef Py_ssize_t length
    cdef int64_t[::1] slots
    cdef readonly int queues

@cython.final
cdef class PlainSends(PlainFields):
    cdef Appender a
    cdef object find_topic, make_room, choose
    cdef int64_t[::1] reserved
    cdef bytes head, entry
    cdef readonly dict topics
    cdef public bytes added
    cdef public int64_t max_body
    cdef bytes born, address
    cdef int64_t[::1] user
    cdef int64_t[::1] keys
    cdef int users, key_count
    cdef int64_t born_ms, tags_code

    @cython.locals(topic=PlainTopic, queue_id=int, offset=int64_t, start=Py_ssize_t, parts=int64_t[::1])
    cdef bytes take(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end)
    @cython.locals(found=PlainTopic)
    cdef PlainTopic _topic(self, bytes name)
    @cython.locals(slot=Py_ssize_t, length=Py_ssize_t, size=int64_t, room=int, born=bytes_in, name=bytes_in, data=bytes_in, parts=int64_t[::1])
    cdef int64_t _append(self, PlainTopic topic, int queue_id, const uint8_t* buf) except? -2
    @cython.locals(tag=int64_t, good=bint, length=int64_t, parts=int64_t[::1])
    cdef bint _read(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end) noexcept
    @cython.locals(length=int64_t, at=int)
    cdef bint _user_property(self, const uint8_t* buf, Py_ssize_t end) noexcept
    @cython.locals(end=Py_ssize_t, tag=int64_t, good=bint, length=int64_t, value=int64_t)
    cdef bint _system(self, const uint8_t* buf) noexcept
    @cython.locals(seconds=int64_t, nanos=int64_t, end=Py_ssize_t, tag=int64_t, value=int64_t)
    cdef bint _born(self, const uint8_t* buf) noexcept
    cdef bint _put_part(self, bytes name, const uint8_t* buf, Py_ssize_t start, Py_ssize_t length) noexcept
    @cython.locals(length=Py_ssize_t, start=Py_ssize_t, i=int, parts=int64_t[::1])
    cdef bint _complete(self, const uint8_t* buf, PlainTopic topic) noexcept
    @cython.locals(i=int, k=int, start=Py_ssize_t, length=Py_ssize_t, user=int64_t[::1])
    cdef bint _put_user(self, const uint8_t* buf) noexcept
    @cython.locals(length=Py_ssize_t, size=int64_t)
    cdef bytes _answer(self, const uint8_t* buf, int64_t offset)

@cython.locals(found=uint8_t, i=Py_ssize_t)
cdef bint _has_bar(const uint8_t* buf, Py_ssize_t start, Py_ssize_t length) noexcept
@cython.locals(code=int64_t, i=Py_ssize_t)
cdef int64_t _java_hash(const uint8_t* buf, Py_ssize_t start, Py_ssize_t length) noexcept
