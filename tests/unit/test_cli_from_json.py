"""Lines of JSON as messages, for ``orbitmq send --jsonl``."""

from __future__ import annotations

import json

import pytest

from orbitmq.cli.failures import UsageError
from orbitmq.cli.from_json import FromJson
from orbitmq.cli.main import main


@pytest.mark.behaviour("CS-11")
def test_body_tag_keys_and_properties_are_those_of_the_line() -> None:
    make = FromJson("orders")
    printed = {
        "topic": "%DLQ%billing",
        "queue_offset": 7,
        "body": "hé",
        "tags": "A",
        "keys": ["k1", "k2"],
        "properties": {"TAGS": "A", "KEYS": "k1 k2", "colour": "red", "DLQ_REASON": "x", "UNIQ_KEY": "0A"},
    }
    message = make(json.dumps(printed).encode())
    assert (message.topic, message.body, message.tags, message.keys) == (
        "orders",
        "hé".encode(),
        "A",
        ["k1", "k2"],
    )
    assert message.properties["colour"] == "red"
    assert make(b'{"body_hex": "00ff"}').body == b"\x00\xff"
    bare = make(b'{"body": "", "tags": "B", "keys": ["k"]}')
    assert (bare.body, bare.tags, bare.keys) == (b"", "B", ["k"])


@pytest.mark.behaviour("CS-11")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2: not JSON"),
        ("", "line 2: not JSON"),
        ("[1]", "line 2: expected an object with body or body_hex"),
        ("{}", "line 2: expected body or body_hex, a string"),
        ('{"body": "a", "body_hex": "00"}', "line 2: expected body or body_hex"),
        ('{"body": 1}', "line 2: expected body or body_hex, a string"),
        ('{"body_hex": "0"}', "line 2: body_hex: "),
        ('{"body": "a", "propertys": {}}', "line 2: unknown field propertys"),
        ('{"body": "a", "properties": {"a": 1}}', "line 2: properties: expected an object of strings"),
        (
            '{"body_error": "zlib", "stored_body_hex": "00"}',
            "line 2: the body of this message is damaged: zlib",
        ),
    ],
)
def test_a_wrong_line_is_named_by_its_number(line: str, sentence: str) -> None:
    make = FromJson("orders")
    make(b'{"body": "a"}')
    with pytest.raises(UsageError, match=sentence):
        make(line.encode())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["text", "--jsonl"], "--jsonl reads '-' (standard input) or --file"),
        (["-", "--jsonl", "--tag", "A"], "--jsonl and --tag: the lines say that, leave out --tag"),
        (["-", "--jsonl", "--delay-level", "3"], "--jsonl and --delay-level"),
    ],
)
def test_options_that_the_lines_decide_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert main(["send", "orders", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.behaviour("CS-10")
def test_a_search_without_anything_to_look_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["message", "find", "orders", "-n", "127.0.0.1:1"]) == 2
    assert "give --key, --tag or --from" in capsys.readouterr().err
    assert main(["message", "find", "orders", "--from", "1h", "--to", "2h", "-n", "127.0.0.1:1"]) == 2
    assert "--from 1h is not before --to 2h" in capsys.readouterr().err
