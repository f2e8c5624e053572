"""The printf-like formats of ``orbitmq receive``."""

import pytest

from orbitmq.cli.formats import Format, FormatError, as_json
from orbitmq.message.model import ReceivedMessage


def received(body: bytes = b"hello") -> ReceivedMessage:
    message = ReceivedMessage(
        "flights", body, tags="UA", keys=["N14228", "x"], properties={"UNIQ_KEY": "ID1", "a": "b"}
    )
    message.broker_name = "broker-a"
    message.queue_id = 3
    message.queue_offset = 41
    message.store_timestamp_ms = 1_700_000_000_123
    message.born_timestamp_ms = 1_700_000_000_100
    message.reconsume_times = 0
    return message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s\\n", b"hello\n"),
        ("%t[%p]@%o", b"flights[3]@41"),
        ("%b %S %k %g %i", b"broker-a 5 N14228 x UA ID1"),
        ("%T %d %B %r", b"1700000000123 2023-11-14T22:13:20.123Z 1700000000100 0"),
        ("100%% \\t\\\\", b"100% \t\\"),
        ("%h", b"KEYS=N14228 x,TAGS=UA,UNIQ_KEY=ID1,a=b"),
        ("", b""),
        ("é%s", "éhello".encode()),
    ],
)
def test_a_format_prints_what_it_names(text: str, expected: bytes) -> None:
    assert Format(text).render(received()) == expected


def test_a_body_goes_out_as_it_is() -> None:
    assert Format("%s").render(received(b"\xff\x00")) == b"\xff\x00"


@pytest.mark.parametrize(
    ("text", "place"), [("%z", "%z (character 1)"), ("ab%", "% at the end"), ("\\q", "\\q")]
)
def test_a_wrong_format_names_the_place(text: str, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        Format(text)
    assert place in str(caught.value)


def test_json_gives_text_as_text_and_bytes_as_hex() -> None:
    assert as_json(received())["body"] == "hello"
    shown = as_json(received(b"\xff"))
    assert "body" not in shown
    assert shown["body_hex"] == "ff"
    assert shown["queue_offset"] == 41
    assert shown["message_id"] == "ID1"
