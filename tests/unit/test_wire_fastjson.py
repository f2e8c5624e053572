"""fastjson's dialect: Java's output is parsed, and garbage is refused with an error text."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.model import MessageQueue
from orbitmq.wire.errors import BodyError
from orbitmq.wire.fastjson import MAX_DEPTH, dumps, loads

QUEUE = MessageQueue("T", "b", 1)
QUEUE_TEXT = '{"brokerName":"b","queueId":1,"topic":"T"}'

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
PLAIN = (
    TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=12
)


@given(VALUES)
def test_plain_values_are_standard_json(value: object) -> None:
    raw = dumps(value)
    assert loads(raw) == value
    assert json.loads(raw) == value


@given(VALUES, st.integers(-(2**31), 2**31 - 1))
def test_the_dialect_is_read_back(value: object, number: int) -> None:
    raw = dumps({number: value}, java_keys=True)
    assert raw.startswith(b"{%d:" % number)
    assert loads(raw) == {str(number): value}
    assert loads(dumps({number: value})) == {str(number): value}
    (key,) = loads(dumps({QUEUE: value}))
    assert dict(key) == {"brokerName": "b", "queueId": 1, "topic": "T"}


@given(st.lists(TEXT, min_size=1, max_size=5), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_queues_as_keys_are_read_alike_with_and_without_spaces(topics: list[str], numbers: list[int]) -> None:
    """Bodies without spaces and escapes take a shorter way."""
    values = {MessageQueue(topic, "b", at): {"n": n} for topic in topics for at, n in enumerate(numbers)}
    raw = dumps(values).decode()
    found = loads(raw)
    assert found == loads(raw.replace('"}:{"n":', '"} : {"n" : '))
    assert [dict(key) for key in found] == [
        {"brokerName": "b", "queueId": queue.queue_id, "topic": queue.topic} for queue in sorted(values)
    ]
    assert list(found.values()) == [values[queue] for queue in sorted(values)]


def test_a_topic_with_what_separates_entries_is_kept() -> None:
    queues = {MessageQueue("a}:{b", "b", at): {"n": at} for at in range(3)}
    found = loads(dumps(queues))
    assert [dict(key)["topic"] for key in found] == ["a}:{b"] * 3
    assert list(found.values()) == list(queues.values())


@pytest.mark.parametrize("half", ["\\ud800", "\ud800"])
def test_half_a_character_in_a_key_is_refused(half: str) -> None:
    with pytest.raises(BodyError):
        loads(f'{{{{"a":"{half}"}}:{{"b":1}},{{"a":1}}:{{"b":1}}}}')


def test_how_it_is_written() -> None:
    assert dumps({"b": None, "a": {3, 1}, "c": 'ä\x01"\n'}) == '{"a":[1,3],"c":"ä\\u0001\\"\\n"}'.encode()
    assert dumps({10: "x", 9: "y"}, java_keys=True) == b'{9:"y",10:"x"}'
    assert dumps({10: "x", 9: "y"}) == b'{"9":"y","10":"x"}'
    assert dumps({QUEUE: [QUEUE]}).decode() == f"{{{QUEUE_TEXT}:[{QUEUE_TEXT}]}}"
    assert dumps([None, True, 1.0, float("nan"), (), {}]) == b"[null,true,1.0,null,[],{}]"


def test_what_cannot_be_written() -> None:
    for value in (object(), {1.5: 1}, "\ud800", b"bytes"):
        with pytest.raises(BodyError):
            dumps(value)


def test_spaces_and_tabs_of_configuration_files() -> None:
    text = '{\n\t"dataVersion":{},\n\t"offsetTable":{\n\t\t"T@g":{0:11,\t1 : 12}\n\t}\n}\n'
    assert loads(text) == {"dataVersion": {}, "offsetTable": {"T@g": {"0": 11, "1": 12}}}
    assert loads(' {0:[ ], 1:[1 , -2.5e3], 2:true, 3:null, 4:"a\\u00e4"} ') == {
        "0": [],
        "1": [1, -2500.0],
        "2": True,
        "3": None,
        "4": "aä",
    }


@given(st.binary(max_size=60))
def test_rubbish_is_a_body_error(raw: bytes) -> None:
    for data in (raw, b"{0:" + raw, b"{{" + raw):
        with suppress(BodyError):
            loads(data)


@given(st.text(alphabet='{}[]:,"0a1.e-tn ', max_size=40))
def test_almost_json_is_a_body_error(text: str) -> None:
    with suppress(BodyError):
        loads(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{0:1", "expected ','"),
        ("{0:1}x", "expected the end of the text"),
        ("{0;1}", "expected ':'"),
        ('{0:"a', "damaged text"),
        ('{0:"\\ud800"}', "damaged text"),
        ("{0:}", "expected a value"),
        ("{{0:[1]}:2}", "an object key with plain values"),
        ("[" * (MAX_DEPTH + 2) + "0:", "nested deeper than 64 levels"),
        ("[" * 100_000, "nested too deep"),
        ("{0:" * 10_000, "nested deeper than 64 levels"),
        ("{0:" + "1" * 100_000 + "}", "expected ','"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(BodyError, match=sentence):
        loads(text)


def test_bytes_without_utf8() -> None:
    with pytest.raises(BodyError, match="not UTF-8"):
        loads(b'{0:"\xff"}')
