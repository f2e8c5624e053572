# C types of open_batch.py. No logic lives here.
cimport cython
from libc.stdint cimport uint8_t

from orbitmq.message.octets cimport copy, put_i32

cdef Py_ssize_t _HEAD_BYTES, _PLAIN_BYTES, _ID_AT, _ID_BYTES

@cython.final
cdef class OpenBatch:
    cdef public list items, waiting
    cdef public bint plain, full
    cdef public Py_ssize_t size
    cdef public object timer
    cdef object _new_future
    cdef Py_ssize_t _max_bytes, _max_messages

    @cython.locals(body=bytes)
    cpdef object add_plain(self, object message)

    cpdef bint has_room(self, Py_ssize_t size)

    cpdef object put(self, object item, Py_ssize_t size)

cpdef bytes plain_body(object message)

cpdef tuple encode_plain(list bodies, Py_ssize_t size, str id_head, Py_ssize_t first)

@cython.locals(body=bytes, ids=list, at=Py_ssize_t, number=Py_ssize_t, rest_bytes=Py_ssize_t, length=Py_ssize_t, id_at=Py_ssize_t, i=Py_ssize_t, value=int, low=int)
cdef list _fill(uint8_t* out, list bodies, bytes rest, Py_ssize_t first)

@cython.locals(ids=list, waiting=list, places=list, i=Py_ssize_t, offset=object)
cpdef object share(object whole, list waiting, list ids)
