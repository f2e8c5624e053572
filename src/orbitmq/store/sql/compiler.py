"""Compiles the tree of an expression to the matcher's program, by RocketMQ's rules on which values may be
compared."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from functools import singledispatchmethod

from orbitmq.message.property_names import RETRY_TOPIC
from orbitmq.store.sql import layout
from orbitmq.store.sql.errors import SqlError
from orbitmq.store.sql.syntax import (
    Between,
    Compare,
    Constant,
    InList,
    IsNull,
    Logic,
    Negate,
    Node,
    Not,
    Property,
    WithText,
    parse,
)

_NUMBERS = (layout.INTEGER, layout.LONG, layout.DOUBLE)
_CONDITIONS = (Not, Logic, Compare, Between, IsNull, WithText, InList)


def compile_sql(expression: str) -> array[int]:
    """The program of an expression (see ``layout``).

    Raises:
        SqlError: the text is empty, too long, nested too deeply, no expression, or compares values that
            cannot be compared.
        ImportError: the parser is not installed.
    """
    return _Compiler(expression).program(parse(expression))


def compile_by_origin(expressions: Mapping[str, str]) -> array[int]:
    """One program for messages of several topics in a retry topic: each has to pass its topic's expression.

    Args:
        expressions: by topic. A message of another topic, or of an unknown one, passes.

    Raises:
        SqlError: as :func:`compile_sql`; for the first wrong expression.
    """
    sides = []
    for topic, expression in expressions.items():
        tree = parse(expression)
        compile_sql(expression)
        origin = Property(RETRY_TOPIC, 0)
        other = Not(Compare(layout.EQUAL, origin, Constant(layout.TEXT, topic, 0), 0, 2), 0, 3)
        sides.append(Logic(layout.OR, [IsNull(origin, 0, 2), other, tree], 0, tree.depth + 3))
    return _Compiler("").program(Logic(layout.AND, sides, 0, layout.MAX_NESTING))


class _Compiler:
    """Writes one program. The checks are those of RocketMQ's ComparisonExpression and SelectorParser."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._code: list[int] = []
        self._pool = bytearray()
        self._texts: dict[str, tuple[int, int]] = {}
        self._properties: dict[str, int] = {}
        # Indexes in the code that are turned into places when the sizes of all parts are known.
        self._places: list[int] = []
        self._skips: list[int] = []

    def program(self, root: Node) -> array[int]:
        self._condition(root)
        self._code.append(layout.END)
        names = [self._text(name) for name in self._properties]
        code_at = layout.HEADER + 2 * len(names)
        pool_at = 8 * (code_at + len(self._code))
        for number in self._places:
            self._code[number] += pool_at
        for number in self._skips:
            self._code[number] += code_at
        numbers = [len(names), code_at]
        for place, length in names:
            numbers += [pool_at + place, length]
        program = array("q", numbers + self._code)
        program.frombytes(bytes(self._pool) + bytes(-len(self._pool) % 8))
        return program

    # -- checks ----------------------------------------------------------------------------------------

    def _mistake(self, node: Node, problem: str) -> SqlError:
        return SqlError(self._expression, node.at, problem)

    def _condition(self, node: Node) -> None:
        """Compile a condition: true, false or unknown. A property alone is never true."""
        if isinstance(node, Property):
            self._emit(node)
            self._code.append(layout.CAST)
            return
        if not _is_condition(node):
            raise self._mistake(node, "a condition is expected here")
        self._emit(node)

    def _check_ordered(self, *nodes: Node) -> None:
        for node in nodes:
            if _is_condition(node) or (isinstance(node, Constant) and node.kind not in _NUMBERS):
                raise self._mistake(node, "only numbers and properties can be compared by size")

    def _check_equal(self, left: Node, right: Node) -> None:
        for node in (left, right):
            if isinstance(node, Constant) and node.kind == layout.NOTHING:
                raise self._mistake(node, "nothing is equal to NULL, say IS NULL")
        if (
            isinstance(left, Constant)
            and left.kind == layout.BOOLEAN
            and isinstance(right, Constant)
            and right.kind != layout.BOOLEAN
        ):
            raise self._mistake(right, "TRUE and FALSE cannot be compared with it")

    # -- code ------------------------------------------------------------------------------------------

    def _text(self, text: str) -> tuple[int, int]:
        """Place and length of a text in the pool, bytes."""
        known = self._texts.get(text)
        if known is None:
            encoded = text.encode("utf-8", "replace")
            known = self._texts[text] = (len(self._pool), len(encoded))
            self._pool += encoded
        return known

    def _text_operands(self, text: str) -> None:
        place, length = self._text(text)
        self._places.append(len(self._code))
        self._code += [place, length]

    @singledispatchmethod
    def _emit(self, node: Node) -> None:
        raise TypeError(node)

    @_emit.register
    def _(self, node: Property) -> None:
        if node.name not in self._properties:
            if len(self._properties) >= layout.MAX_PROPERTIES:
                raise self._mistake(
                    node, f"it names more than {layout.MAX_PROPERTIES} properties, which is the limit"
                )
            self._properties[node.name] = len(self._properties)
        self._code += [layout.PUSH_PROPERTY, self._properties[node.name]]

    @_emit.register
    def _(self, node: Constant) -> None:
        match node.kind:
            case layout.TEXT:
                self._code.append(layout.PUSH_TEXT)
                self._text_operands(node.value)
            case layout.INTEGER:
                self._code += [layout.PUSH_INTEGER, node.value]
            case layout.LONG:
                self._code += [layout.PUSH_LONG, node.value]
            case layout.DOUBLE:
                self._code += [layout.PUSH_DOUBLE, *struct.unpack("=q", struct.pack("=d", node.value))]
            case layout.BOOLEAN:
                self._code += [layout.PUSH_BOOLEAN, int(node.value)]
            case _:
                self._code.append(layout.PUSH_NULL)

    @_emit.register
    def _(self, node: Negate) -> None:
        signs, operand = 1, node.operand
        while isinstance(operand, Negate):
            signs, operand = signs + 1, operand.operand
        if isinstance(operand, Constant) and operand.kind in _NUMBERS:
            value = -operand.value if signs % 2 else operand.value
            self._emit(Constant(operand.kind, value, operand.at))
        else:
            self._code.append(layout.PUSH_NULL)

    @_emit.register
    def _(self, node: Not) -> None:
        self._condition(node.operand)
        self._code.append(layout.NOT)

    @_emit.register
    def _(self, node: Logic) -> None:
        skip = layout.AND_SKIPS if node.operation == layout.AND else layout.OR_SKIPS
        self._condition(node.operands[0])
        pending = []
        for operand in node.operands[1:]:
            self._code += [skip, 0]
            pending.append(len(self._code) - 1)
            self._condition(operand)
            self._code.append(node.operation)
        for number in pending:
            self._code[number] = len(self._code)
        self._skips += pending

    @_emit.register
    def _(self, node: Compare) -> None:
        left, right = node.left, node.right
        if node.operation == layout.EQUAL:
            self._check_equal(left, right)
        else:
            self._check_ordered(left, right)
        if isinstance(left, Property) and isinstance(right, Constant):
            # The usual operations are cheaper if the constant need not be pushed. Texts are only compared
            # for equality: the check above refuses other comparisons.
            if right.kind == layout.TEXT:
                self._emit(InList(left, [right.value], False, node.at, node.depth))
                return
            if right.kind in (layout.INTEGER, layout.LONG):
                self._emit(left)
                self._code += [layout.WITH_NUMBER, node.operation, right.kind, right.value]
                return
        self._emit(left)
        self._emit(right)
        self._code.append(node.operation)

    @_emit.register
    def _(self, node: Between) -> None:
        low, high = node.low, node.high
        self._check_ordered(node.value, low, high)
        if (
            not node.negated
            and isinstance(low, Constant)
            and isinstance(high, Constant)
            and high.value < low.value
        ):
            raise self._mistake(low, f"BETWEEN wants the smaller number first: {low.value} AND {high.value}")
        first, second, logic = (
            (layout.LESS, layout.GREATER, layout.OR)
            if node.negated
            else (layout.GREATER_EQUAL, layout.LESS_EQUAL, layout.AND)
        )
        sides = [
            Compare(first, node.value, low, node.at, node.depth),
            Compare(second, node.value, high, node.at, node.depth),
        ]
        self._emit(Logic(logic, sides, node.at, node.depth))

    @_emit.register
    def _(self, node: IsNull) -> None:
        self._emit(node.operand)
        self._code.append(layout.IS_NULL)

    @_emit.register
    def _(self, node: WithText) -> None:
        self._emit(node.operand)
        self._code.append(node.operation)
        self._text_operands(node.text)
        self._code.append(int(node.negated))

    @_emit.register
    def _(self, node: InList) -> None:
        if not isinstance(node.operand, Property):
            raise self._mistake(node.operand, "IN is for properties only")
        self._emit(node.operand)
        self._code += [layout.IN, int(node.negated), len(node.texts)]
        for text in node.texts:
            self._text_operands(text)


def _is_condition(node: Node) -> bool:
    """Whether a node is a BooleanExpression of RocketMQ: a comparison, logic, TRUE, FALSE or NULL."""
    return isinstance(node, _CONDITIONS) or (
        isinstance(node, Constant) and node.kind in (layout.BOOLEAN, layout.NOTHING)
    )
