"""SQL92 expressions as trees of tuples: rendered as text, and evaluated directly over a dict of properties.

Written from RocketMQ's rules alone, without the product's parser, compiler or matcher, to compare them with.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

from hypothesis import strategies as st

Tree: TypeAlias = tuple[Any, ...]
NAMES = ("a", "b", "c", "TAGS", "$x_1")
INT_RANGE = (-(2**31), 2**31 - 1)
LONG_RANGE = (-(2**63), 2**63 - 1)
NUMBER = re.compile(r"[+-]?[0-9]+")
DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII
)


class IllegalError(Exception):
    """Two values that cannot be compared: the message does not match."""


class Int(int):
    """A number of 32 bits."""


# -- rendering -----------------------------------------------------------------------------------------------


def render(tree: Tree) -> str:
    kind = tree[0]
    if kind == "property":
        return str(tree[1])
    if kind == "value":
        return render_value(tree[1])
    if kind == "not":
        return f"NOT ({render(tree[1])})"
    if kind in ("and", "or"):
        return f" {kind.upper()} ".join(f"({render(side)})" for side in tree[1:])
    if kind == "compare":
        return f"{operand(tree[2])} {tree[1]} {operand(tree[3])}"
    if kind == "null":
        return f"{operand(tree[1])} IS {'NOT ' if tree[2] else ''}NULL"
    if kind == "text":
        return f"{operand(tree[2])} {'not ' if tree[4] else ''}{tree[1]} {render_value(tree[3])}"
    if kind == "in":
        listed = ",".join(map(render_value, tree[2]))
        return f"{operand(tree[1])} {'NOT ' if tree[3] else ''}IN ({listed})"
    value, low, high, negated = tree[1:]
    return f"{operand(value)} {'NOT ' if negated else ''}BETWEEN {operand(low)} AND {operand(high)}"


def operand(tree: Tree) -> str:
    return render(tree) if tree[0] in ("property", "value") else f"({render(tree)})"


def render_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        text = repr(abs(value))
        return ("-" if math.copysign(1, value) < 0 else "") + (
            text if "e" in text or "." in text else text + "."
        )
    return str(value)


# -- evaluation ----------------------------------------------------------------------------------------------


def matches(tree: Tree, properties: Mapping[str, str]) -> bool:
    try:
        return evaluate(tree, properties) is True
    except IllegalError:
        return False


def evaluate(tree: Tree, properties: Mapping[str, str]) -> Any:
    kind = tree[0]
    if kind == "property":
        return properties.get(tree[1]) or None
    if kind == "value":
        value = tree[1]
        whole = isinstance(value, int) and not isinstance(value, bool)
        return Int(value) if whole and -INT_RANGE[1] <= value <= INT_RANGE[1] else value
    if kind == "not":
        truth = condition(tree[1], properties)
        return None if truth is None else not truth
    if kind in ("and", "or"):
        return logic(kind == "or", tree[1:], properties)
    if kind == "compare":
        return compare(tree[1], evaluate(tree[2], properties), evaluate(tree[3], properties))
    if kind == "null":
        return (evaluate(tree[1], properties) is None) != tree[2]
    if kind == "text":
        return with_text(tree[1], evaluate(tree[2], properties), tree[3], tree[4])
    if kind == "in":
        found = evaluate(tree[1], properties)
        return None if found is None else (found in tree[2]) != tree[3]
    value, low, high, negated = tree[1:]
    if negated:
        sides = [("compare", "<", value, low), ("compare", ">", value, high)]
    else:
        sides = [("compare", ">=", value, low), ("compare", "<=", value, high)]
    return logic(negated, sides, properties)


def condition(tree: Tree, properties: Mapping[str, str]) -> bool | None:
    value = evaluate(tree, properties)
    if tree[0] == "property":
        return None if value is None else False
    return value  # type: ignore[no-any-return]


def logic(decisive: bool, sides: Any, properties: Mapping[str, str]) -> bool | None:
    result: bool | None = not decisive
    for side in sides:
        truth = condition(side, properties)
        if truth is decisive:
            return decisive
        if truth is None:
            result = None
    return result


def with_text(operation: str, value: Any, text: str, negated: bool) -> bool:
    if not isinstance(value, str) or not text:
        return False
    found = {
        "CONTAINS": text in value,
        "STARTSWITH": value.startswith(text),
        "ENDSWITH": value.endswith(text),
    }[operation]
    return found != negated


def compare(sign: str, left: Any, right: Any) -> bool | None:
    equality = sign in ("=", "<>")
    if left is None or right is None:
        if not equality:
            return None
        equal = (True if right is None else None) if left is None else False
        return equal if sign == "=" or equal is None else not equal
    order = ordered(equality, left, right)
    return {
        "=": order == 0,
        "<>": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[sign]


def ordered(equality: bool, left: Any, right: Any) -> int:
    if isinstance(left, str) and isinstance(right, str):
        if equality:
            return 0 if left == right else 1
        return double_order(double(left), double(right))
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, str):
            left = left.lower() == "true"
        if isinstance(left, bool) and isinstance(right, str):
            raise IllegalError
        return left - right if isinstance(left, bool) and isinstance(right, bool) else -1
    if isinstance(left, str):
        left = number(left, type(right))
    elif isinstance(right, str):
        right = number(right, type(left))
    if isinstance(left, float) or isinstance(right, float):
        return double_order(float(left), float(right))
    return (left > right) - (left < right)


def number(text: str, kind: type) -> Any:
    if kind is float:
        return double(text)
    low, high = INT_RANGE if kind is Int else LONG_RANGE
    if not NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise IllegalError
    return int(text)


def double(text: str) -> float:
    text = text.strip("".join(map(chr, range(33))))
    if not DECIMAL.fullmatch(text):
        raise IllegalError
    return float(text if text[-1] in "Ny" else text.rstrip("fFdD"))


def double_order(left: float, right: float) -> int:
    def key(value: float) -> int:
        bits = int(struct.unpack(">q", struct.pack(">d", math.nan if value != value else value))[0])
        return bits if bits >= 0 else -(bits & (2**63 - 1)) - 1

    return (key(left) > key(right)) - (key(left) < key(right))


# -- what is drawn -------------------------------------------------------------------------------------------

texts = st.sampled_from(["x", "xy", "y'z", "true", "TRUE", "5", "-5", "0.5", "", "ü€", "5.0", "2147483648"])
whole = st.one_of(
    st.sampled_from([0, 1, 5, -5, 2**31 - 1, 2**31, -(2**31) + 1, 2**63 - 1, -(2**63) + 1]),
    st.integers(-(2**63) + 1, 2**63 - 1),
)
fractions = st.one_of(
    st.sampled_from([0.5, 5.0, -0.5, 1e300, 4.9e-324, 0.1, 1e22, 1e23]),
    st.floats(allow_nan=False, allow_infinity=False),
)
numbers = st.one_of(whole, fractions).map(lambda value: ("value", value))
properties_ = st.sampled_from(NAMES).map(lambda name: ("property", name))
sized = st.one_of(properties_, properties_, numbers)
literals = st.one_of(texts, whole, fractions, st.booleans()).map(lambda value: ("value", value))


def _comparable(tree: Tree) -> bool:
    """Not what RocketMQ refuses: TRUE = 5."""
    left, right = tree[2], tree[3]
    return not (
        left[0] == right[0] == "value" and isinstance(left[1], bool) and not isinstance(right[1], bool)
    )


def _between(tree: Tree) -> bool:
    """Not what RocketMQ refuses: two constants, the greater one first."""
    low, high, negated = tree[2:]
    return bool(negated or low[0] != "value" or high[0] != "value" or not high[1] < low[1])


def _conditions(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.just("not"), st.one_of(inner, properties_)),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, properties_, inner),
        st.tuples(
            st.just("compare"), st.sampled_from(["=", "<>"]), inner, st.one_of(inner, literals, properties_)
        ),
        st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), st.one_of(literals, properties_), inner),
        st.tuples(st.just("null"), inner, st.booleans()),
    ).filter(lambda tree: tree[0] != "compare" or _comparable(tree))


_leaves = st.one_of(
    st.tuples(st.just("compare"), st.sampled_from(["<", "<=", ">", ">="]), sized, sized),
    st.tuples(
        st.just("compare"),
        st.sampled_from(["=", "<>"]),
        st.one_of(properties_, literals),
        st.one_of(properties_, literals),
    ).filter(_comparable),
    st.tuples(st.just("null"), st.one_of(properties_, literals), st.booleans()),
    st.tuples(
        st.just("text"),
        st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]),
        st.one_of(properties_, literals),
        texts,
        st.booleans(),
    ),
    st.tuples(st.just("in"), properties_, st.lists(texts, min_size=1, max_size=4), st.booleans()),
    st.tuples(st.just("between"), properties_, sized, sized, st.booleans()).filter(_between),
)
trees: st.SearchStrategy[Tree] = st.recursive(_leaves, _conditions, max_leaves=8)

_numeric_texts = st.one_of(
    whole.map(str),
    fractions.map(repr),
    st.sampled_from(
        ["+5", " 5", "5 ", "5f", ".5", "5.", "1e5", "NaN", "-0.0", "0.0", "Infinity", "1e999", "0x10"]
    ),
    st.sampled_from(
        ["123456789012345678901234567890", "0.000000000000000000000000000001d", "9" * 400, "+", "-"]
    ),
)
values = st.one_of(texts, _numeric_texts, st.text("xyü€1.-", max_size=5))
messages = st.dictionaries(st.sampled_from((*NAMES, "other")), values, max_size=5)
