"""HTTP/2 without I/O: the same events wherever the input is cut; floods and garbage end the connection."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded

from orbitmq.gateway.events import Arrived, Event, Reset, StreamOpened, Writable
from orbitmq.gateway.frames import (
    CONTROLS,
    CONTROLS_PER_SECOND,
    ENHANCE_YOUR_CALM,
    FRAME_BYTES,
    MAX_CONTINUATIONS,
    PREFACE,
    RESETS,
    Http2Error,
)
from orbitmq.gateway.hpack import block_of
from orbitmq.gateway.http2 import Http2Connection

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "here:1")]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


SETTINGS = frame(4, 0, 0)
PING = frame(6, 0, 0, b"12345678")


def client() -> H2Connection:
    made = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    made.initiate_connection()
    return made


def conversation() -> bytes:
    """Two calls and a reset, as a client sends them."""
    sender = client()
    sender.send_headers(1, REQUEST)
    sender.send_data(1, b"first", end_stream=True)
    sender.send_headers(3, [*REQUEST, ("x-mq-client-id", "c" * 40)])
    sender.send_data(3, b"")
    sender.send_data(3, b"second")
    sender.ping(b"12345678")
    sender.reset_stream(3)
    return sender.data_to_send()


def shown(events: list[Event]) -> list[object]:
    """The events without those of windows, with the data of a stream in one piece."""
    out: list[object] = []
    for event in events:
        if isinstance(event, Writable):
            continue
        if isinstance(event, Arrived):
            out.append((event.stream, event.data, event.ended))
        else:
            out.append(event)
    return out


def received(pieces: list[bytes]) -> tuple[list[Event], bytes]:
    server = Http2Connection()
    events = [event for piece in pieces for event in server.receive(piece, 0.0)]
    assert server.settled
    return events, server.take()


def test_cuts_at_every_byte_bring_the_same_events_and_answers() -> None:
    data = conversation()
    whole, answer = received([data])
    assert [type(event) for event in whole if not isinstance(event, Writable)] == [
        StreamOpened,
        Arrived,
        StreamOpened,
        Arrived,
        Arrived,
        Reset,
    ]
    opened = next(event for event in whole if isinstance(event, StreamOpened))
    assert (":path", "/x") in opened.headers
    for cut in range(1, len(data)):
        events, said = received([data[:cut], data[cut:]])
        assert shown(events) == shown(whole)
        assert said == answer
    events, said = received([data[at : at + 1] for at in range(len(data))])
    assert shown(events) == shown(whole)
    assert said == answer


def test_an_answer_goes_out_as_the_windows_allow() -> None:
    server, asker = Http2Connection(), client()
    asker.send_headers(1, REQUEST, end_stream=True)
    server.receive(asker.data_to_send(), 0.0)
    asker.receive_data(server.take())
    body = bytes(200_000)
    server.headers(1, block_of([(b":status", b"200")]))
    sent, got, ended = 0, 0, False
    for _ in range(100):
        sent += server.send(1, memoryview(body)[sent:])
        if sent == len(body):
            break
        for event in asker.receive_data(server.take()):
            if isinstance(event, DataReceived):
                got += len(event.data)
                asker.acknowledge_received_data(event.flow_controlled_length, 1)
        server.receive(asker.data_to_send(), 0.0)
    server.headers(1, block_of([(b"grpc-status", b"0")]), end=True)
    for event in asker.receive_data(server.take()):
        got += len(event.data) if isinstance(event, DataReceived) else 0
        ended = ended or isinstance(event, StreamEnded)
    assert (sent, got, ended) == (len(body), len(body), True)


def test_a_client_that_leaves_still_gets_its_answers() -> None:
    server, asker = Http2Connection(), client()
    asker.send_headers(1, REQUEST, end_stream=True)
    goaway = frame(7, 0, 0, struct.pack(">II", 0, 0) + b"bye")
    data = asker.data_to_send() + goaway
    for piece in ([data], [data[at : at + 1] for at in range(len(data))]):
        server = Http2Connection()
        for part in piece:
            server.receive(part, 0.0)
        assert server.leaving
        server.receive(PING, 0.0)
        server.headers(1, block_of([(b":status", b"200")]), end=True)
        judge = client()
        judge.send_headers(1, REQUEST, end_stream=True)
        assert any(isinstance(event, ResponseReceived) for event in judge.receive_data(server.take()))


def test_two_goaways_the_second_with_the_last_call() -> None:
    server, asker = Http2Connection(), client()
    asker.send_headers(1, REQUEST)
    server.receive(asker.data_to_send(), 0.0)
    asker.receive_data(server.take())
    server.announce_end()
    [first] = [
        event for event in client().receive_data(server.take()) if isinstance(event, ConnectionTerminated)
    ]
    assert first.last_stream_id == 2**31 - 1
    assert server.receive(frame(0, 1, 1, b"x"), 0.0) == [Arrived(1, b"x", True)]
    server.close()
    [second] = [
        event for event in client().receive_data(server.take()) if isinstance(event, ConnectionTerminated)
    ]
    assert (second.last_stream_id, int(second.error_code)) == (1, 0)


def receive_all(server: Http2Connection, pieces: Iterable[bytes], now: float = 0.0) -> None:
    for piece in pieces:
        server.receive(piece, now)


def refused(data: bytes, now: float = 0.0) -> tuple[Http2Error, ConnectionTerminated]:
    """The error that these bytes cause after a valid start, and the GOAWAY that the client reads."""
    server = Http2Connection()
    with pytest.raises(Http2Error) as caught:
        receive_all(server, [PREFACE + SETTINGS, data], now)
    farewells = [
        event for event in client().receive_data(server.take()) if isinstance(event, ConnectionTerminated)
    ]
    assert len(farewells) == 1
    return caught.value, farewells[0]


def rapid_resets() -> bytes:
    sender = client()
    sender.data_to_send()
    for number in range(RESETS + 1):
        sender.send_headers(2 * number + 1, REQUEST)
        sender.reset_stream(2 * number + 1)
    return sender.data_to_send()


def continuations() -> bytes:
    return frame(1, 0, 1, b"\x00\x01a\x01b") + frame(9, 0, 1, b"\x00\x01a\x01b") * (MAX_CONTINUATIONS + 1)


def empty_data() -> bytes:
    sender = client()
    sender.data_to_send()
    sender.send_headers(1, REQUEST)
    return sender.data_to_send() + frame(0, 0, 1) * (CONTROLS + 100)


@pytest.mark.behaviour("GW-04")
@pytest.mark.parametrize(
    ("data", "name"),
    [
        pytest.param(PING * (CONTROLS + 1), "PING", id="pings"),
        pytest.param(SETTINGS * (CONTROLS + 1), "SETTINGS", id="settings"),
        pytest.param(frame(2, 0, 1, b"\0\0\0\0\x10") * (CONTROLS + 1), "PRIORITY", id="priorities"),
        pytest.param(frame(99, 0, 0) * (CONTROLS + 1), "unknown", id="unknown"),
        pytest.param(empty_data(), "DATA", id="empty data"),
        pytest.param(continuations(), "CONTINUATION", id="continuations"),
        pytest.param(rapid_resets(), "RST_STREAM", id="rapid reset"),
    ],
)
def test_a_flood_ends_with_enhance_your_calm(data: bytes, name: str) -> None:
    error, farewell = refused(data)
    assert error.kind == f"a flood of {name} frames"
    assert int(farewell.error_code) == ENHANCE_YOUR_CALM


def test_a_list_of_headers_beyond_the_limit_ends_with_enhance_your_calm() -> None:
    sender = client()
    sender.data_to_send()
    sender.send_headers(1, [*REQUEST, *((f"h{number}", "v" * 1000) for number in range(17))])
    error, farewell = refused(sender.data_to_send())
    assert error.kind == "headers too long"
    assert int(farewell.error_code) == ENHANCE_YOUR_CALM


def test_frames_may_come_again_after_a_while_and_with_work() -> None:
    server, asker = Http2Connection(), client()
    server.receive(asker.data_to_send() + PING * (CONTROLS - 1), 0.0)
    server.receive(PING * CONTROLS_PER_SECOND, 1.0)
    for number in range(100):
        asker.send_headers(2 * number + 1, REQUEST)
    calls = asker.data_to_send()
    server.receive(calls + PING * 1000, 1.0)
    with pytest.raises(Http2Error, match="PING"):
        server.receive(PING, 1.0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">I", FRAME_BYTES + 1)[1:] + b"\0\0\0\0\0\1", id="frame too long"),
        pytest.param(struct.pack(">ii", 300, 280) + b'{"code":105,"extFields":{}}', id="remoting"),
        pytest.param(frame(8, 0, 0, b"\0\0\0\0"), id="window of 0"),
        pytest.param(frame(1, 4, 1, b"\xff" * 20), id="headers that are none"),
        pytest.param(frame(0, 0, 1, b"x"), id="data of no stream"),
        pytest.param(frame(4, 0, 0, b"12345"), id="half a setting"),
        pytest.param(frame(0, 8, 1, b"\xff"), id="padding beyond the frame"),
    ],
)
def test_what_is_no_http2_ends_the_connection(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\n", b"\x00\x00"]
)
def test_another_preface_is_refused_at_its_first_wrong_byte(data: bytes) -> None:
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        server = Http2Connection()
        with pytest.raises(Http2Error) as caught:
            receive_all(server, pieces)
        assert caught.value.kind == "no HTTP/2 preface"
