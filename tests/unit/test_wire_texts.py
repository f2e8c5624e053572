"""Properties text, pop texts and recall handles."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.settings.properties_text import amended, parse, render
from orbitmq.wire import pop_info, versions
from orbitmq.wire.errors import BodyError, HeaderError, RemotingError
from orbitmq.wire.pop_info import ExtraInfo
from orbitmq.wire.recall_handle import RecallHandle

# Java's list of releases (MQVersion); the version of a command is an index into it.
_FIRST = "SNAPSHOT ALPHA1 BETA1 BETA2 BETA3 BETA4 BETA5 BETA6_SNAPSHOT BETA6 BETA7_SNAPSHOT BETA7 "
_FIRST += "BETA8_SNAPSHOT BETA8 BETA9_SNAPSHOT BETA9 FINAL"


def _releases() -> list[str]:
    """Versions after 3.0.0: 3.0.1 to 3.0.15, then ten a line; lines 3.3 to 3.9 begin with their .1
    release.
    """
    found = [f"3_0_{patch}" for patch in range(1, 16)]
    for line in range(31, 60):
        first = 1 if 33 <= line <= 39 else 0
        found += [f"{line // 10}_{line % 10}_{patch}" for patch in range(first, 10)]
    return found


VERSION_NAMES = (
    *(f"V3_0_0_{name}" for name in _FIRST.split()),
    *(f"V{release}{state}" for release in _releases() for state in ("_SNAPSHOT", "")),
    "HIGHER_VERSION",
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(st.dictionaries(TEXT, TEXT, max_size=5))
def test_properties_survive(entries: dict[str, str]) -> None:
    assert parse(render(entries)) == entries


def test_what_a_properties_file_may_look_like() -> None:
    text = """
# a comment
  ! another
brokerName = broker-a
brokerId:0
listenPort   10911
path=C:\\\\store
long = one \\
       two
key\\ with\\=signs=v=w
empty
=no key
smile=\\uD83D\\uDE00\\t\\q
"""
    assert parse(text) == {
        "brokerName": "broker-a",
        "brokerId": "0",
        "listenPort": "10911",
        "path": "C:\\store",
        "long": "one two",
        "key with=signs": "v=w",
        "empty": "",
        "": "no key",
        "smile": "😀\tq",
    }
    assert parse("a=1\r\nb=2\ra=3\\") == {"a": "3", "b": "2"}
    assert render({"a b": " c\n"}) == "a\\ b=\\ c\\n\n"


LINES = st.text(st.sampled_from("ab=: \\\n\r#!"), max_size=30)


@given(LINES, st.dictionaries(st.sampled_from(["a", "b", "c"]), TEXT, max_size=3))
def test_amending_changes_what_it_is_asked_to(text: str, changes: dict[str, str]) -> None:
    assert parse(amended(text, changes)) == {**parse(text), **changes}


def test_amending_keeps_comments_and_order() -> None:
    text = "# ours\nname = a\n\nlong = one \\\n  two\nname=b\n! end"
    assert amended(text, {"name": "c"}) == "# ours\nname=c\n\nlong = one \\\n  two\n! end"
    assert amended(text, {"new": "1"}) == text + "\nnew=1\n"
    assert amended("long=one\\", {"new": "1"}) == "long=one\\\n\nnew=1\n"
    assert amended("", {"new": "1"}) == "new=1\n"


def test_a_bad_escape_is_refused() -> None:
    with pytest.raises(BodyError, match="four digits"):
        parse("a=\\u12x4")


@given(st.text(max_size=60))
def test_any_text_is_entries_or_a_body_error(text: str) -> None:
    with suppress(BodyError):
        parse(text)


@given(st.text(alphabet="0123 ,;-a", max_size=40))
def test_rubbish_in_pop_texts_is_a_header_error(text: str) -> None:
    for read in (ExtraInfo.decode, pop_info.decode_start_offsets):
        with suppress(HeaderError):
            read(text)


@given(st.text(max_size=40))
def test_rubbish_as_recall_handle_is_a_header_error(text: str) -> None:
    with suppress(HeaderError):
        RecallHandle.decode(text)


def test_pop_texts() -> None:
    starts = {("0", "1"): 5, ("1", "0"): 7}
    assert pop_info.encode_start_offsets(starts) == "0 1 5;1 0 7"
    assert pop_info.decode_start_offsets("0 1 5;1 0 7") == starts
    offsets = {("0", "1"): [5, 6], ("2", "0"): [7]}
    assert pop_info.encode_message_offsets(offsets) == "0 1 5,6;2 0 7"
    assert pop_info.decode_start_offsets("") == {}
    counts = {("0", pop_info.order_count_key(1, 20)): 3}
    assert pop_info.encode_start_offsets(counts) == "0 qo1%20 3"
    assert ExtraInfo.decode("1 2 3 999 0 b 0").is_orderly
    assert ExtraInfo.decode("1 2 3 999 0 b 0").encode() == "1 2 3 999 0 b 0"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("0 1", "expected 'retry queue offsets'"), ("0 1 x", "has the entry '0 1 x'"), ("0 1 2;0 1 3", "twice")],
)
def test_errors_of_pop_texts(text: str, sentence: str) -> None:
    with pytest.raises(HeaderError, match=sentence):
        pop_info.decode_start_offsets(text)


def test_retry_topics() -> None:
    for retry in ("0", "1", "2"):
        topic = pop_info.retry_topic("T", "g", retry)
        assert pop_info.retry_of(topic) == retry
    with pytest.raises(HeaderError, match="expected 0, 1 or 2"):
        pop_info.retry_topic("T", "g", "3")


def test_recall_handle_errors() -> None:
    for handle in ("", "!", "djIgYQ=="):
        with pytest.raises(HeaderError, match="recallHandle"):
            RecallHandle.decode(handle)


def test_remoting_error_says_its_code() -> None:
    error = RemotingError(17, "no topic")
    assert (error.code, error.remark, str(error)) == (17, "no topic", "code 17: no topic")


def test_version_names() -> None:
    assert len(VERSION_NAMES) == 613
    known = {0: "V3_0_0_SNAPSHOT", 37: "V3_0_11", 63: "V3_1_8", 121: "V3_4_9", 213: "V4_0_0", 273: "V4_3_0"}
    known |= {401: "V4_9_4", 413: "V5_0_0", 435: "V5_1_1", 479: "V5_3_3", 612: "HIGHER_VERSION"}
    for version, name in known.items():
        assert VERSION_NAMES[version] == name
    used = {name: value for name, value in vars(versions).items() if name.startswith("V")}
    assert used
    for name, value in used.items():
        assert VERSION_NAMES[value] == name
