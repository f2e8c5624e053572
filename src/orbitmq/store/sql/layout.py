"""The numbers of a program, shared by the compiler of expressions and their matcher.

A program is one row of 64 bit numbers. First the count of properties that it reads, and where its code
begins; then for each property the place (in bytes from the program's start) and the length of its name; then
the code, an operation followed by its operands; last the bytes of all names and texts.
"""

from __future__ import annotations

NAMES_COUNT_AT = 0
CODE_AT = 1
HEADER = 2  # numbers that precede the names

# Operations, and their operands; the matcher distinguishes groups of them by their order. First come those
# that push a value, then those that replace one value or two by one.
PUSH_PROPERTY = 1  # number of the property
PUSH_TEXT = 2  # place and length, bytes
PUSH_INTEGER = 3  # the number, which fits into 32 bits
PUSH_LONG = 4  # the number
PUSH_DOUBLE = 5  # the 64 bits of the number
PUSH_BOOLEAN = 6  # 0 or 1
PUSH_NULL = 7
EQUAL = 8
LESS = 9
LESS_EQUAL = 10
GREATER = 11
GREATER_EQUAL = 12
NOT = 13
CAST = 14  # a property where a condition is wanted
IS_NULL = 15
AND = 16
OR = 17
AND_SKIPS = 18  # where to continue if the left side decides, counted in numbers from the program's start
OR_SKIPS = 19  # likewise
CONTAINS = 20  # place and length of the text sought, and 1 for NOT
STARTS_WITH = 21  # likewise
ENDS_WITH = 22  # likewise
IN = 23  # 1 for NOT, how many texts, then place and length of each
WITH_NUMBER = 24  # compare a property: a comparison from above, kind and value of a whole number
END = 25

# Kinds of values.
NOTHING = 0  # NULL
BOOLEAN = 1
TEXT = 2  # of the program
STORED = 3  # text of the message's properties
INTEGER = 4
LONG = 5
DOUBLE = 6

MAX_EXPRESSION_BYTES = 32 * 1024
MAX_NESTING = 64
MAX_PROPERTIES = 64
STACK = 2 * MAX_NESTING  # a level keeps one value while its other side is computed
