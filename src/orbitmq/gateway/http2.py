# cython: annotation_typing=False
"""HTTP/2, the server's side, without I/O: received bytes become events, commands become bytes to send.

It has only what a gRPC server needs: no push, no priorities, no dynamic table for the headers that it sends.
A client that breaks the protocol loses its connection.

Typed in ``http2.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import cython

from orbitmq.gateway.events import Acknowledged, Arrived, Event, Reset, StreamOpened, Writable
from orbitmq.gateway.frame_writer import FrameWriter
from orbitmq.gateway.frames import CANCEL, FRAME_BYTES, NO_ERROR, PREFACE, Floods, Http2Error, Kind
from orbitmq.gateway.hpack import MAX_HEADER_LIST_BYTES, TABLE_BYTES, HeaderReader
from orbitmq.gateway.open_stream import MOST_WINDOW, OpenStream
from orbitmq.gateway.refusals import closed, overflow, wrong, wrong_length, wrong_size

if TYPE_CHECKING:
    from orbitmq.gateway.plain_reader import PlainReader
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.gateway.refusals import check_connection, check_headers, check_stream, padding_of
    from orbitmq.message.octets import get_i32

# SETTINGS_MAX_CONCURRENT_STREAMS of this side: further calls wait at the client.
MAX_STREAMS: Final = 1000
# HTTP/2's default window of 64 KiB would stall a body of 4 MiB after every 64 KiB.
STREAM_WINDOW_BYTES: Final = 1024 * 1024
CONNECTION_WINDOW_BYTES: Final = 8 * 1024 * 1024
# The most bytes that one stream sends in a row before other streams have their turn.
MAX_TURN_BYTES: Final = 64 * 1024
# The most streams reset by this side that are remembered: frames that cross a reset are no error.
MAX_FORGIVEN: Final = 1024

_DEFAULT_WINDOW_BYTES = 65535
_ALL_STREAMS = 2**31 - 1
# The most bytes of an error's text in a GOAWAY.
_TEXT_BYTES = 256
_SETTINGS_STREAMS, _SETTINGS_WINDOW, _SETTINGS_FRAME, _SETTINGS_HEADERS = 3, 4, 5, 6

# C integers in the compiled module.
_DATA = int(Kind.DATA)
_HEADERS = int(Kind.HEADERS)
_PRIORITY = int(Kind.PRIORITY)
_RST_STREAM = int(Kind.RST_STREAM)
_SETTINGS = int(Kind.SETTINGS)
_PUSH_PROMISE = int(Kind.PUSH_PROMISE)
_PING = int(Kind.PING)
_GOAWAY = int(Kind.GOAWAY)
_WINDOW_UPDATE = int(Kind.WINDOW_UPDATE)
_CONTINUATION = int(Kind.CONTINUATION)
_HEAD = 9
_END_STREAM = 0x1
_ACK = 0x1
_END_HEADERS = 0x4
_PADDED = 0x8
_PRIORITIZED = 0x20
_FRAME_BYTES = FRAME_BYTES
_TURN_BYTES = MAX_TURN_BYTES
_STREAM_BYTES = STREAM_WINDOW_BYTES
_CONNECTION_BYTES = CONNECTION_WINDOW_BYTES
_MOST_STREAMS = 2 * MAX_STREAMS
_MOST_WINDOW = MOST_WINDOW
_NUMBER = 0x7FFFFFFF

# The first SETTINGS frame of a connection, with the limits of this side.
_LIMITS = b"".join(
    struct.pack(">HI", number, value)
    for number, value in (
        (_SETTINGS_STREAMS, MAX_STREAMS),
        (_SETTINGS_WINDOW, STREAM_WINDOW_BYTES),
        (_SETTINGS_FRAME, FRAME_BYTES),
        (_SETTINGS_HEADERS, MAX_HEADER_LIST_BYTES),
    )
)


class Http2Connection:
    """The server's side of one connection. After an :class:`Http2Error`, :meth:`take` gives the last bytes.

    Attributes:
        settled: whether the client's preface and settings have come.
        leaving: whether the client has sent a GOAWAY: it opens no more streams, and closes after the last.
        plain: takes calls that come whole in one chunk, which then make no event; None takes no such calls.
    """

    def __init__(self) -> None:
        self.plain: PlainReader | None = None
        # Streams whose headers came in this chunk, and whose data may follow in it.
        self._untold: list[int] = []
        self._writer = FrameWriter()
        self._writer.frame(_SETTINGS, 0, 0, _LIMITS)
        self._writer.window(0, CONNECTION_WINDOW_BYTES - _DEFAULT_WINDOW_BYTES)
        self._pending = bytearray()
        # Bytes of the preface received; bytes that the incomplete frame needs; whether its head was judged.
        self._preface = 0
        self._needed = _HEAD
        self._judged = False
        self._floods = Floods()
        self._reader = HeaderReader()
        self._streams: dict[int, OpenStream] = {}
        self._forgiven: dict[int, None] = {}
        self._last = 0
        # The connection's send window, and the bytes received since its receive window was last given back.
        self._window = _DEFAULT_WINDOW_BYTES
        self._come = 0
        # The client's settings: the initial window of a stream, and the size of its dynamic table.
        self._stream_window = _DEFAULT_WINDOW_BYTES
        self._table_bytes = TABLE_BYTES
        # A list of headers that goes on in CONTINUATION frames: its stream (0: none), whether it ends the
        # stream, and its bytes so far.
        self._continued = 0
        self._continued_ends = False
        self._block = bytearray()
        self.settled = False
        self.leaving = False

    # -- bytes in ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """The events in received bytes.

        Args:
            now: seconds of a monotonic clock, for the limits of floods.

        Raises:
            Http2Error: the client broke the protocol, and the connection has to end.
        """
        events: list[Event] = []
        try:
            if self._preface < len(PREFACE):
                data = self._without_preface(data)
            if self._pending:
                self._pending += data
                if len(self._pending) < self._needed:
                    return events
                data = bytes(self._pending)
                self._pending.clear()
            used = self._frames(data, 0, len(data), now, events)
            self._tell_all(events)
            if used < len(data):
                self._pending += data[used:]
        except Http2Error as error:
            self._end(error.code, str(error).encode()[:_TEXT_BYTES])
            raise
        return events

    def _without_preface(self, data: bytes) -> bytes:
        count = min(len(data), len(PREFACE) - self._preface)
        if data[:count] != PREFACE[self._preface : self._preface + count]:
            raise Http2Error("no HTTP/2 preface", "it sends something else than HTTP/2")
        self._preface += count
        return data[count:]

    def _frames(self, buf: Readable, pos: int, end: int, now: float, events: list[Event]) -> int:
        """Read the complete frames; returns the place behind them."""
        while end - pos >= _HEAD:
            length = (get_i32(buf, pos) >> 8) & 0xFFFFFF
            kind = buf[pos + 3]
            flags = buf[pos + 4]
            if not self._judged:
                self._floods.judge(kind, flags, length, now)
                self._judged = True
            if end - pos - _HEAD < length:
                self._needed = _HEAD + length
                return pos
            self._judged = False
            stream = get_i32(buf, pos + 5) & _NUMBER
            pos += _HEAD
            self._one(buf, pos, pos + length, kind, flags, stream, events)
            pos += length
        self._needed = _HEAD
        return pos

    def _one(
        self, buf: Readable, pos: int, end: int, kind: int, flags: int, stream: int, events: list[Event]
    ) -> None:
        """Handle one frame, whose payload is from ``pos`` to ``end``."""
        if not self.settled and not (kind == _SETTINGS and not flags & _ACK):
            raise wrong("no settings first", f"the first frame is of kind {kind}, not SETTINGS")
        if self._continued and (kind != _CONTINUATION or stream != self._continued):
            raise wrong("headers not continued", f"a frame of kind {kind} inside a list of headers")
        if kind == _DATA:
            self._data(buf, pos, end, flags, stream, events)
        elif kind == _HEADERS:
            self._headers(buf, pos, end, flags, stream, events)
        elif kind == _WINDOW_UPDATE:
            self._window_update(buf, pos, end, stream, events)
        elif kind == _PING:
            self._ping(buf, pos, end, flags, stream, events)
        elif kind == _SETTINGS:
            self._settings(buf, pos, end, flags, stream, events)
        elif kind == _RST_STREAM:
            self._rst_stream(pos, end, stream, events)
        elif kind == _CONTINUATION:
            self._continuation(buf, pos, end, flags, events)
        elif kind == _GOAWAY:
            check_connection("GOAWAY", stream)
            if end - pos < 8:
                raise wrong_size("GOAWAY", end - pos)
            # Java's clients send a GOAWAY, and then wait for the answers of their last calls.
            self.leaving = True
        elif kind == _PRIORITY:
            check_stream("PRIORITY", stream)
            if end - pos != 5:
                raise wrong_size("PRIORITY", end - pos)
        elif kind == _PUSH_PROMISE:
            raise wrong("PUSH_PROMISE of a client", "clients push nothing")

    # -- streams -----------------------------------------------------------------------------------------

    def _data(self, buf: Readable, pos: int, end: int, flags: int, stream: int, events: list[Event]) -> None:
        check_stream("DATA", stream)
        size = end - pos
        padding = padding_of(buf, pos, end, flags)
        if flags & _PADDED:
            pos += 1
        # The window is given back at once, not when a message is complete: otherwise messages of several
        # streams would wait for each other.
        self._come += size
        if self._come >= _CONNECTION_BYTES // 2:
            self._writer.window(0, self._come)
            self._come = 0
        found = self._streams.get(stream)
        if found is None:
            if stream not in self._forgiven:
                raise self._no_stream("DATA", stream)
            return
        if found.ended:
            raise closed("DATA", stream)
        found.brings(end - padding - pos, flags & _END_STREAM != 0)
        if found.untold is not None:
            if flags & _END_STREAM and self._is_taken(found, buf, pos, end - padding, stream):
                return
            self._tell(found, stream, events)
        found.come += size
        if flags & _END_STREAM:
            found.ended = True
        elif found.come >= _STREAM_BYTES // 2:
            self._writer.window(stream, found.come)
            found.come = 0
        events.append(Arrived(stream, bytes(buf[pos : end - padding]), found.ended))

    def _is_taken(self, found: OpenStream, buf: Readable, pos: int, end: int, stream: int) -> bool:
        """Whether a call, whose only data is this frame's, is plain and was taken."""
        assert self.plain is not None
        if not self.plain.take(stream, found.kind, found.timeout_ms, buf, pos, end):
            return False
        found.untold = None
        found.ended = True
        return True

    def _tell(self, found: OpenStream, stream: int, events: list[Event]) -> None:
        if found.untold is not None:
            events.append(StreamOpened(stream, found.untold, False))
            found.untold = None

    def _tell_all(self, events: list[Event]) -> None:
        """Make the events of the calls whose data did not come within this chunk."""
        for stream in self._untold:
            found = self._streams.get(stream)
            if found is not None:
                self._tell(found, stream, events)
        self._untold.clear()

    def _headers(
        self, buf: Readable, pos: int, end: int, flags: int, stream: int, events: list[Event]
    ) -> None:
        check_stream("HEADERS", stream)
        padding = padding_of(buf, pos, end, flags)
        if flags & _PADDED:
            pos += 1
        if flags & _PRIORITIZED:
            pos += 5
        end -= padding
        if pos > end:
            raise wrong_size("HEADERS", 0)
        if flags & _END_HEADERS:
            self._listed(self._reader.read_part(buf, pos, end), stream, flags & _END_STREAM != 0, events)
        else:
            self._continued = stream
            self._continued_ends = flags & _END_STREAM != 0
            self._block += buf[pos:end]

    def _continuation(self, buf: Readable, pos: int, end: int, flags: int, events: list[Event]) -> None:
        stream = self._continued
        if not stream:
            raise wrong("CONTINUATION of nothing", "a CONTINUATION frame behind no list of headers")
        self._block += buf[pos:end]
        if flags & _END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._continued = 0
            self._listed(self._reader.read(block), stream, self._continued_ends, events)

    def _listed(self, headers: list[tuple[str, str]], stream: int, ended: bool, events: list[Event]) -> None:
        """Handle a complete list of headers, which opens a stream or is its trailers."""
        if stream > self._last:
            if not stream & 1:
                raise wrong("an even stream", f"stream {stream}: clients open odd ones")
            length = check_headers(headers, False)
            if ended and length > 0:
                raise wrong_length(length, 0)
            if len(self._streams) >= _MOST_STREAMS:
                raise wrong("too many streams", f"more than {_MOST_STREAMS} streams are open")
            self._last = stream
            opened = self._streams[stream] = OpenStream(self._stream_window, ended, length)
            if self.plain is not None and not ended and self.plain.wants(headers):
                opened.untold = headers
                opened.kind = self.plain.kind
                opened.timeout_ms = self.plain.timeout_ms
                self._untold.append(stream)
            else:
                events.append(StreamOpened(stream, headers, ended))
            return
        found = self._streams.get(stream)
        if found is None:
            if stream not in self._forgiven:
                raise self._no_stream("HEADERS", stream)
            return
        if found.ended:
            raise closed("HEADERS", stream)
        if not ended:
            raise wrong("trailers without an end", f"headers in the middle of stream {stream}")
        check_headers(headers, True)
        found.brings(0, True)
        self._tell(found, stream, events)
        found.ended = True
        events.append(Arrived(stream, b"", True))

    def _rst_stream(self, pos: int, end: int, stream: int, events: list[Event]) -> None:
        check_stream("RST_STREAM", stream)
        if end - pos != 4:
            raise wrong_size("RST_STREAM", end - pos)
        found = self._streams.pop(stream, None)
        if found is None and self._is_idle(stream):
            raise self._no_stream("RST_STREAM", stream)
        if found is None or found.untold is None:
            events.append(Reset(stream))

    def _window_update(self, buf: Readable, pos: int, end: int, stream: int, events: list[Event]) -> None:
        if end - pos != 4:
            raise wrong_size("WINDOW_UPDATE", end - pos)
        more = get_i32(buf, pos) & _NUMBER
        if more == 0:
            raise wrong("a window of 0", "a WINDOW_UPDATE of 0 bytes")
        if stream == 0:
            self._window += more
            if self._window > _MOST_WINDOW:
                raise overflow("the connection's window")
        else:
            found = self._streams.get(stream)
            if found is None:
                if self._is_idle(stream):
                    raise self._no_stream("WINDOW_UPDATE", stream)
                return
            if not found.grow(more):
                raise overflow(f"the window of stream {stream}")
        events.append(Writable())

    def _is_idle(self, stream: int) -> bool:
        return stream > self._last or not stream & 1

    def _no_stream(self, name: str, stream: int) -> Http2Error:
        if self._is_idle(stream):
            return wrong("a frame of no stream", f"{name} of stream {stream}, which is not open")
        return closed(name, stream)

    # -- the connection ----------------------------------------------------------------------------------

    def _ping(self, buf: Readable, pos: int, end: int, flags: int, stream: int, events: list[Event]) -> None:
        check_connection("PING", stream)
        if end - pos != 8:
            raise wrong_size("PING", end - pos)
        payload = bytes(buf[pos:end])
        if flags & _ACK:
            events.append(Acknowledged(int.from_bytes(payload, "big")))
        else:
            self._writer.frame(_PING, _ACK, 0, payload)

    def _settings(
        self, buf: Readable, pos: int, end: int, flags: int, stream: int, events: list[Event]
    ) -> None:
        check_connection("SETTINGS", stream)
        if (end - pos) % 6 or (flags & _ACK and end > pos):
            raise wrong_size("SETTINGS", end - pos)
        if flags & _ACK:
            return
        while pos < end:
            self._set(buf[pos] << 8 | buf[pos + 1], get_i32(buf, pos + 2) & 0xFFFFFFFF)
            pos += 6
        self.settled = True
        self._writer.frame(_SETTINGS, _ACK, 0, b"")
        events.append(Writable())

    def _set(self, number: int, value: int) -> None:
        if number == 1:
            # This side uses no dynamic table; but a client that changes the table's size must get a size
            # update (RFC 7541, 4.2).
            if value != self._table_bytes:
                self._writer.tells_table = True
            self._table_bytes = value
        elif number == 2 and value > 1:
            raise wrong("a setting out of its limits", f"ENABLE_PUSH is {value}, limits 0 to 1")
        elif number == _SETTINGS_WINDOW:
            if value > _MOST_WINDOW:
                raise overflow(f"INITIAL_WINDOW_SIZE {value}")
            for each in self._streams.values():
                if not each.grow(value - self._stream_window):
                    raise overflow(f"INITIAL_WINDOW_SIZE {value}")
            self._stream_window = value
        elif number == _SETTINGS_FRAME and not FRAME_BYTES <= value < 1 << 24:
            raise wrong("a setting out of its limits", f"MAX_FRAME_SIZE is {value}")

    # -- commands ----------------------------------------------------------------------------------------

    def headers(self, stream: int, block: bytes, end: bool = False) -> None:
        """Send a block of response headers, or of trailers; nothing if the stream is gone."""
        found = self._streams.get(stream)
        if found is None:
            return
        self._writer.headers(stream, block, end)
        if end and found.ended:
            del self._streams[stream]

    def send(self, stream: int, data: memoryview) -> int:
        """Send what the windows allow, at most :data:`MAX_TURN_BYTES`; returns how many bytes were sent."""
        found = self._streams.get(stream)
        if found is None:
            return 0
        sent = 0
        room = min(found.window, self._window, len(data), _TURN_BYTES)
        while sent < room:
            size = min(room - sent, _FRAME_BYTES)
            self._writer.data(stream, data[sent : sent + size], size)
            self._floods.sent()
            sent += size
        found.window -= sent
        self._window -= sent
        return sent

    def answer(self, stream: int, head: bytes, data: bytes, trailers: bytes) -> bool:
        """Send the whole answer of a stream that the client has ended; False if the windows are too small."""
        found = self._streams.get(stream)
        size = len(data)
        if found is None:
            return True
        if size > _FRAME_BYTES or size > found.window or size > self._window:
            return False
        self._writer.headers(stream, head, False)
        self._writer.data(stream, data, size)
        self._floods.sent()
        self._window -= size
        self._writer.headers(stream, trailers, True)
        del self._streams[stream]
        return True

    def answer_all(
        self, streams: list[int], messages: list[bytes], head: bytes, trailers: bytes
    ) -> list[int]:
        """Answer streams as :meth:`answer` does; returns the indexes of those whose windows are too small."""
        return [
            place
            for place in range(len(streams))
            if not self.answer(streams[place], head, messages[place], trailers)
        ]

    def ping(self, number: int) -> None:
        """Send a PING; its acknowledgement shows that the client has read all that was sent before."""
        self._writer.frame(_PING, 0, 0, struct.pack(">Q", number))

    def reset(self, stream: int, code: int = CANCEL) -> None:
        """End a stream by RST_STREAM."""
        if self._streams.pop(stream, None) is None:
            return  # a frame in the same chunk has closed the stream
        self._forgiven[stream] = None
        if len(self._forgiven) > MAX_FORGIVEN:
            del self._forgiven[next(iter(self._forgiven))]
        self._writer.frame(_RST_STREAM, 0, stream, struct.pack(">I", code))

    def announce_end(self) -> None:
        """Send the first of two GOAWAYs: new calls go elsewhere; calls under way, or crossing it, go on."""
        self._writer.frame(_GOAWAY, 0, 0, struct.pack(">II", _ALL_STREAMS, NO_ERROR))

    def close(self) -> None:
        """Send the last GOAWAY."""
        self._end(NO_ERROR, b"")

    def _end(self, code: int, text: bytes) -> None:
        self._writer.frame(_GOAWAY, 0, 0, struct.pack(">II", self._last, code) + text)

    def take(self) -> bytes:
        """The bytes to send now."""
        return self._writer.take()
