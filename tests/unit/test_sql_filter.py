"""SQL92 expressions: what they mean, what is refused and where, and that matcher and direct evaluation
agree."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import seeds
from tests.sql_evaluator import Tree, matches, messages, render, trees

from orbitmq.message.properties import encode_properties
from orbitmq.store.sql.compiler import compile_by_origin, compile_sql
from orbitmq.store.sql.errors import SqlError
from orbitmq.store.sql.layout import MAX_EXPRESSION_BYTES, MAX_NESTING, MAX_PROPERTIES
from orbitmq.store.sql.matcher import Matcher

matcher = Matcher()


def passes(expression: str, **properties: str) -> bool:
    return matcher.match_block(compile_sql(expression), encode_properties(properties))


@given(tree=trees, several=st.lists(messages, min_size=5, max_size=5))
@settings(max_examples=len(seeds(2000)), deadline=None)
def test_any_expression_means_what_its_parts_mean(tree: Tree, several: list[dict[str, str]]) -> None:
    program = compile_sql(render(tree))
    for properties in several:
        assert matcher.match_block(program, encode_properties(properties)) is matches(tree, properties)


@pytest.mark.parametrize("sign", ["-", "+"])
def test_an_empty_text_is_no_number_whatever_texts_the_expression_has(sign: str) -> None:
    assert not passes(f"('' = 0) AND (NOT (a CONTAINS '{sign}5'))")
    assert not passes(f"('' = 0.0) AND (NOT (a CONTAINS '{sign}5'))")


@pytest.mark.behaviour("FI-02")
@pytest.mark.parametrize(
    ("expression", "value", "passed"),
    [
        ("f < 10", "0.5", False),
        ("f < 10.0", "0.5", True),
        ("f < 10", "5", True),
        ("f < 10", "+5", True),
        ("f < 10", " 5", False),
        ("f < 10.0", " 5 ", True),
        ("f > 10", "2147483648", False),
        ("f > 10L", "2147483648", False),
        ("f > 2147483648", "2147483649", True),
        ("f > 10.0", "2147483648", True),
        ("f = 5", "5", True),
        ("f = 5", "05", True),
        ("f = '5'", "05", False),
        ("f < 1.5", "NaN", False),
        ("f > 1.5", "Infinity", True),
        ("f > 1.5", "1.6f", True),
        ("f = -9223372036854775807", "-9223372036854775807", True),
        ("f = -9223372036854775807", "-9223372036854775808", False),
        ("f > 9223372036854775806", "9223372036854775808", False),
        ("f = 0.1", "0.1000000000000000055511151231257827", True),
    ],
)
def test_a_property_is_the_number_that_the_other_side_asks_for(
    expression: str, value: str, passed: bool
) -> None:
    assert passes(expression, f=value) is passed


@pytest.mark.behaviour("FI-03")
def test_what_is_no_number_matches_nothing_whatever_else_is_said() -> None:
    assert not passes("f > 5 OR b = 'x'", f="five", b="x")
    assert not passes("NOT (f > 5)", f="five")
    assert passes("b = 'x' OR f > 5", f="five", b="x")  # evaluation ends at the deciding operand


@pytest.mark.behaviour("FI-04")
@pytest.mark.parametrize(
    ("expression", "passed"),
    [
        ("a > 5", False),
        ("NOT (a > 5)", False),
        ("a <> 'x'", False),
        ("'x' <> a", True),
        ("a = b", True),
        ("a IS NULL", True),
        ("a IS NOT NULL", False),
        ("a IN ('x')", False),
        ("a NOT IN ('x')", False),
        ("a NOT CONTAINS 'x'", False),
        ("a = 1 OR TRUE", True),
        ("a = 1 AND FALSE OR TRUE", True),
        ("NULL", False),
    ],
)
def test_a_missing_property_makes_unknown(expression: str, passed: bool) -> None:
    assert passes(expression) is passed


@pytest.mark.parametrize(
    ("expression", "properties", "passed"),
    [
        ("a between 1 and 3", {"a": "3"}, True),
        ("a not between 1 and 3", {"a": "3"}, False),
        ("a In ('x', 'y''z')", {"a": "y'z"}, True),
        ("a startswith 'ab' and a endswith 'yz' and a contains 'm'", {"a": "abmyz"}, True),
        ("a contains ''", {"a": "x"}, False),
        ("a contains 'ü'", {"a": "für"}, True),
        ("a = TRUE", {"a": "True"}, True),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("a = 1 /* one */ AND -- the rest\n b = 2", {"a": "1", "b": "2"}, True),
        ("a>1AND b<2", {"a": "2", "b": "1"}, True),
        ("a = - -1", {"a": "1"}, True),
        ("a > .5e1", {"a": "5.1"}, True),
        ("AND_x = 'y'", {"AND_x": "y"}, True),
        ("a < b", {"a": "9", "b": "10"}, True),
        ("a = ''", {"a": ""}, False),
    ],
)
def test_words_and_signs(expression: str, properties: dict[str, str], passed: bool) -> None:
    assert passes(expression, **properties) is passed


def test_blocks_are_read_as_java_reads_them() -> None:
    program = compile_sql("a = 'x' AND b = 'y\x01z' AND c IS NULL")
    assert matcher.match_block(program, b"a\x01w\x02\x01v\x02c\x01\x02b\x01y\x01z\x02a\x01x")


@pytest.mark.behaviour("FI-05")
@pytest.mark.parametrize(
    ("expression", "at", "says"),
    [
        ("", 0, "empty"),
        (" \n ", 3, "empty"),
        ("a >", 3, "missing"),
        ("a = 1 AN b = 2", 6, "not expected"),
        ("a = 1)", 5, "not expected"),
        ("AND = 1", 0, "not expected"),
        ("a @ 1", 2, "no word or sign"),
        ("a = 'x", 4, "no word or sign"),
        ("a = 007", 5, "not expected"),
        ("5", 0, "condition"),
        ("a = 1 AND 'x'", 10, "condition"),
        ("a > 'x'", 4, "by size"),
        ("(a = 1) < 5", 1, "by size"),
        ("a = NULL", 4, "IS NULL"),
        ("TRUE = 5", 7, "TRUE and FALSE"),
        ("5 IN ('x')", 0, "properties only"),
        ("a BETWEEN 3 AND 1", 10, "smaller number first"),
        ("a = 9223372036854775808", 4, "greater than 9223372036854775807"),
        ("a = 1e999", 4, "greater than"),
        ("NOT " * (MAX_NESTING + 1) + "(a = 1)", None, "deeper than"),
        ("(" * 5000 + "a = 1" + ")" * 5000, 5000, "deeper than"),
        (" OR ".join(f"a{n} = 1" for n in range(MAX_PROPERTIES + 1)), None, "more than 64 properties"),
        ("x" * (100 * 1024), MAX_EXPRESSION_BYTES, "the limit is 32768"),
    ],
)
def test_a_mistake_is_shown_at_its_place(expression: str, at: int | None, says: str) -> None:
    with pytest.raises(SqlError, match=says) as refused:
        compile_sql(expression)
    if at is not None:
        assert refused.value.at == at


def test_the_place_is_told_in_words() -> None:
    with pytest.raises(SqlError, match=r"column 7 \(near 'AN b = 2'\): not expected here"):
        compile_sql("a = 1 AN b = 2")
    with pytest.raises(SqlError, match=r"line 2, column 5"):
        compile_sql("a = 1\nAND AND b = 2")


def test_as_long_and_as_deep_as_allowed() -> None:
    assert passes(" OR ".join(["a = 1"] * 3000 + ["a = 2"]), a="2")
    deep = "(" * (MAX_NESTING - 2) + "a = 2" + ")" * (MAX_NESTING - 2)
    assert passes(deep, a="2")
    nested = "a = 2"
    for _ in range(MAX_NESTING // 2 - 2):
        nested = f"a = 1 OR ({nested})"
    assert passes(nested, a="2")
    names = [f"a{n}" for n in range(MAX_PROPERTIES)]
    assert passes(" AND ".join(f"{name} = '{name}'" for name in names), **{name: name for name in names})


def test_messages_of_several_origins_pass_the_expression_of_their_own() -> None:
    program = compile_by_origin({"T": "a > 5", "U": "a < 5 OR b = 'x'"})

    def passed(**properties: str) -> bool:
        return matcher.match_block(program, encode_properties(properties))

    assert passed(RETRY_TOPIC="T", a="6")
    assert not passed(RETRY_TOPIC="T", a="4")
    assert passed(RETRY_TOPIC="U", a="4")
    assert not passed(RETRY_TOPIC="U", a="6")
    assert passed(RETRY_TOPIC="V", a="6")
    assert passed()
    with pytest.raises(SqlError, match="column 4"):
        compile_by_origin({"T": "a > 5", "U": "b >"})


def test_the_parser_is_imported_with_the_first_expression_only() -> None:
    code = (
        "import sys, orbitmq, orbitmq.broker.assembly, orbitmq.store.sql.compiler as c;"
        "assert 'lark' not in sys.modules; c.compile_sql('a = 1'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
