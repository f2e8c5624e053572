# C types of tls_records.py. No logic lives here.
cimport cython

@cython.final
cdef class TlsRecords:
    cdef public bint open
    cdef object _owner
    cdef object _encrypted
    cdef object _to_send
    cdef object _receive
    cdef object _read
    cdef object _pending
    cdef object _write
    cdef object _take_encrypted
    cdef object _send
    cdef object _is_closing
    cdef object _buffer
    cdef object _get_buffer
    cdef object _buffer_updated
    cdef bint _working
    cdef bint _more
    cdef bint _ended
    cdef object _fault

    cpdef room(self, _size_hint=*)
    cpdef received(self, Py_ssize_t count)
    cpdef take(self, data)
    cpdef go_on(self)
    @cython.locals(filled=Py_ssize_t)
    cdef _deliver(self)
    @cython.locals(filled=Py_ssize_t, count=Py_ssize_t)
    cdef Py_ssize_t _fill(self, room, Py_ssize_t size) except -1
    cpdef write(self, data)
    @cython.locals(length=Py_ssize_t, whole=Py_ssize_t)
    cpdef writelines(self, parts)
    cdef _encrypt(self, data)
    cpdef flush(self)
