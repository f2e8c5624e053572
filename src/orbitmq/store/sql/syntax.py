"""Reads SQL92 expressions (SelectorParser) into a tree. ``lark`` parses; it is imported with the first
expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from orbitmq.store.sql import layout
from orbitmq.store.sql.errors import SqlError

# Keywords are reserved everywhere, in upper and lower case; a comment to the end of the line needs a line
# end.
GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison   -> equal
    | equality "<>" comparison  -> not_equal
    | equality _IS NOT? NULL    -> is_null
?comparison: unary
    | comparison (LESS | LESS_EQUAL | GREATER | GREATER_EQUAL) unary   -> ordered
    | comparison NOT? (CONTAINS | STARTSWITH | ENDSWITH) STRING        -> with_text
    | comparison NOT? _BETWEEN unary _AND unary                        -> between
    | comparison NOT? _IN "(" STRING ("," STRING)* ")"                 -> in_list
?unary: primary
    | "+" unary
    | "-" unary    -> negate
    | NOT unary    -> negation
?primary: STRING -> text
    | INTEGER    -> integer
    | DOUBLE     -> double
    | BOOLEAN    -> boolean
    | NULL       -> null
    | NAME       -> property
    | "(" disjunction ")" -> nested

LESS: "<"
LESS_EQUAL: "<="
GREATER: ">"
GREATER_EQUAL: ">="
_OR.2: /OR(?![a-zA-Z0-9_$])/i
_AND.2: /AND(?![a-zA-Z0-9_$])/i
_IS.2: /IS(?![a-zA-Z0-9_$])/i
_IN.2: /IN(?![a-zA-Z0-9_$])/i
_BETWEEN.2: /BETWEEN(?![a-zA-Z0-9_$])/i
NOT.2: /NOT(?![a-zA-Z0-9_$])/i
NULL.2: /NULL(?![a-zA-Z0-9_$])/i
BOOLEAN.2: /(TRUE|FALSE)(?![a-zA-Z0-9_$])/i
CONTAINS.2: /CONTAINS(?![a-zA-Z0-9_$])/i
STARTSWITH.2: /STARTSWITH(?![a-zA-Z0-9_$])/i
ENDSWITH.2: /ENDSWITH(?![a-zA-Z0-9_$])/i
NAME: /[a-zA-Z_$][a-zA-Z0-9_$]*/
STRING: /'(''|[^'])*'/
DOUBLE.2: /([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
INTEGER: /0|[1-9][0-9]*[lL]?/
LINE_COMMENT.2: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.2: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""


@dataclass(slots=True)
class Property:
    name: str
    at: int
    depth: int = 1


@dataclass(slots=True)
class Constant:
    """``kind`` is one of ``layout``'s kinds of values."""

    kind: int
    value: Any
    at: int
    depth: int = 1


@dataclass(slots=True)
class Negate:
    """Minus: the opposite of a number; NULL for any other value."""

    operand: Node
    at: int
    depth: int


@dataclass(slots=True)
class Not:
    operand: Node
    at: int
    depth: int


@dataclass(slots=True)
class Logic:
    """``operation`` is AND or OR of ``layout``."""

    operation: int
    operands: Sequence[Node]
    at: int
    depth: int


@dataclass(slots=True)
class Compare:
    """``operation`` is EQUAL, LESS and so on of ``layout``."""

    operation: int
    left: Node
    right: Node
    at: int
    depth: int


@dataclass(slots=True)
class Between:
    value: Node
    low: Node
    high: Node
    negated: bool
    at: int
    depth: int


@dataclass(slots=True)
class IsNull:
    operand: Node
    at: int
    depth: int


@dataclass(slots=True)
class WithText:
    """``operation`` is CONTAINS, STARTS_WITH or ENDS_WITH of ``layout``."""

    operation: int
    operand: Node
    text: str
    negated: bool
    at: int
    depth: int


@dataclass(slots=True)
class InList:
    operand: Node
    texts: Sequence[str]
    negated: bool
    at: int
    depth: int


Node: TypeAlias = Property | Constant | Negate | Not | Logic | Compare | Between | IsNull | WithText | InList

_ORDERED = {
    "LESS": layout.LESS,
    "LESS_EQUAL": layout.LESS_EQUAL,
    "GREATER": layout.GREATER,
    "GREATER_EQUAL": layout.GREATER_EQUAL,
}
_WITH_TEXT = {
    "CONTAINS": layout.CONTAINS,
    "STARTSWITH": layout.STARTS_WITH,
    "ENDSWITH": layout.ENDS_WITH,
}
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def parse(expression: str) -> Node:
    """The tree of an expression. The compiler checks its parts.

    Raises:
        SqlError: the text is empty, too long, nested too deeply, or no expression.
    """
    size = len(expression.encode("utf-8", "replace"))
    if size > layout.MAX_EXPRESSION_BYTES:
        raise SqlError(
            expression,
            layout.MAX_EXPRESSION_BYTES,
            f"it has {size} bytes, the limit is {layout.MAX_EXPRESSION_BYTES}",
        )
    if not expression.strip(" \t\n\r\f"):
        raise SqlError(expression, len(expression), "it is empty")
    parser = _parser()
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        tree: Node = parser.parse(expression)
    except _MistakeError as mistake:
        raise SqlError(expression, mistake.at, mistake.problem) from None
    except UnexpectedCharacters as error:
        raise SqlError(expression, error.pos_in_stream, "no word or sign of an expression") from None
    except UnexpectedToken as error:
        if error.token.type == "$END":
            raise SqlError(expression, len(expression), "something is missing here") from None
        raise SqlError(expression, error.token.start_pos, "not expected here") from None
    return tree


class _MistakeError(Exception):
    """The error of a part of an expression; the parser's callback that raises it does not have the whole
    text."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at
        self.problem = problem


@cache
def _parser() -> Any:
    """The parser, made once. It keeps no state between expressions and does not recurse."""
    try:
        from lark import Lark, Transformer, v_args
    except ImportError as error:
        raise ImportError(
            f"SQL92 expressions need the package lark: pip install 'orbitmq[server]' ({error})", name="lark"
        ) from error

    @v_args(inline=True)
    class Build(Transformer):  # type: ignore[misc]  # lark is not looked at by the type checker
        text = staticmethod(_text)
        integer = staticmethod(_integer)
        double = staticmethod(_double)
        boolean = staticmethod(_boolean)
        null = staticmethod(_null)
        property = staticmethod(_property)
        nested = staticmethod(_nested)
        negate = staticmethod(_negate)
        negation = staticmethod(_negation)
        disjunction = staticmethod(_disjunction)
        conjunction = staticmethod(_conjunction)
        equal = staticmethod(_equal)
        not_equal = staticmethod(_not_equal)
        is_null = staticmethod(_is_null)
        ordered = staticmethod(_ordered)
        with_text = staticmethod(_with_text)
        between = staticmethod(_between)
        in_list = staticmethod(_in_list)

    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Build())


def _deeper(at: int, *nodes: Node) -> int:
    """The depth of a node above these nodes."""
    depth = 1 + max(node.depth for node in nodes)
    if depth > layout.MAX_NESTING:
        raise _MistakeError(at, f"it is nested deeper than {layout.MAX_NESTING} levels")
    return depth


def _unquoted(token: Any) -> str:
    return str(token)[1:-1].replace("''", "'")


def _text(token: Any) -> Node:
    return Constant(layout.TEXT, _unquoted(token), token.start_pos)


def _integer(token: Any) -> Node:
    value = int(str(token).rstrip("lL"))
    if value > _LONG_MAX:
        raise _MistakeError(token.start_pos, f"the number is greater than {_LONG_MAX}")
    return Constant(layout.INTEGER if value <= _INT_MAX else layout.LONG, value, token.start_pos)


def _double(token: Any) -> Node:
    value = float(token)
    if value == float("inf"):
        raise _MistakeError(token.start_pos, "the number is greater than 1.7976931348623157E308")
    return Constant(layout.DOUBLE, value, token.start_pos)


def _boolean(token: Any) -> Node:
    return Constant(layout.BOOLEAN, str(token).upper() == "TRUE", token.start_pos)


def _null(token: Any) -> Node:
    return Constant(layout.NOTHING, None, token.start_pos)


def _property(token: Any) -> Node:
    return Property(str(token), token.start_pos)


def _nested(node: Node) -> Node:
    node.depth = _deeper(node.at, node)
    return node


def _negate(operand: Node) -> Node:
    return Negate(operand, operand.at, _deeper(operand.at, operand))


def _negation(token: Any, operand: Node) -> Node:
    return Not(operand, token.start_pos, _deeper(token.start_pos, operand))


def _disjunction(*operands: Node) -> Node:
    return Logic(layout.OR, operands, operands[0].at, _deeper(operands[0].at, *operands))


def _conjunction(*operands: Node) -> Node:
    return Logic(layout.AND, operands, operands[0].at, _deeper(operands[0].at, *operands))


def _equal(left: Node, right: Node) -> Node:
    return Compare(layout.EQUAL, left, right, left.at, _deeper(left.at, left, right))


def _not_equal(left: Node, right: Node) -> Node:
    equal = _equal(left, right)
    return Not(equal, left.at, _deeper(left.at, equal))


def _is_null(operand: Node, *tokens: Any) -> Node:
    is_null = IsNull(operand, operand.at, _deeper(operand.at, operand))
    if len(tokens) == 2:
        return Not(is_null, operand.at, _deeper(operand.at, is_null))
    return is_null


def _ordered(left: Node, token: Any, right: Node) -> Node:
    return Compare(_ORDERED[token.type], left, right, left.at, _deeper(left.at, left, right))


def _with_text(operand: Node, *tokens: Any) -> Node:
    operation = _WITH_TEXT[tokens[-2].type]
    text = _unquoted(tokens[-1])
    return WithText(operation, operand, text, len(tokens) == 3, operand.at, _deeper(operand.at, operand))


def _between(value: Node, *parts: Any) -> Node:
    low, high = parts[-2:]
    return Between(value, low, high, len(parts) == 3, value.at, _deeper(value.at, value, low, high))


def _in_list(operand: Node, *tokens: Any) -> Node:
    negated = tokens[0].type == "NOT"
    texts = tuple(map(_unquoted, tokens[1:] if negated else tokens))
    return InList(operand, texts, negated, operand.at, _deeper(operand.at, operand))
