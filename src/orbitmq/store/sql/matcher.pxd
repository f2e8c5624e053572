# C types of matcher.py. No logic lives here.
cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from orbitmq.message.octets cimport find, same
from orbitmq.store.sql.comparing cimport find_text, order_doubles, slow_double

ctypedef const uint8_t* bytes_in

cdef int NAMES_COUNT_AT, CODE_AT, HEADER
cdef int PUSH_PROPERTY, PUSH_TEXT, PUSH_INTEGER, PUSH_LONG, PUSH_DOUBLE, PUSH_BOOLEAN, PUSH_NULL
cdef int EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, NOT, OR, OR_SKIPS
cdef int IS_NULL, CONTAINS, STARTS_WITH, IN, WITH_NUMBER
cdef int NOTHING, BOOLEAN, TEXT, STORED, INTEGER, LONG, DOUBLE
cdef int ILLEGAL, EXACT_DIGITS, EXACT_POWER
cdef int64_t INT_MAX, LONG_MAX, TEN_TIMES_MORE
cdef double[::1] POWERS

@cython.final
cdef class Matcher:
    cdef Py_ssize_t starts[64]
    cdef Py_ssize_t ends[64]
    cdef int kinds[128]
    cdef int64_t numbers[128]
    cdef Py_ssize_t lengths[128]
    cdef double doubles[128]
    cdef const uint8_t* pool
    cdef const uint8_t* block
    cdef bint exact
    cdef double decimal
    cdef int exponent

    cdef bint matches(self, const int64_t* program, Py_ssize_t base, const uint8_t* block, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(count=Py_ssize_t, names=Py_ssize_t, n=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t)
    cdef void _find(self, const int64_t* program, Py_ssize_t base, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(code=Py_ssize_t, top=int, operation=int, n=Py_ssize_t, decisive=int)
    cdef bint _run(self, const int64_t* program, Py_ssize_t base) noexcept nogil
    cdef int _push(self, const int64_t* program, Py_ssize_t code, int operation, int top) noexcept nogil
    cdef void _set(self, int top, bint truth) noexcept nogil
    @cython.locals(right_known=bint)
    cdef void _combine(self, int decisive, int top) noexcept nogil
    cdef void _alone(self, int operation, int top) noexcept nogil
    cdef bint _is_text(self, int slot) noexcept nogil
    cdef const uint8_t* _source(self, int slot) noexcept nogil
    cdef bint _same_text(self, int slot, const uint8_t* other, Py_ssize_t place, Py_ssize_t length) noexcept nogil
    @cython.locals(spare=Py_ssize_t, found=bint, source=bytes_in, start=Py_ssize_t)
    cdef void _with_text(self, int operation, Py_ssize_t place, Py_ssize_t length, int negated, int top) noexcept nogil
    @cython.locals(found=bint, at=Py_ssize_t, _=Py_ssize_t)
    cdef void _in_list(self, const int64_t* program, Py_ssize_t code, int top) noexcept nogil
    @cython.locals(left_null=bint, right_null=bint, order=int)
    cdef bint _compare(self, int operation, int top) noexcept nogil
    @cython.locals(order=int)
    cdef bint _compare_number(self, int operation, int kind, int64_t number, int top) noexcept nogil
    cdef void _decide(self, int operation, int order, int top) noexcept nogil
    @cython.locals(left_text=bint, right_text=bint, length=Py_ssize_t)
    cdef int _order(self, int operation, int left, int right) noexcept nogil
    cdef int _order_booleans(self, int left, int right) noexcept nogil
    @cython.locals(source=bytes_in, at=Py_ssize_t)
    cdef bint _says_true(self, int slot) noexcept nogil
    cdef double _as_double(self, int slot) noexcept nogil
    @cython.locals(source=bytes_in, at=Py_ssize_t, end=Py_ssize_t, negative=bint, value=int64_t, digit=int)
    cdef bint _to_number(self, int slot, int kind) noexcept nogil
    @cython.locals(source=bytes_in, at=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, value=double)
    cdef bint _to_double(self, int slot) noexcept nogil
    cdef bint _is_word(self, const uint8_t* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(mantissa=int64_t, digits=int, seen=bint, exponent=int, point=int, digit=int)
    cdef Py_ssize_t _read_decimal(self, const uint8_t* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    @cython.locals(negative=bint)
    cdef Py_ssize_t _read_exponent(self, const uint8_t* source, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    cpdef bint match_block(self, object program, bytes block)
    cdef bint _match_view(self, const int64_t[::1] program, const uint8_t[::1] block, Py_ssize_t length)
