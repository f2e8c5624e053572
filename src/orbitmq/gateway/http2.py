"""HTTP/2, the server's side, without I/O: received bytes become events, commands become bytes to send.

The only file that knows the library behind it, ``h2``. What the library leaves to its user is here: windows
that are given back as bytes come, limits, and floods (:mod:`orbitmq.gateway.frames`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from h2 import events as h2_events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from orbitmq.gateway.frames import FRAME_BYTES, Frames, Http2Error, Kind

# SETTINGS_MAX_CONCURRENT_STREAMS: further calls wait at the client.
MAX_STREAMS: Final = 1000
# Names, values and 32 bytes for each header, as HTTP/2 counts them.
MAX_HEADER_LIST_BYTES: Final = 16 * 1024
# HTTP/2's default.
HEADER_TABLE_BYTES: Final = 4096
# 64 KiB, HTTP/2's default, stalls a body of 4 MiB at each of its 64 KiB.
STREAM_WINDOW_BYTES: Final = 1024 * 1024
CONNECTION_WINDOW_BYTES: Final = 8 * 1024 * 1024
_DEFAULT_WINDOW_BYTES = 65535
# The most bytes of one stream in a row; then other streams have their turn.
MAX_TURN_BYTES: Final = 64 * 1024

NO_ERROR: Final = int(ErrorCodes.NO_ERROR)
CANCEL: Final = int(ErrorCodes.CANCEL)
_ALL_STREAMS = 2**31 - 1

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Opened:
    """A client opened a stream.

    Attributes:
        headers: names in lower case, in their order, as text.
        ended: nothing more comes on it.
    """

    stream: int
    headers: list[tuple[str, str]]
    ended: bool


@dataclass(frozen=True, slots=True)
class Arrived:
    """Data of a stream; may be empty at its end."""

    stream: int
    data: bytes
    ended: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """A stream is over: neither side sends on it any more."""

    stream: int


@dataclass(frozen=True, slots=True)
class Writable:
    """A flow-control window grew: waiting data may go out."""


Event: TypeAlias = Opened | Arrived | Reset | Writable


class _Library(H2Connection):
    """The library's connection, with limits of a server that has many of them."""

    # How closed streams ended: 64 K entries would be 10 MB for each long connection.
    MAX_CLOSED_STREAMS = 1024
    DEFAULT_MAX_HEADER_LIST_SIZE = MAX_HEADER_LIST_BYTES


def _settings(streams: int) -> Settings:
    return Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: streams,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
            SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST_BYTES,
        },
    )


class Http2Connection:
    """The server's side of one connection. After an :class:`Http2Error` :meth:`take` has the last bytes.

    Attributes:
        settled: the client's preface and settings have come.
        leaving: the client said that it opens no more streams; it closes when the open ones are done.
    """

    def __init__(self) -> None:
        config = H2Configuration(
            client_side=False,
            header_encoding=None,
            # Ours are constants and texts that are encoded already.
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._library = library = _Library(config)
        library.local_settings = _settings(MAX_STREAMS)
        library.initiate_connection()
        # Beyond its own limit the library ends the connection; whoever drives this one refuses the call.
        library.local_settings = _settings(2 * MAX_STREAMS)
        library.increment_flow_control_window(CONNECTION_WINDOW_BYTES - _DEFAULT_WINDOW_BYTES)
        self._frames = Frames()
        self._announced = b""
        self.settled = False

    @property
    def leaving(self) -> bool:
        return self._frames.goaway

    # -- bytes in ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """The events in received bytes.

        Args:
            now: seconds of a clock that does not go back, for the floods.

        Raises:
            Http2Error: the client's fault; the connection is of no use any more.
        """
        events: list[Event] = []
        try:
            for event in self._library.receive_data(self._frames.feed(data, now)):
                self._translate(event, now, events)
        except Http2Error as error:
            self._library.close_connection(error.code, str(error).encode())
            raise
        except ProtocolError as error:
            raise _as_ours(error) from error
        except (ValueError, AssertionError, LookupError, TypeError) as error:
            # The library raises other errors too for malformed input; the client is at fault all the same.
            self._library.close_connection(ErrorCodes.PROTOCOL_ERROR)
            kind = f"HTTP/2 that cannot be read ({type(error).__name__})"
            raise Http2Error(kind, str(error)) from error
        return events

    def _translate(self, event: h2_events.Event, now: float, into: list[Event]) -> None:
        if isinstance(event, h2_events.RequestReceived):
            headers = [(_text(name), _text(value)) for name, value in event.headers]
            into.append(Opened(event.stream_id, headers, event.stream_ended is not None))
        elif isinstance(event, h2_events.DataReceived):
            # At once, not when a message is whole: messages of several streams would wait for each other.
            self._library.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            into.append(Arrived(event.stream_id, bytes(event.data), event.stream_ended is not None))
        elif isinstance(event, h2_events.TrailersReceived):
            into.append(Arrived(event.stream_id, b"", True))
        elif isinstance(event, h2_events.StreamReset):
            if not event.remote_reset:
                self._frames.reset_here(now)
            into.append(Reset(event.stream_id))
        elif isinstance(event, h2_events.WindowUpdated):
            into.append(Writable())
        elif isinstance(event, h2_events.RemoteSettingsChanged):
            self.settled = True
            # A client may offer gigabytes for our headers to be kept in.
            encoder = self._library.encoder
            encoder.header_table_size = min(encoder.header_table_size, HEADER_TABLE_BYTES)
            into.append(Writable())

    # -- commands ----------------------------------------------------------------------------------------

    def headers(self, stream: int, headers: Headers, *, end: bool = False) -> None:
        """Answer with headers, or end with trailers. Nothing when the stream is gone."""
        try:
            self._library.send_headers(stream, headers, end_stream=end)
        except ProtocolError:
            return  # closed by what came in the same chunk

    def send(self, stream: int, data: memoryview) -> int:
        """Send what the windows take, at most :data:`MAX_TURN_BYTES`; how many bytes."""
        library, sent = self._library, 0
        try:
            room = min(library.local_flow_control_window(stream), len(data), MAX_TURN_BYTES)
            while sent < room:
                part = data[sent : min(room, sent + library.max_outbound_frame_size)]
                library.send_data(stream, bytes(part))
                self._frames.sent()
                sent += len(part)
        except ProtocolError:
            return sent
        return sent

    def reset(self, stream: int, code: int = CANCEL) -> None:
        """End a stream at once."""
        try:
            self._library.reset_stream(stream, code)
        except ProtocolError:
            return  # closed by what came in the same chunk

    def announce_end(self) -> None:
        """The first of two GOAWAYs: new calls go elsewhere, those under way and those that cross it go on."""
        # The library would end the connection with it.
        self._announced += struct.pack(">IBIII", 8 << 8 | Kind.GOAWAY, 0, 0, _ALL_STREAMS, NO_ERROR)

    def close(self) -> None:
        """The last GOAWAY."""
        self._library.close_connection(ErrorCodes.NO_ERROR)

    def take(self) -> bytes:
        """The bytes to send now."""
        data = self._library.data_to_send()
        if self._announced:
            data, self._announced = data + self._announced, b""
        return data


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("ascii", "backslashreplace")


def _as_ours(error: ProtocolError) -> Http2Error:
    if error.error_code == ErrorCodes.ENHANCE_YOUR_CALM:
        return Http2Error("headers too long", f"more than {MAX_HEADER_LIST_BYTES} bytes of headers")
    return Http2Error(f"HTTP/2 that breaks its rules ({type(error).__name__})", str(error))
