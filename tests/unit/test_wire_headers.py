"""Typed headers: every class survives encoding and decoding, and errors name the wrong field."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.errors import HeaderError
from orbitmq.wire.headers.base import Header, Int32, Int64, RequestHeader
from orbitmq.wire.headers.offset import GetMaxOffsetRequest
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from orbitmq.wire.headers.send import SendMessageResponse, SendMessageV2Request

ALL = [
    kind
    for name in sorted(vars(headers))
    if isinstance(kind := getattr(headers, name), type) and (name.endswith(("Request", "Response")))
]
BASES = ("RpcRequest", "TopicRequest")
REQUESTS = [kind for kind in ALL if kind.__name__.endswith("Request") and kind.__name__ not in BASES]

ROOT = Path(__file__).resolve().parents[2]

VALUES: dict[object, st.SearchStrategy[object]] = {
    Int32: st.integers(-(2**31), 2**31 - 1),
    Int64: st.integers(-(2**63), 2**63 - 1),
    str: st.text(max_size=20),
    bool: st.booleans(),
}
PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "5",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "0",
}


def type_of(info: msgspec.structs.FieldInfo) -> object:
    return next(t for t in VALUES if info.type == t or t in getattr(info.type, "__args__", ()))


def header_values(kind: type[Header]) -> st.SearchStrategy[Header]:
    arguments = {}
    for info in msgspec.structs.fields(kind):
        value = next(
            s for t, s in VALUES.items() if info.type == t or t in getattr(info.type, "__args__", ())
        )
        arguments[info.name] = value if info.required or info.default is not None else st.none() | value
    return st.builds(kind, **arguments)


def request_name(code: RequestCode) -> str:
    """The name of a request's header class: PULL_MESSAGE has PullMessageRequest."""
    parts = code.name.split("_")
    return "".join(part if part == "V2" else part.capitalize() for part in parts) + "Request"


def test_a_request_is_named_after_its_code() -> None:
    codes = {request_name(code): code for code in RequestCode}
    assert {kind.__name__: kind.code for kind in REQUESTS} == {
        kind.__name__: codes[kind.__name__] for kind in REQUESTS
    }


def test_every_header_is_sent_or_read() -> None:
    """Codes without fields, and codes of parts that OrbitMQ lacks, have no class."""
    sources = (path for room in ("src", "tests") for path in (ROOT / room).rglob("*.py"))
    texts = "".join(path.read_text() for path in sources if path.parent.name != "headers")
    assert {kind.__name__ for kind in ALL} - set(re.findall(r"\w+", texts)) == set()


EDGES: dict[object, list[object]] = {
    Int32: [-(2**31), 2**31 - 1],
    Int64: [-(2**63), 2**63 - 1],
    str: ["", "\x01中"],
    bool: [False, True],
}


def test_every_header_survives_its_fields() -> None:
    for kind in ALL:
        for pick in (0, 1):
            fields = msgspec.structs.fields(kind)
            full = {info.name: EDGES[type_of(info)][pick] for info in fields}
            needed = {info.name: full[info.name] for info in fields if info.required}
            for values in (full, needed):
                header = kind(**values)
                ext = header.to_ext()
                assert all(type(value) is str for value in ext.values())
                assert kind.from_ext({**ext, "unknown": "x"}) == header


@given(st.sampled_from(ALL).flatmap(header_values))
def test_a_header_survives_its_fields(header: Header) -> None:
    assert type(header).from_ext(header.to_ext()) == header


NAMES = st.sampled_from(["a", "b", "topic", "queueId", "offset", "lo", "consumerGroup"])


@given(st.sampled_from(ALL), st.dictionaries(NAMES, st.text(max_size=5)))
def test_rubbish_is_a_header_error(kind: type[Header], ext: dict[str, str]) -> None:
    with suppress(HeaderError):
        kind.from_ext(ext)


def test_errors_name_field_value_and_type() -> None:
    with pytest.raises(
        HeaderError, match="PullMessageRequest: field 'queueId' is 'one'; expected a 32 bit integer"
    ):
        PullMessageRequest.from_ext({**PULL, "queueId": "one"})
    with pytest.raises(HeaderError, match="field 'subVersion' is missing; expected a 64 bit integer"):
        PullMessageRequest.from_ext({name: value for name, value in PULL.items() if name != "subVersion"})
    with pytest.raises(HeaderError, match="field 'maxMsgNums' is '2147483648'; expected a 32 bit integer"):
        PullMessageRequest.from_ext({**PULL, "maxMsgNums": "2147483648"})
    with pytest.raises(HeaderError, match=r"field 'a' \(producer_group\) is missing; expected text"):
        SendMessageV2Request.from_ext({})


def test_what_java_reads_is_read() -> None:
    header = PullMessageRequest.from_ext({**PULL, "queueId": "+3", "queueOffset": "007", "lo": "nonsense"})
    assert (header.queue_id, header.queue_offset, header.lo) == (3, 7, False)
    assert PullMessageRequest.from_ext({**PULL, "lo": "TRUE"}).lo is True
    for refused in ("", " 1", "1_0", "1 ", "0x1", "١"):
        with pytest.raises(HeaderError):
            PullMessageRequest.from_ext({**PULL, "queueId": refused})


def test_defaults_are_those_of_java() -> None:
    assert GetMaxOffsetRequest(topic="t", queue_id=0).committed is True
    assert (
        headers.InvokeBrokerToResetOffsetRequest(topic="t", group="g", timestamp=1, is_force=False).queue_id
        == -1
    )
    assert PullMessageRequest.from_ext(PULL).subscription is None
    assert headers.UnregisterClientRequest(client_id="c").to_ext() == {"clientID": "c"}


def test_commands_and_replies() -> None:
    header = PullMessageRequest.from_ext(PULL)
    command = header.command(opaque=9, serialization=Serialization.ROCKETMQ)
    assert (command.code, command.opaque, command.ext) == (RequestCode.PULL_MESSAGE, 9, PULL)
    answer = PullMessageResponse(suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1)
    reply = answer.reply_to(command, code=19, remark="none", body=b"")
    assert (reply.code, reply.opaque, reply.is_response, reply.remark) == (19, 9, True, "none")
    assert reply.serialization is Serialization.ROCKETMQ
    assert reply.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "1",
        "minOffset": "0",
        "maxOffset": "1",
    }


def test_all_sends_share_their_fields() -> None:
    kinds: list[type[RequestHeader]] = [
        headers.SendBatchMessageRequest,
        headers.SendReplyMessageV2Request,
        SendMessageV2Request,
    ]
    ext = {"a": "pg", "b": "t", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "5", "h": "0"}
    for kind in kinds:
        assert kind.from_ext(ext).command() == Command(kind.code, ext)
    assert SendMessageResponse(msg_id="i", queue_id=1, queue_offset=2).to_ext() == {
        "msgId": "i",
        "queueId": "1",
        "queueOffset": "2",
    }
