"""A gRPC client for the benchmarks, the same for every server: it measures nothing, and decodes no headers.

It speaks HTTP/2 over a blocking socket, with many calls in flight, and answers the server's frames about the
connection (SETTINGS, PING, windows). The status of a call is not read: a call without a message has failed.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from orbitmq.gateway import schema
from orbitmq.gateway.frames import FRAME_BYTES, HEAD_BYTES, PREFACE, Kind
from orbitmq.gateway.hpack import block_of
from orbitmq.gateway.messages import new, timestamp
from orbitmq.gateway.requests import SERVICE
from orbitmq.gateway.schema import Encoding, MessageType

END_STREAM, ACK, END_HEADERS = 1, 1, 4
WINDOW_BYTES = 1 << 30
_SETTINGS_WINDOW = 4


@dataclass(frozen=True)
class Run:
    """One run of a load: calls or messages per second, server CPU per call or message, latencies of calls in
    us.
    """

    rate: float
    cpu_us: float
    p50_us: float
    p99_us: float


def send_request(topic: str, body_bytes: int) -> bytes:
    """A SendMessage call with one message."""
    system = new(
        schema.SystemProperties,
        message_id="01AABBCCDDEE0000000000000000000001",
        message_type=MessageType.NORMAL,
        body_encoding=Encoding.IDENTITY,
        born_timestamp=timestamp(1_700_000_000_000),
        born_host="h2load",
        queue_id=0,
    )
    named = new(schema.Resource, name=topic)
    message = new(schema.Message, topic=named, system_properties=system, body=b"x" * body_bytes)
    return new(schema.SendMessageRequest, messages=[message]).SerializeToString()


def frame(kind: Kind, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def prefixed(message: bytes) -> bytes:
    """A message with gRPC's prefix."""
    return struct.pack(">BI", 0, len(message)) + message


class Wire:
    """One connection, without limits for the server's data.

    Args:
        client_id: the client id in the calls.
    """

    def __init__(self, port: int, client_id: str, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._blocks: dict[tuple[str, str], bytes] = {}
        self._next = 1
        self._received = b""
        self._unread = 0
        # The data of open streams, and the ended streams.
        self._data: dict[int, bytearray] = {}
        self._ended: deque[int] = deque()
        greeting = struct.pack(">HI", _SETTINGS_WINDOW, WINDOW_BYTES)
        window = frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_BYTES))
        self._out = bytearray(PREFACE + frame(Kind.SETTINGS, 0, 0, greeting) + window)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""
        return self._socket.fileno()

    def begin(self, method: str, message: bytes, *, end: bool = True, client_id: str = "") -> int:
        """Begin a call, whose bytes are sent by :meth:`flush`; returns its stream.

        Args:
            client_id: the id of another client than the connection's.
        """
        who = client_id or self._client_id
        block = self._blocks.get((method, who))
        if block is None:
            block = self._blocks[method, who] = self._block(method, who, limited=end)
        stream, self._next = self._next, self._next + 2
        data = prefixed(message)
        assert len(data) <= FRAME_BYTES
        self._data[stream] = bytearray()
        self._out += frame(Kind.HEADERS, END_HEADERS, stream, block)
        self._out += frame(Kind.DATA, END_STREAM if end else 0, stream, data)
        return stream

    @staticmethod
    def _block(method: str, client_id: str, *, limited: bool) -> bytes:
        headers = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", SERVICE + method),
            (":authority", "127.0.0.1"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *((("grpc-timeout", "60S"),) if limited else ()),
            ("x-mq-client-id", client_id),
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", "5.0.8"),
        )
        return block_of(tuple((name.encode(), value.encode()) for name, value in headers))

    def flush(self) -> None:
        """Send the calls that were begun."""
        if self._out:
            self._socket.sendall(self._out)
            self._out.clear()

    def receive(self) -> None:
        """Read what the socket has; waits for the first bytes."""
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._received = self._received + data if self._received else data
        found, at, end = self._received, 0, len(self._received)
        while end - at >= HEAD_BYTES:
            size = int.from_bytes(found[at : at + 3], "big")
            if end - at - HEAD_BYTES < size:
                break
            kind, flags, stream = struct.unpack_from(">BBI", found, at + 3)
            at += HEAD_BYTES
            self._on(kind, flags, stream, found[at : at + size])
            at += size
        self._received = found[at:]
        if self._unread > WINDOW_BYTES // 4:
            self._out += frame(Kind.WINDOW_UPDATE, 0, 0, struct.pack(">I", self._unread))
            self._unread = 0
        self.flush()

    def _on(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == Kind.DATA:
            self._unread += len(payload)
            self._data[stream] += payload
            if flags & END_STREAM:
                self._ended.append(stream)
        elif kind == Kind.HEADERS:
            if flags & END_STREAM:
                self._ended.append(stream)
        elif kind == Kind.RST_STREAM:
            if stream in self._data:
                self._ended.append(stream)
        elif kind == Kind.SETTINGS and not flags & ACK:
            self._out += frame(Kind.SETTINGS, ACK, 0)
        elif kind == Kind.PING and not flags & ACK:
            self._out += frame(Kind.PING, ACK, 0, payload)
        elif kind == Kind.GOAWAY:
            raise ConnectionError(f"the server sends GOAWAY: {payload[8:]!r}")

    def done(self) -> Iterable[tuple[int, list[bytes]]]:
        """The calls that have ended since the last time: the stream, and the answer's messages."""
        while self._ended:
            stream = self._ended.popleft()
            data = self._data.pop(stream, None)
            if data is not None:
                yield stream, messages(data)

    def first(self, stream: int) -> bytes:
        """Wait for the first message on a stream that stays open."""
        while not (found := messages(self._data[stream])):
            if stream in self._ended:
                raise ConnectionError(f"the server ends stream {stream} without a message")
            self.receive()
        return found[0]

    def ask(self, method: str, message: bytes) -> list[bytes]:
        """Make one call and wait for its end."""
        self.begin(method, message)
        self.flush()
        while True:
            self.receive()
            for _, found in self.done():
                return found


def messages(data: bytes | bytearray) -> list[bytes]:
    """The complete messages in the data of a stream."""
    found: list[bytes] = []
    at = 0
    while len(data) - at >= 5:
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        if end > len(data):
            break
        found.append(bytes(data[at + 5 : end]))
        at = end
    return found
