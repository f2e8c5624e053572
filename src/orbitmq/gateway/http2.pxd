# C types of http2.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from orbitmq.gateway.frame_writer cimport FrameWriter
from orbitmq.gateway.frames cimport Floods
from orbitmq.gateway.hpack cimport HeaderReader
from orbitmq.gateway.open_stream cimport OpenStream
from orbitmq.gateway.plain_reader cimport PlainReader
from orbitmq.gateway.refusals cimport check_connection, check_headers, check_stream, padding_of
from orbitmq.message.octets cimport get_i32

cdef int _DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION
cdef int _HEAD, _END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITIZED
cdef int _SETTINGS_WINDOW, _SETTINGS_FRAME
cdef int64_t _FRAME_BYTES, _TURN_BYTES, _STREAM_BYTES, _CONNECTION_BYTES, _MOST_STREAMS, _MOST_WINDOW, _NUMBER, _DEFAULT_WINDOW_BYTES

@cython.final
cdef class Http2Connection:
    cdef public PlainReader plain
    cdef list _untold
    cdef FrameWriter _writer
    cdef bytearray _pending, _block
    cdef Py_ssize_t _preface, _needed
    cdef bint _judged, _continued_ends
    cdef Floods _floods
    cdef HeaderReader _reader
    cdef dict _streams, _forgiven
    cdef int64_t _last, _window, _come, _stream_window, _table_bytes, _continued
    cdef readonly bint settled, leaving

    @cython.locals(events=list, used=Py_ssize_t)
    cpdef list receive(self, bytes data, double now)
    cdef bytes _without_preface(self, bytes data)
    @cython.locals(length=Py_ssize_t, kind=int, flags=int, stream=int64_t)
    cdef Py_ssize_t _frames(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, double now, list events) except -1
    cdef void _one(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int kind, int flags, int64_t stream, list events) except *
    @cython.locals(size=Py_ssize_t, padding=int, found=OpenStream)
    cdef void _data(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int flags, int64_t stream, list events) except *
    cdef bint _is_taken(self, OpenStream found, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int64_t stream) except -1
    cdef void _tell(self, OpenStream found, int64_t stream, list events) except *
    @cython.locals(stream=int64_t, found=OpenStream)
    cdef void _tell_all(self, list events) except *
    @cython.locals(padding=int)
    cdef void _headers(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int flags, int64_t stream, list events) except *
    @cython.locals(stream=int64_t, block=bytes)
    cdef void _continuation(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int flags, list events) except *
    @cython.locals(found=OpenStream, opened=OpenStream, length=int64_t)
    cdef void _listed(self, list headers, int64_t stream, bint ended, list events) except *
    @cython.locals(found=OpenStream)
    cdef void _rst_stream(self, Py_ssize_t pos, Py_ssize_t end, int64_t stream, list events) except *
    @cython.locals(more=int64_t, found=OpenStream)
    cdef void _window_update(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int64_t stream, list events) except *
    cdef bint _is_idle(self, int64_t stream) noexcept
    cdef object _no_stream(self, str name, int64_t stream)
    @cython.locals(payload=bytes)
    cdef void _ping(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int flags, int64_t stream, list events) except *
    cdef void _settings(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, int flags, int64_t stream, list events) except *
    @cython.locals(each=OpenStream)
    cdef void _set(self, int number, int64_t value) except *
    @cython.locals(found=OpenStream)
    cpdef headers(self, int64_t stream, bytes block, bint end=?)
    @cython.locals(found=OpenStream, sent=int64_t, room=int64_t, size=int64_t)
    cpdef int64_t send(self, int64_t stream, data) except -1
    @cython.locals(found=OpenStream, size=int64_t)
    cpdef bint answer(self, int64_t stream, bytes head, bytes data, bytes trailers) except -1
    @cython.locals(place=Py_ssize_t)
    cpdef list answer_all(self, list streams, list messages, bytes head, bytes trailers)
    cdef void _end(self, int code, bytes text) except *
    cpdef bytes take(self)
