"""The HTTP/2 engine against the library h2: conversations of h2 as client, and frames of every kind."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass

import pytest
from h2 import events as h2_events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, TrailersReceived
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.gateway.events import Arrived, Event, Reset, StreamOpened, Writable
from orbitmq.gateway.frames import PREFACE, Http2Error
from orbitmq.gateway.hpack import block_of
from orbitmq.gateway.http2 import (
    CONNECTION_WINDOW_BYTES,
    MAX_FORGIVEN,
    MAX_STREAMS,
    STREAM_WINDOW_BYTES,
    Http2Connection,
)

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "here:1")]
HEAD = block_of([(b":status", b"200"), (b"content-type", b"application/grpc")])
TRAILERS = block_of([(b"grpc-status", b"0")])


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


SETTINGS = frame(4, 0, 0)


@dataclass
class Heard:
    """The result of received bytes in an engine.

    Attributes:
        events: successive data of a stream is in one piece.
        fault: whether the engine ended the connection, in which case there are no events.
    """

    events: list[object]
    fault: bool


def merged(events: list[Event]) -> list[object]:
    out: list[object] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Writable):
            continue
        if isinstance(event, Arrived) and isinstance(last, Arrived) and last.stream == event.stream:
            out[-1] = Arrived(event.stream, last.data + event.data, event.ended)
        else:
            out.append(event)
    return out


def ours(pieces: list[bytes]) -> tuple[Heard, bytes]:
    server, events = Http2Connection(), []
    try:
        for piece in pieces:
            events += server.receive(piece, 0.0)
    except Http2Error:
        return Heard([], True), server.take()
    return Heard(merged(events), False), server.take()


def judged(received: bytes) -> Heard:
    """The result of these bytes in h2."""
    server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    server.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES})
    server.initiate_connection()
    server.increment_flow_control_window(CONNECTION_WINDOW_BYTES - 65535)
    events: list[Event] = []
    try:
        found = server.receive_data(received)
    except (ProtocolError, ValueError, AssertionError, LookupError, TypeError):
        return Heard([], True)
    for event in found:
        if isinstance(event, h2_events.RequestReceived):
            pairs = [
                (bytes(name).decode(), bytes(value).decode("ascii", "backslashreplace"))
                for name, value in event.headers
            ]
            events.append(StreamOpened(event.stream_id or 0, pairs, event.stream_ended is not None))
        elif isinstance(event, h2_events.DataReceived):
            events.append(
                Arrived(event.stream_id or 0, bytes(event.data or b""), event.stream_ended is not None)
            )
        elif isinstance(event, h2_events.TrailersReceived):
            events.append(Arrived(event.stream_id or 0, b"", True))
        elif isinstance(event, h2_events.StreamReset):
            events.append(Reset(event.stream_id))
    return Heard(merged(events), False)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


# -- conversations -------------------------------------------------------------------------------------------

VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "open",
                "open and end",
                "end",
                "data",
                "padded",
                "trailers",
                "reset",
                "ping",
                "window",
                "priority",
            ]
        ),
        st.integers(0, 5),
        st.binary(max_size=300),
        VALUES,
    ),
    max_size=40,
)


def conversation(acts: list[tuple[str, int, bytes, str]]) -> bytes:
    """The bytes of a client of h2 that takes these actions where they are allowed."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    opened = 0
    for act, number, data, value in acts:
        stream = max(1, opened - 2 * number)
        if not opened and act in ("data", "padded", "end", "trailers", "reset", "priority"):
            continue
        try:
            if act.startswith("open"):
                opened = opened + 2 if opened else 1
                more = [("x-value", value), ("x-same", "again")]
                client.send_headers(opened, [*REQUEST, *more], end_stream=act != "open")
            elif act == "data":
                client.send_data(stream, data)
            elif act == "padded":
                client.send_data(stream, data, pad_length=number)
            elif act == "end":
                client.send_data(stream, data, end_stream=True)
            elif act == "trailers":
                client.send_headers(stream, [("x-last", value)], end_stream=True)
            elif act == "reset":
                client.reset_stream(stream)
            elif act == "ping":
                client.ping((data + bytes(8))[:8])
            elif act == "settings":
                client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000 * number})
            elif act == "window":
                client.increment_flow_control_window(number + 1)
            else:
                client.prioritize(stream, weight=16, depends_on=0)
        except (ProtocolError, KeyError):
            continue  # the stream has ended
    return client.data_to_send()


@given(ACTS, st.lists(st.integers(0, 10_000), max_size=10))
def test_a_conversation_is_heard_as_the_library_hears_it(
    acts: list[tuple[str, int, bytes, str]], cuts: list[int]
) -> None:
    data = conversation(acts)
    heard, answer = ours([data])
    assert not heard.fault
    assert heard == judged(data)
    in_pieces, same_answer = ours(cut(data, cuts))
    assert in_pieces == heard
    assert same_answer == answer
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    assert not any(isinstance(event, ConnectionTerminated) for event in client.receive_data(answer))


# -- frames of every kind ------------------------------------------------------------------------------------

BLOCK = block_of([(name.encode(), value.encode()) for name, value in REQUEST])
STREAMS = st.sampled_from([0, 1, 1, 1, 3, 3, 5, 2])
PAYLOADS = (
    st.binary(max_size=20)
    | st.sampled_from(
        [
            BLOCK,
            BLOCK[:5],
            b"\2" + BLOCK + b"\0\0",
            b"\0\0\0\0\x10" + BLOCK,
            b"",
            b"\0\0\0\1",
            b"\0\0\0\0",
            b"12345678",
        ]
    )
    | st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 2, 100, 16384, 65535, 1 << 31])).map(
        lambda pair: struct.pack(">HI", *pair)
    )
)
FRAMES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 20]),
        st.sampled_from([0, 1, 4, 5, 5, 8, 0xC, 0x24, 0x25, 0xFF]),
        STREAMS,
        PAYLOADS,
    ),
    max_size=8,
)


@given(FRAMES, st.lists(st.integers(0, 200), max_size=10))
def test_frames_of_every_kind_are_taken_by_the_library_too_or_refused(
    frames: list[tuple[int, int, int, bytes]], cuts: list[int]
) -> None:
    data = PREFACE + SETTINGS + b"".join(frame(*each) for each in frames)
    heard, answer = ours([data])
    in_pieces, same_answer = ours(cut(data, cuts))
    assert (in_pieces, same_answer) == (heard, answer)
    if heard.fault:
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        assert isinstance(client.receive_data(answer)[-1], ConnectionTerminated)
    elif not any(kind == 7 for kind, _, _, _ in frames):
        # A GOAWAY of the client would end h2's connection.
        assert heard == judged(data)


@given(st.binary(max_size=400))
def test_garbage_behind_the_settings_ends_the_connection_or_nothing(garbage: bytes) -> None:
    ours([PREFACE + SETTINGS + garbage])
    ours([PREFACE, *(SETTINGS[at : at + 1] for at in range(len(SETTINGS))), garbage])


# -- single rules --------------------------------------------------------------------------------------------


def opened(
    *, ended: bool = False, settings: dict[SettingCodes, int] | None = None
) -> tuple[Http2Connection, H2Connection]:
    """A server with stream 1 open, and its client."""
    server, client = Http2Connection(), H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(server.take())
    if settings:
        client.update_settings(settings)
    client.send_headers(1, REQUEST, end_stream=ended)
    server.receive(client.data_to_send(), 0.0)
    return server, client


def refused(server: Http2Connection, data: bytes) -> Http2Error:
    with pytest.raises(Http2Error) as caught:
        server.receive(data, 0.0)
    return caught.value


def with_length(length: bytes) -> bytes:
    named = [(name.encode(), value.encode()) for name, value in REQUEST]
    return block_of([*named, (b"content-length", length)])


@pytest.mark.parametrize("length", [b"0", b"3", b"4", b"04", b"5", b"x", b"-4", b"4, 4"])
@pytest.mark.parametrize(
    ("rest", "size", "ended"),
    [
        (frame(0, 1, 1, b"four"), 4, True),
        (frame(0, 0, 1, b"fo") + frame(0, 9, 1, b"\x05ur" + bytes(5)), 4, True),
        (frame(0, 0, 1, b"four") + frame(1, 5, 1, block_of([(b"x-last", b"too")])), 4, True),
        (frame(0, 0, 1, b"fou") + frame(1, 5, 1, block_of([(b"x-last", b"too")])), 3, True),
        (frame(0, 0, 1, b"four"), 4, False),
        (frame(0, 1, 1), 0, True),
        (b"", 0, False),
    ],
)
def test_data_is_as_long_as_its_content_length(length: bytes, rest: bytes, size: int, ended: bool) -> None:
    heard, _ = ours([PREFACE + SETTINGS + frame(1, 4, 1, with_length(length)) + rest])
    named = int(length) if length.isdigit() else -1
    assert heard.fault == (named < size if not ended else named != size)


def test_a_content_length_that_no_body_has_is_named() -> None:
    error = refused(opened()[0], frame(1, 4, 3, with_length(b"5")) + frame(0, 1, 3, b"four"))
    assert str(error) == "content-length 5, but 4 bytes of data"
    assert refused(opened()[0], frame(1, 5, 3, with_length(b"9" * 16))).code == 1


def test_what_a_client_sends_to_a_stream_that_was_reset_here_is_no_fault() -> None:
    server, client = opened()
    server.reset(1)
    client.send_data(1, b"on its way")
    client.send_headers(1, [("x-last", "too")], end_stream=True)
    client.send_headers(3, [*REQUEST, ("x-last", "too")], end_stream=True)
    events = server.receive(client.data_to_send(), 0.0)
    # Headers of a request still count in the table if no code reads them.
    assert events == [StreamOpened(3, [*REQUEST, ("x-last", "too")], True)]


def test_only_the_last_resets_are_remembered() -> None:
    server, _ = opened()
    server.reset(1)
    for stream in range(3, 2 * MAX_FORGIVEN + 3, 2):
        server.receive(frame(1, 5, stream, BLOCK), 0.0)
        server.reset(stream)
    assert refused(server, frame(0, 0, 1, b"x")).code == 5


def test_windows_are_given_back_as_bytes_come() -> None:
    server, client = opened()
    body = bytes(16000)
    for _ in range(1000):
        client.send_data(1, body)
        server.receive(client.data_to_send(), 0.0)
        client.receive_data(server.take())


def test_streams_beyond_the_limit_end_the_connection() -> None:
    server, _ = opened()
    for number in range(1, 2 * MAX_STREAMS):
        server.receive(frame(1, 4, 2 * number + 1, BLOCK), 0.0)
    assert "too many streams" in refused(server, frame(1, 4, 4 * MAX_STREAMS + 1, BLOCK)).kind


def test_a_client_whose_table_shrinks_is_told_that_none_is_used() -> None:
    server, client = opened(ended=True, settings={SettingCodes.HEADER_TABLE_SIZE: 0})
    server.headers(1, HEAD)
    server.headers(1, TRAILERS, end=True)
    kinds = [type(event) for event in client.receive_data(server.take())]
    assert ResponseReceived in kinds
    assert TrailersReceived in kinds
    assert StreamEnded in kinds


def test_long_trailers_go_out_in_several_frames() -> None:
    server, client = opened(ended=True)
    server.headers(1, HEAD)
    client.max_inbound_frame_size = 16384
    long = block_of([(b"grpc-message", b"m" * 40_000)])
    server.headers(1, long, end=True)
    [trailers] = [
        event for event in client.receive_data(server.take()) if isinstance(event, TrailersReceived)
    ]
    assert trailers.headers == [(b"grpc-message", b"m" * 40_000)]


def test_a_smaller_window_of_the_client_counts_for_open_streams() -> None:
    server, client = opened(ended=True)
    server.headers(1, HEAD)
    assert server.send(1, memoryview(bytes(60_000))) == 60_000
    client.receive_data(server.take())
    client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    server.receive(client.data_to_send(), 0.0)
    assert server.send(1, memoryview(b"x")) == 0
    client.receive_data(server.take())
    client.increment_flow_control_window(70_000)
    client.increment_flow_control_window(60_000, 1)
    server.receive(client.data_to_send(), 0.0)
    assert server.send(1, memoryview(bytes(60_000))) == 1000
    got = sum(
        len(event.data or b"")
        for event in client.receive_data(server.take())
        if isinstance(event, DataReceived)
    )
    assert got == 1000


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(frame(1, 4, 2, BLOCK), 1, id="an even stream"),
        pytest.param(frame(1, 4, 1, b"\x83"), 1, id="trailers without an end"),
        pytest.param(frame(1, 5, 1, b"\x83"), 1, id="a pseudo header in trailers"),
        pytest.param(frame(1, 4, 3, b"\x83\x86"), 1, id="no path"),
        pytest.param(frame(1, 4, 3, BLOCK + b"\x83"), 1, id="a header twice"),
        pytest.param(frame(1, 4, 3, BLOCK + b"\0\x02te\x04gzip"), 1, id="te"),
        pytest.param(frame(1, 4, 3, BLOCK + b"\0\x0aconnection\x05close"), 1, id="connection"),
        pytest.param(frame(1, 0, 3, BLOCK) + frame(6, 0, 0, bytes(8)), 1, id="PING inside headers"),
        pytest.param(frame(1, 0, 3, BLOCK) + frame(9, 4, 1), 1, id="CONTINUATION of another stream"),
        pytest.param(frame(9, 4, 1), 1, id="CONTINUATION of nothing"),
        pytest.param(frame(5, 4, 1, BLOCK), 1, id="PUSH_PROMISE"),
        pytest.param(frame(3, 0, 5, bytes(4)), 1, id="RST_STREAM of no stream"),
        pytest.param(frame(8, 0, 5, b"\0\0\0\1"), 1, id="WINDOW_UPDATE of no stream"),
        pytest.param(frame(8, 0, 0, b"\x7f\xff\xff\xff"), 3, id="window of the connection"),
        pytest.param(frame(8, 0, 1, b"\x7f\xff\xff\xff"), 3, id="window of a stream"),
        pytest.param(frame(4, 0, 0, b"\0\4\x80\0\0\0"), 3, id="first window"),
        pytest.param(frame(4, 0, 0, b"\0\5\0\0\0\1"), 1, id="frame size"),
        pytest.param(frame(4, 0, 0, b"\0\2\0\0\0\2"), 1, id="push"),
        pytest.param(frame(4, 1, 0, b"\0\2\0\0\0\0"), 6, id="settings in an acknowledgement"),
        pytest.param(frame(6, 0, 0, b"1234567"), 6, id="PING of 7 bytes"),
        pytest.param(frame(6, 0, 1, b"12345678"), 1, id="PING of a stream"),
        pytest.param(frame(2, 0, 1, b"1234"), 6, id="PRIORITY of 4 bytes"),
        pytest.param(frame(7, 0, 0, b"1234567"), 6, id="GOAWAY of 7 bytes"),
        pytest.param(frame(0, 1, 1, b"x") + frame(0, 1, 1, b"x"), 5, id="data behind the end"),
        pytest.param(frame(0, 0, 0, b"x"), 1, id="data of stream 0"),
        pytest.param(frame(0, 0, 3, b"x"), 1, id="data of no stream"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_ends_the_connection_with_its_number(data: bytes, code: int) -> None:
    server, _ = opened()
    assert refused(server, data).code == code


def test_the_first_frame_is_settings() -> None:
    assert refused(Http2Connection(), PREFACE + frame(6, 0, 0, bytes(8))).code == 1
