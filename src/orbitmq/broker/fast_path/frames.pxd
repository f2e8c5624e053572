# C types of frames.py. No logic lives here.
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

from orbitmq.broker.fast_path.fields cimport Fields
from orbitmq.broker.fast_path.keys cimport FrameKeys
from orbitmq.broker.fast_path.pulls cimport Pulls
from orbitmq.broker.fast_path.responses cimport Responses
from orbitmq.broker.fast_path.sends cimport Sends
from orbitmq.broker.fast_path.names cimport NameTable
from orbitmq.wire.scan cimport HeaderScan, frame_border

ctypedef const uint8_t* bytes_in

cdef int DONE, ORDINARY, IN_PLACE, HANDLED, SCAN_OK
cdef int LEFT_NOW, LEFT_LATER, LEFT_COMMITS, LEFT_RECORDS
cdef int SEND_MESSAGE, PULL_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, LITE_PULL_MESSAGE
cdef int MAX_FRAME_BYTES, UNFINISHED, NOW_BYTES

@cython.final
cdef class FastFrames:
    cdef HeaderScan scan
    cdef readonly NameTable topics
    cdef readonly Sends sends
    cdef readonly Pulls pulls
    cdef readonly FrameKeys keys
    cdef readonly Responses now, later
    cdef public bint lite_pull
    cdef public int reason
    cdef public Py_ssize_t frame_end
    cdef public int left

    @cython.locals(view=Py_buffer, address=bytes_in, born_length=Py_ssize_t)
    cpdef Py_ssize_t feed(self, object buffer, Py_ssize_t start, Py_ssize_t end, bytes born) except -1
    @cython.locals(left=int)
    cdef int _left(self) noexcept nogil
    @cython.locals(stop=Py_ssize_t, reason=int)
    cdef Py_ssize_t _run(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
    @cython.locals(code=int)
    cdef int _frame(self, const uint8_t* buf, Py_ssize_t pos, Py_ssize_t end, const uint8_t* born, Py_ssize_t born_length) noexcept nogil
