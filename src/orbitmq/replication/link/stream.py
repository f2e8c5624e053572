# cython: annotation_typing=False
"""The stream between two brokers of OrbitMQ, without I/O: all their messages to each other, in order.

It runs on the HA port in place of RocketMQ's protocol if the master's answer to EXCHANGE_BROKER_HA_INFO (906)
has a field with the version of this stream: RocketMQ ignores that field and never sends it. The follower
begins with :data:`MAGIC`, which as a report of RocketMQ's protocol would be negative; then both sides send
frames: one byte kind, one of flags, two of zero, four of size, and that many bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

from orbitmq.replication.link.classic import MAX_DATA_BYTES, check_piece
from orbitmq.replication.link.errors import LinkError

MAGIC = b"\xffOrbitMQ"
# Header fields of the answer to 906.
STREAM_VERSION = 1
_HEAD = Struct(">BBxxI")
_PIECE_HEAD = Struct(">BBxxIq")
# Flag of a piece: no sender waits for its acknowledgement, which may be sent together with a later one.
NO_HURRY = 1
_OFFSET_BYTES = 8
_ACK = Struct(">qq")
_ACK_FRAME = Struct(">BBxxIqq")
# The longest frame other than a piece; such frames are kept until all bytes have arrived.
MAX_FRAME_BYTES = 4 << 20
# The most bytes that may wait to be sent when a frame is added; a slower link is closed.
MAX_WAITING_BYTES = 16 << 20


class FrameKind(IntEnum):
    """The kinds of frames.

    Attributes:
        HELLO: the identity of the sender, and blocks of its log.
        PIECE: bytes of the log; without bytes: a heartbeat.
        ACK: the follower's received and durable end; repeated as a heartbeat.
        STATE, STATE_ACK: changes of tables, and up to which change the receiver has applied them.
        TAKE_OVER, HAND_OVER: which broker does the background work from now on.
        LEASE_ASKED, LEASE_GIVEN: whether the follower leaves that work to its master for a while.
    """

    HELLO = 1
    PIECE = 2
    ACK = 3
    STATE = 4
    STATE_ACK = 5
    TAKE_OVER = 6
    HAND_OVER = 7
    LEASE_ASKED = 8
    LEASE_GIVEN = 9


_KINDS = {kind.value: kind for kind in FrameKind}
_ACK_KIND = FrameKind.ACK.value
_ACK_HEAD = _HEAD.pack(_ACK_KIND, 0, _ACK.size)
_PIECE_KIND = FrameKind.PIECE.value


def frame(kind: FrameKind, payload: bytes) -> bytes:
    """One frame.

    Raises:
        ValueError: the payload is longer than :data:`MAX_FRAME_BYTES`.
    """
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(payload)} bytes, possible are {MAX_FRAME_BYTES}")
    return _HEAD.pack(kind, 0, len(payload)) + payload


def piece_header(offset: int, size_bytes: int, flags: int = 0) -> bytes:
    """The header of ``size_bytes`` of the log from ``offset`` on."""
    return _PIECE_HEAD.pack(_PIECE_KIND, flags, _OFFSET_BYTES + size_bytes, offset)


def ack(received: int, durable: int) -> bytes:
    """A frame with the follower's received and durable end."""
    return _ACK_FRAME.pack(_ACK_KIND, 0, _ACK.size, received, durable)


def read_ack(payload: bytes | memoryview) -> tuple[int, int]:
    """Received and durable end.

    Raises:
        LinkError: the payload is not an acknowledgement.
    """
    if len(payload) != _ACK.size:
        raise LinkError(f"it sends an acknowledgement of {len(payload)} bytes")
    received, durable = _ACK.unpack(payload)
    return received, durable


class StreamReader:
    """Reads frames; the bytes of pieces are passed on as they arrive.

    Attributes:
        expected: the offset that the next piece must have, -1: no piece is expected.
        hurry: whether a sender waits for the acknowledgement of the last piece.
    """

    def __init__(self, file_bytes: int) -> None:
        self.expected = -1
        self.hurry = True
        self._file_bytes = file_bytes
        self._kept = bytearray()
        self._left = 0

    def only_ack(self, data: bytes) -> tuple[int, int] | None:
        """The content of an acknowledgement that arrived alone; ``None``: use :meth:`feed`."""
        if self._left or self._kept or len(data) != _ACK_FRAME.size or not data.startswith(_ACK_HEAD):
            return None
        received, durable = _ACK.unpack_from(data, _HEAD.size)
        return received, durable

    def only_piece(self, data: memoryview) -> tuple[int, memoryview] | None:
        """Offset and bytes if ``data`` is exactly the next piece of the log; ``None``: use :meth:`feed`."""
        if self._left or self._kept or len(data) <= _PIECE_HEAD.size:
            return None
        kind, flags, size, offset = _PIECE_HEAD.unpack_from(data)
        size -= _OFFSET_BYTES
        if kind != _PIECE_KIND or size != len(data) - _PIECE_HEAD.size or offset != self.expected:
            return None
        if offset < 0 or offset // self._file_bytes != (offset + size - 1) // self._file_bytes:
            return None
        self.hurry = not flags & NO_HURRY
        self.expected = offset + size
        return offset, data[_PIECE_HEAD.size :]

    def feed(self, data: memoryview) -> Iterator[tuple[FrameKind, int, memoryview]]:
        """Kind, offset (of pieces) and payload; a piece without bytes is a heartbeat.

        Pieces are parts of ``data``. Attributes that the receiver changes after a frame apply to the next
        one.

        Raises:
            LinkError: an unknown kind, an impossible size, or a piece other than the next one of the log.
        """
        while len(data):
            if self._left:
                piece = data[: self._left]
                data = data[len(piece) :]
                self._left -= len(piece)
                offset, self.expected = self.expected, self.expected + len(piece)
                yield FrameKind.PIECE, offset, piece
                continue
            data = self._keep(data, _HEAD.size)
            if len(self._kept) < _HEAD.size:
                return
            kind, size = self._head()
            # Buffer only the offset of a piece, but all of any other frame.
            wanted = _HEAD.size + (_OFFSET_BYTES if kind is FrameKind.PIECE else size)
            data = self._keep(data, wanted)
            if len(self._kept) < wanted:
                return
            payload = bytes(self._kept[_HEAD.size :])
            self._kept.clear()
            if kind is not FrameKind.PIECE:
                yield kind, -1, memoryview(payload)
            elif self._begin(int.from_bytes(payload, "big", signed=True), size - _OFFSET_BYTES):
                yield kind, self.expected, data[:0]

    def _keep(self, data: memoryview, wanted: int) -> memoryview:
        """Buffer the bytes missing to ``wanted``; returns the rest of ``data``."""
        missing = max(0, wanted - len(self._kept))
        self._kept += data[:missing]
        return data[missing:]

    def _head(self) -> tuple[FrameKind, int]:
        number, flags, size = _HEAD.unpack_from(self._kept)
        kind = _KINDS.get(number)
        if kind is None:
            raise LinkError(f"it sends a frame of kind {number}")
        least, most = 0, MAX_FRAME_BYTES
        if kind is FrameKind.PIECE:
            least, most = _OFFSET_BYTES, _OFFSET_BYTES + MAX_DATA_BYTES
            self.hurry = not flags & NO_HURRY
        if not least <= size <= most:
            raise LinkError(f"it sends a frame {kind.name} of {size} bytes, possible are {least} to {most}")
        return kind, size

    def _begin(self, offset: int, size: int) -> bool:
        """Begin a piece; returns whether it is a heartbeat."""
        if self.expected < 0:
            raise LinkError("it sends a piece of its log before it was asked to")
        check_piece(offset, size, self.expected, self._file_bytes)
        self.expected, self._left = offset, size
        return size == 0
