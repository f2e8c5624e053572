"""A gRPC client for tests: the library h2 on the client's side, over the network of a runtime."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes

from orbitmq.runtime.seam import Runtime

PATH = "/apache.rocketmq.v2.MessagingService/"


def prefixed(message: bytes, *, packed: bool = False) -> bytes:
    """A message as gRPC frames it."""
    return struct.pack(">BI", packed, len(message)) + message


@dataclass
class Answer:
    """The response on one stream.

    Attributes:
        done: set when the stream has ended, in whatever way.
        reset: the code of RST_STREAM; ``None`` if the stream ended without one.
    """

    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    reset: int | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    taken: int = 0

    @property
    def status(self) -> int | None:
        value = self.headers.get("grpc-status")
        return None if value is None else int(value)

    @property
    def message(self) -> str:
        """The header grpc-message, decoded."""
        raw = self.headers.get("grpc-message", "").encode()
        out = b""
        while raw:
            step = 3 if raw[:1] == b"%" else 1
            out += bytes([int(raw[1:3], 16)]) if step == 3 else raw[:1]
            raw = raw[step:]
        return out.decode()

    def messages(self) -> list[bytes]:
        """The complete messages received so far."""
        found, at = [], 0
        while len(self.body) - at >= 5:
            length = int.from_bytes(self.body[at + 1 : at + 5], "big")
            if len(self.body) - at - 5 < length:
                break
            found.append(self.body[at + 5 : at + 5 + length])
            at += 5 + length
        return found


class GrpcClient(asyncio.Protocol):
    """One connection.

    Args:
        tls: the context of a client that asks for TLS.
        piece: the largest number of bytes of one write; 0 sets no limit.
        reads: whether received data is acknowledged by WINDOW_UPDATE.

    Attributes:
        together: whether the headers of a call wait for its data, so that one write sends both.
        hears: whether received bytes are processed; if false, they are dropped.
        goaways: last stream, code and text of each GOAWAY.
    """

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        piece: int = 0,
        reads: bool = True,
    ) -> None:
        self._runtime = runtime
        self._address = (host, port)
        self._piece = piece
        self._reads = reads
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.together = False
        self.hears = True
        self.answers: dict[int, Answer] = {}
        self.gone = asyncio.Event()
        self.goaways: list[tuple[int, int, bytes]] = []
        self._frames = b""
        self._transport: asyncio.Transport | None = None
        self._window = asyncio.Event()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=host) if tls else None
        self._shaken = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.connect()
        self.h2.initiate_connection()
        self.flush()
        return self

    async def connect(self) -> None:
        """Open the connection without the preface (with TLS: including its handshake)."""
        transport, _ = await self._runtime.network.connect(lambda: self, *self._address)
        self._transport = transport
        if self._tls is not None:
            self._shake()
            await self._shaken.wait()

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await asyncio.sleep(0)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- bytes

    def raw(self, data: bytes) -> None:
        """Send bytes as they are (with TLS: encrypted)."""
        transport = self._transport
        if transport is None or not data:
            return
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        step = self._piece or len(data)
        for at in range(0, len(data), step):
            transport.write(data[at : at + step])

    def flush(self) -> None:
        self.raw(self.h2.data_to_send())

    def _shake(self) -> None:
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            self._shaken.set()
        if self._transport is not None:
            self._transport.write(self._outgoing.read())

    @property
    def alpn(self) -> str | None:
        return None if self._tls is None else self._tls.selected_alpn_protocol()

    def data_received(self, data: bytes) -> None:
        if not self.hears:
            return
        if self._tls is not None:
            self._incoming.write(data)
            if not self._shaken.is_set():
                self._shake()
            data = b""
            while self._shaken.is_set():
                try:
                    piece = self._tls.read(65536)
                except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                    break
                if not piece:
                    break
                data += piece
        self._frames += data
        while len(self._frames) >= 9:
            end = 9 + int.from_bytes(self._frames[:3], "big")
            if len(self._frames) < end:
                break
            frame, self._frames = self._frames[:end], self._frames[end:]
            if frame[3] == 7:
                # After a GOAWAY, h2 would refuse all further frames.
                last, code = struct.unpack_from(">II", frame, 9)
                self.goaways.append((last, code, frame[17:]))
                continue
            for event in self.h2.receive_data(frame):
                self._on(event)
        self.flush()

    def _on(self, event: Event) -> None:
        if isinstance(event, WindowUpdated):
            self._window.set()
            return
        stream = cast(int | None, getattr(event, "stream_id", None))
        answer = self.answers.get(stream) if stream else None
        if answer is None:
            return
        if isinstance(event, ResponseReceived | TrailersReceived):
            answer.headers.update(cast(Any, event.headers))
        elif isinstance(event, DataReceived):
            answer.body += event.data
            if self._reads:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamReset):
            answer.reset = int(event.error_code)
            answer.done.set()
        elif isinstance(event, StreamEnded):
            answer.done.set()
        answer.changed.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.gone.set()
        self._window.set()
        for answer in self.answers.values():
            answer.done.set()
            answer.changed.set()

    # -- calls

    def open(
        self,
        method: str,
        *,
        path: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
        content_type: str = "application/grpc",
        authority: str = "",
        verb: str = "POST",
        end: bool = False,
    ) -> int:
        """Begin a call; returns the number of its stream."""
        stream = self.h2.get_next_available_stream_id()
        host, port = self._address
        self.h2.send_headers(
            stream,
            [
                (":method", verb),
                (":scheme", "http"),
                (":path", path or PATH + method),
                (":authority", authority or f"{host}:{port}"),
                ("te", "trailers"),
                ("content-type", content_type),
                *headers,
            ],
            end_stream=end,
        )
        self.answers[stream] = Answer()
        if not self.together:
            self.flush()
        return stream

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data on a stream, as the windows allow."""
        view = memoryview(data)
        while True:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(view))
            if room or not view:
                last = end and room == len(view)
                self.h2.send_data(stream, bytes(view[:room]), end_stream=last)
                self.flush()
                view = view[room:]
                if not view:
                    return
            else:
                self._window.clear()
                await self._window.wait()
            if self.gone.is_set():
                return

    async def call(
        self,
        method: str,
        *messages: bytes,
        headers: Sequence[tuple[str, str]] = (),
        timeout_s: float = 60.0,
        **more: Any,
    ) -> Answer:
        """Make a call with these messages; returns its complete response."""
        stream = self.open(method, headers=headers, **more)
        answer = self.answers[stream]
        await self.send(stream, b"".join(prefixed(message) for message in messages), end=True)
        await asyncio.wait_for(answer.done.wait(), timeout_s)
        return answer

    async def next(self, stream: int, timeout_s: float = 60.0) -> bytes:
        """The next message on an open stream."""
        answer = self.answers[stream]

        async def wait() -> bytes:
            while len(answer.messages()) <= answer.taken:
                if answer.done.is_set():
                    raise AssertionError(f"the stream ended: {answer}")
                answer.changed.clear()
                await answer.changed.wait()
            answer.taken += 1
            return answer.messages()[answer.taken - 1]

        return await asyncio.wait_for(wait(), timeout_s)

    def settings(self, **values: int) -> None:
        """Send settings, by the names of h2's ``SettingCodes``."""
        self.h2.update_settings({SettingCodes[name]: value for name, value in values.items()})
        self.flush()
