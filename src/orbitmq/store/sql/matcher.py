# cython: annotation_typing=False
"""Runs the program of an SQL92 expression over the properties of a stored message, where they lie in the log.

Nothing is decoded: the properties that the program names are found in one pass and compared as bytes. Values
have RocketMQ's types: a property is text; compared with a whole number it must be one (of 32 bits if that
number fits into 32), compared with a fraction it may be any number. When it is not, the message does not
match, whatever else the expression says (ExpressionMessageFilter treats an exception as no match).

Typed in ``matcher.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

import cython

from orbitmq.store.sql import layout

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable

if not cython.compiled:
    from orbitmq.message.octets import find, same
    from orbitmq.store.sql.comparing import find_text, order_doubles, slow_double

# C integers in the compiled module, so that no Python object is touched on the path of a message.
NAMES_COUNT_AT = layout.NAMES_COUNT_AT
CODE_AT = layout.CODE_AT
HEADER = layout.HEADER
PUSH_PROPERTY = layout.PUSH_PROPERTY
PUSH_TEXT = layout.PUSH_TEXT
PUSH_INTEGER = layout.PUSH_INTEGER
PUSH_LONG = layout.PUSH_LONG
PUSH_DOUBLE = layout.PUSH_DOUBLE
PUSH_BOOLEAN = layout.PUSH_BOOLEAN
PUSH_NULL = layout.PUSH_NULL
EQUAL = layout.EQUAL
LESS = layout.LESS
LESS_EQUAL = layout.LESS_EQUAL
GREATER = layout.GREATER
GREATER_EQUAL = layout.GREATER_EQUAL
NOT = layout.NOT
IS_NULL = layout.IS_NULL
OR = layout.OR
OR_SKIPS = layout.OR_SKIPS
CONTAINS = layout.CONTAINS
STARTS_WITH = layout.STARTS_WITH
IN = layout.IN
WITH_NUMBER = layout.WITH_NUMBER
NOTHING = layout.NOTHING
BOOLEAN = layout.BOOLEAN
TEXT = layout.TEXT
STORED = layout.STORED
INTEGER = layout.INTEGER
LONG = layout.LONG
DOUBLE = layout.DOUBLE

ILLEGAL = 2  # an order besides -1, 0 and 1: the two values cannot be compared
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
TEN_TIMES_MORE = LONG_MAX // 10
# A number of at most so many digits, multiplied or divided by a power of ten up to this one, gives the
# nearest double in one operation.
EXACT_DIGITS = 15
EXACT_POWER = 22
POWERS = array("d", [10.0**n for n in range(EXACT_POWER + 1)])


class Matcher:
    """The state of a run; a store needs only one, since runs do not overlap."""

    def __init__(self) -> None:
        if not cython.compiled:
            # Where the value of each property that the program names begins in the block (-1: it is absent)
            # and ends.
            self.starts = [0] * layout.MAX_PROPERTIES
            self.ends = [0] * layout.MAX_PROPERTIES
            # The stack: kind, whole number or place of a text, length of a text, fraction.
            self.kinds = [0] * layout.STACK
            self.numbers = [0] * layout.STACK
            self.lengths = [0] * layout.STACK
            self.doubles = [0.0] * layout.STACK
            self.exact = False
            self.decimal = 0.0
            self.exponent = 0
            self.pool: Readable = b""
            self.block: Readable = b""

    def matches(self, program: Integers, base: int, block: Readable, at: int, end: int) -> bool:
        """Whether the program at ``program[base]`` is true for the properties ``block[at:end]``."""
        if cython.compiled:
            self.pool = cython.cast(bytes_in, cython.address(program[base]))
        else:
            self.pool = memoryview(program).cast("B")[8 * base :]
        self.block = block
        self._find(program, base, at, end)
        return self._run(program, base)

    def _find(self, program: Integers, base: int, at: int, end: int) -> None:
        """Find the values. A pair without name or value does not count; of equal names the last one does."""
        count = program[base + NAMES_COUNT_AT]
        names = base + HEADER
        for n in range(count):
            self.starts[n] = -1
        while at < end:
            stop = find(self.block, 2, at, end)
            for n in range(count):
                # A name in the program holds no separator, so its own length shows where one must be.
                length = program[names + 2 * n + 1]
                if (
                    length < stop - at - 1
                    and self.block[at + length] == 1
                    and same(self.block, at, self.pool, program[names + 2 * n], length)
                ):
                    self.starts[n] = at + length + 1
                    self.ends[n] = stop
            at = stop + 1

    def _run(self, program: Integers, base: int) -> bool:
        code = base + program[base + CODE_AT]
        top = -1
        while True:
            operation = program[code]
            if operation == PUSH_PROPERTY:
                top += 1
                n = program[code + 1]
                self.kinds[top] = NOTHING if self.starts[n] < 0 else STORED
                self.numbers[top] = self.starts[n]
                self.lengths[top] = self.ends[n] - self.starts[n]
                code += 2
            elif operation == IN:
                self._in_list(program, code, top)
                code += 3 + 2 * program[code + 2]
            elif operation == WITH_NUMBER:
                if not self._compare_number(program[code + 1], program[code + 2], program[code + 3], top):
                    return False
                code += 4
            elif operation > WITH_NUMBER:
                return self.kinds[top] == BOOLEAN and self.numbers[top] == 1
            elif operation <= PUSH_NULL:
                top += 1
                code += self._push(program, code, operation, top)
            elif operation <= GREATER_EQUAL:
                top -= 1
                if not self._compare(operation, top):
                    return False
                code += 1
            elif operation <= IS_NULL:
                self._alone(operation, top)
                code += 1
            elif operation <= OR:
                top -= 1
                self._combine(1 if operation == OR else 0, top)
                code += 1
            elif operation <= OR_SKIPS:
                decisive = 1 if operation == OR_SKIPS else 0
                if self.kinds[top] == BOOLEAN and self.numbers[top] == decisive:
                    code = base + program[code + 1]
                else:
                    code += 2
            else:
                self._with_text(operation, program[code + 1], program[code + 2], program[code + 3], top)
                code += 4

    def _push(self, program: Integers, code: int, operation: int, top: int) -> int:
        """Push a constant; returns how many numbers the operation has."""
        if operation == PUSH_TEXT:
            self.kinds[top] = TEXT
            self.numbers[top] = program[code + 1]
            self.lengths[top] = program[code + 2]
            return 3
        if operation == PUSH_NULL:
            self.kinds[top] = NOTHING
            return 1
        self.numbers[top] = program[code + 1]
        if operation == PUSH_INTEGER:
            self.kinds[top] = INTEGER
        elif operation == PUSH_LONG:
            self.kinds[top] = LONG
        elif operation == PUSH_BOOLEAN:
            self.kinds[top] = BOOLEAN
        else:
            self.kinds[top] = DOUBLE
            if cython.compiled:
                memcpy(cython.address(self.doubles[top]), cython.address(program[code + 1]), 8)
            else:
                (self.doubles[top],) = struct.unpack("=d", struct.pack("=q", program[code + 1]))
        return 2

    def _set(self, top: int, truth: bool) -> None:
        self.kinds[top] = BOOLEAN
        self.numbers[top] = 1 if truth else 0

    def _combine(self, decisive: int, top: int) -> None:
        """AND (``decisive`` is 0) or OR (1) of three-valued sides; the left side did not decide."""
        right_known = self.kinds[top + 1] == BOOLEAN
        if right_known and self.numbers[top + 1] == decisive:
            self._set(top, decisive == 1)
        elif self.kinds[top] != BOOLEAN or not right_known:
            self.kinds[top] = NOTHING
        else:
            self._set(top, decisive == 0)

    def _alone(self, operation: int, top: int) -> None:
        """NOT, IS NULL, and a property as a condition, which is false if the message has the property."""
        if operation == IS_NULL:
            self._set(top, self.kinds[top] == NOTHING)
        elif self.kinds[top] != NOTHING:
            self._set(top, operation == NOT and self.numbers[top] == 0)

    def _is_text(self, slot: int) -> bool:
        return self.kinds[slot] == STORED or self.kinds[slot] == TEXT

    def _source(self, slot: int) -> Readable:
        return self.block if self.kinds[slot] == STORED else self.pool

    def _same_text(self, slot: int, other: Readable, place: int, length: int) -> bool:
        return self.lengths[slot] == length and same(
            self._source(slot), self.numbers[slot], other, place, length
        )

    def _with_text(self, operation: int, place: int, length: int, negated: int, top: int) -> None:
        """CONTAINS and the like: false for a value that is no text and for an empty text, also with NOT."""
        if not self._is_text(top) or length == 0:
            self._set(top, False)
            return
        spare = self.lengths[top] - length
        found = False
        if spare >= 0:
            source = self._source(top)
            start = self.numbers[top]
            if operation == CONTAINS:
                found = find_text(source, start, self.lengths[top], self.pool, place, length)
            elif operation == STARTS_WITH:
                found = same(source, start, self.pool, place, length)
            else:
                found = same(source, start + spare, self.pool, place, length)
        self._set(top, found != (negated == 1))

    def _in_list(self, program: Integers, code: int, top: int) -> None:
        if self.kinds[top] == NOTHING:
            return
        found = False
        at = code + 3
        for _ in range(program[code + 2]):
            if self._same_text(top, self.pool, program[at], program[at + 1]):
                found = True
                break
            at += 2
        self._set(top, found != (program[code + 1] == 1))

    # -- comparisons (ComparisonExpression) ------------------------------------------------------------

    def _compare(self, operation: int, top: int) -> bool:
        """Compare the two values on top of the stack; ``False``: they cannot be compared."""
        left_null = self.kinds[top] == NOTHING
        right_null = self.kinds[top + 1] == NOTHING
        if left_null or right_null:
            if operation == EQUAL and right_null:
                self._set(top, left_null)
            else:
                self.kinds[top] = NOTHING
            return True
        order = self._order(operation, top, top + 1)
        if order == ILLEGAL:
            return False
        self._decide(operation, order, top)
        return True

    def _compare_number(self, operation: int, kind: int, number: int, top: int) -> bool:
        """Compare a property with a whole number; ``False``: the property is not a number."""
        if self.kinds[top] == NOTHING:
            return True
        if not self._to_number(top, kind):
            return False
        order = 0
        if self.numbers[top] != number:
            order = -1 if self.numbers[top] < number else 1
        self._decide(operation, order, top)
        return True

    def _decide(self, operation: int, order: int, top: int) -> None:
        if operation == EQUAL:
            self._set(top, order == 0)
        elif operation == LESS:
            self._set(top, order < 0)
        elif operation == LESS_EQUAL:
            self._set(top, order <= 0)
        elif operation == GREATER:
            self._set(top, order > 0)
        else:
            self._set(top, order >= 0)

    def _order(self, operation: int, left: int, right: int) -> int:
        """The order of two values: -1, 0, 1, or ILLEGAL if they cannot be compared."""
        left_text = self._is_text(left)
        right_text = self._is_text(right)
        if left_text and right_text:
            if operation == EQUAL:
                length = self.lengths[right]
                return 0 if self._same_text(left, self._source(right), self.numbers[right], length) else 1
            if not self._to_double(left) or not self._to_double(right):
                return ILLEGAL
        elif self.kinds[left] == BOOLEAN or self.kinds[right] == BOOLEAN:
            return self._order_booleans(left, right)
        elif left_text:
            if not self._to_number(left, self.kinds[right]):
                return ILLEGAL
        elif right_text and not self._to_number(right, self.kinds[left]):
            return ILLEGAL
        if self.kinds[left] == DOUBLE or self.kinds[right] == DOUBLE:
            return order_doubles(self._as_double(left), self._as_double(right))
        if self.numbers[left] == self.numbers[right]:
            return 0
        return -1 if self.numbers[left] < self.numbers[right] else 1

    def _order_booleans(self, left: int, right: int) -> int:
        """Compare two values of which one is a condition.

        A text on the left is read as a condition, a text on the right cannot be compared, and a number is
        always less.
        """
        if self.kinds[left] != BOOLEAN:
            if not self._is_text(left):
                return -1
            self._set(left, self._says_true(left))
        elif self.kinds[right] != BOOLEAN:
            return ILLEGAL if self._is_text(right) else -1
        return self.numbers[left] - self.numbers[right]

    def _says_true(self, slot: int) -> bool:
        """Whether a text is ``true``, in upper or lower case (Boolean.valueOf)."""
        source = self._source(slot)
        at = self.numbers[slot]
        return (
            self.lengths[slot] == 4
            and (source[at] | 0x20) == 0x74
            and (source[at + 1] | 0x20) == 0x72
            and (source[at + 2] | 0x20) == 0x75
            and (source[at + 3] | 0x20) == 0x65
        )

    def _as_double(self, slot: int) -> float:
        if self.kinds[slot] == DOUBLE:
            return self.doubles[slot]
        return (
            cython.cast(cython.double, self.numbers[slot]) if cython.compiled else float(self.numbers[slot])
        )

    def _to_number(self, slot: int, kind: int) -> bool:
        """Read a text as a number of this kind; ``False``: it is not a number."""
        if kind == DOUBLE:
            return self._to_double(slot)
        source = self._source(slot)
        at = self.numbers[slot]
        end = at + self.lengths[slot]
        # The bytes behind an empty text belong to another text, which may begin with a sign.
        negative = at < end and source[at] == 0x2D
        if negative or (at < end and source[at] == 0x2B):
            at += 1
        if at == end:
            return False
        value = 0
        while at < end:
            digit = source[at] - 0x30
            # The smallest number has no positive counterpart, so the digits are read as a negative number.
            if digit < 0 or digit > 9 or value < -TEN_TIMES_MORE or value * 10 < digit - LONG_MAX - 1:
                return False
            value = value * 10 - digit
            at += 1
        if not negative:
            if value < -LONG_MAX:
                return False
            value = -value
        if kind == INTEGER and (value > INT_MAX or value < -INT_MAX - 1):
            return False
        self.kinds[slot] = kind
        self.numbers[slot] = value
        return True

    def _to_double(self, slot: int) -> bool:
        """Read a text as Double.valueOf does, except hexadecimal; ``False``: it is not a number."""
        source = self._source(slot)
        at = self.numbers[slot]
        end = at + self.lengths[slot]
        while at < end and source[at] <= 0x20:
            at += 1
        while at < end and source[end - 1] <= 0x20:
            end -= 1
        start = at
        if at < end and (source[at] == 0x2D or source[at] == 0x2B):
            at += 1
        if at == end:
            return False
        if source[at] == 0x4E or source[at] == 0x49:  # N, I
            if not self._is_word(source, at, end):
                return False
            value = slow_double(source, start, end - start)
        else:
            stop = self._read_decimal(source, at, end)
            if stop < 0:
                return False
            if self.exact:
                value = self.decimal if source[start] != 0x2D else -self.decimal
            else:
                value = slow_double(source, start, stop - start)
        self.kinds[slot] = DOUBLE
        self.doubles[slot] = value
        return True

    def _is_word(self, source: Readable, at: int, end: int) -> bool:
        """Whether the text is NaN or Infinity."""
        if cython.compiled:
            if end - at == 3:
                return memcmp(cython.address(source[at]), b"NaN", 3) == 0
            return end - at == 8 and memcmp(cython.address(source[at]), b"Infinity", 8) == 0
        return bytes(source[at:end]) in (b"NaN", b"Infinity")

    def _read_decimal(self, source: Readable, at: int, end: int) -> int:
        """Read digits, a point and an exponent up to ``end``; a d or f may stand at the end.

        Fills ``decimal`` when it is ``exact``. Returns the place behind the exponent, -1: not a number.
        """
        mantissa = 0
        digits = 0
        seen = 0
        exponent = 0
        point = 0
        while at < end:
            digit = source[at] - 0x30
            if 0 <= digit <= 9:
                seen = 1
                exponent -= point
                if mantissa > 0 or digit > 0:
                    digits += 1
                if digits <= EXACT_DIGITS:
                    mantissa = mantissa * 10 + digit
            elif source[at] == 0x2E and not point:
                point = 1
            else:
                break
            at += 1
        if not seen:
            return -1
        if at < end and (source[at] | 0x20) == 0x65:  # e
            at = self._read_exponent(source, at + 1, end)
            if at < 0:
                return -1
            exponent += self.exponent
        if at < end - 1 or (at < end and (source[at] | 0x20) != 0x64 and (source[at] | 0x20) != 0x66):
            return -1
        self.exact = digits <= EXACT_DIGITS and -EXACT_POWER <= exponent <= EXACT_POWER
        if self.exact:
            self.decimal = mantissa
            if exponent < 0:
                self.decimal /= POWERS[-exponent]
            else:
                self.decimal *= POWERS[exponent]
        return at

    def _read_exponent(self, source: Readable, at: int, end: int) -> int:
        """Fill ``exponent``, cut at some thousands; -1: there is no exponent."""
        negative = 0
        if at < end and (source[at] == 0x2D or source[at] == 0x2B):
            negative = source[at] == 0x2D
            at += 1
        if at == end or not 0x30 <= source[at] <= 0x39:
            return -1
        self.exponent = 0
        while at < end and 0x30 <= source[at] <= 0x39:
            if self.exponent < 10_000:
                self.exponent = self.exponent * 10 + source[at] - 0x30
            at += 1
        if negative:
            self.exponent = -self.exponent
        return at

    # -- for callers in Python -------------------------------------------------------------------------

    def match_block(self, program: array[int], block: bytes) -> bool:
        """:meth:`matches` of a whole property block."""
        if not block:
            block = b"\x02"
        if cython.compiled:
            return self._match_view(program, block, len(block))
        return self.matches(program, 0, block, 0, len(block))

    def _match_view(self, program: Integers, block: Readable, length: int) -> bool:
        return self.matches(cython.address(program[0]), 0, cython.address(block[0]), 0, length)
