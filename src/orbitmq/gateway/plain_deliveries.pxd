# C types of plain_deliveries.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.broker.fast_path.texts cimport put_decimal
from orbitmq.gateway.plain_fields cimport PlainFields, is_plain, varint_bytes
from orbitmq.message.octets cimport find, get_i16, get_i32, get_i64, same

cdef int MAX_USER, MAX_PROPERTIES, MAX_NAME, MAX_HEAD
cdef int64_t MAX_MS
cdef int _SKIPPED, _UNUSUAL, _TAG, _KEYS, _ID, _BORN_HOST, _TRACE
cdef int _MAGIC, _QUEUE, _QUEUE_OFFSET, _PHYSICAL, _FLAGS, _BORN_MS
cdef int _STORE_MS, _STORE_HOST, _RECONSUMED, _BODY_LENGTH, _BODY
cdef int64_t _MAGIC_V1, _ODD_FLAGS
cdef bytes _DIGEST, _KIND, _ATTEMPT

@cython.final
cdef class PlainDeliveries(PlainFields):
    cdef dict names, hosts, handles
    cdef object digest, host
    cdef int64_t[::1] user
    cdef int users
    cdef bytes topic, resource
    cdef frozenset tags

    @cython.locals(chunk=bytes, found=list)
    cpdef list responses(self, list chunks, bytes topic, bytes resource, frozenset tags, dict handles)
    @cython.locals(pos=Py_ssize_t, size=int64_t, response=bytes)
    cdef bint _chunk(self, const uint8_t* buf, Py_ssize_t end, list found) except -1
    @cython.locals(body=Py_ssize_t, length=int64_t, at=Py_ssize_t, system=bytes, users=bytes, size=int64_t)
    cdef bytes _response(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end)
    @cython.locals(stop=Py_ssize_t, middle=Py_ssize_t, kind=int, parts=int64_t[::1])
    cdef bint _properties(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(user=int64_t[::1], length=int64_t, i=int)
    cdef bint _user_property(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t middle, Py_ssize_t stop) noexcept
    @cython.locals(user=int64_t[::1], name=int64_t, value=int64_t, i=int)
    cdef bytes _user_properties(self, const uint8_t* buf)
    @cython.locals(parts=int64_t[::1], host=bytes, queue_id=int64_t, offset=int64_t)
    cdef bint _system(self, const uint8_t* buf, Py_ssize_t pos, bytes body) except -1
    cdef void _text(self, int tag, const uint8_t* buf, Py_ssize_t start, int64_t length) noexcept
    @cython.locals(stop=Py_ssize_t)
    cdef void _keys(self, const uint8_t* buf, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(seconds=int64_t, nanos=int64_t, size=int64_t)
    cdef bint _instant(self, int tag, int64_t ms) noexcept
    @cython.locals(head=bytes, size=int64_t)
    cdef bint _handle(self, int64_t queue_id, int64_t offset, int64_t physical) except -1
    cdef void _decimal(self, int64_t value) noexcept
    @cython.locals(found=bytes)
    cdef bytes _host(self, bytes raw)

@cython.locals(count=int)
cdef int _decimals(int64_t value) noexcept
