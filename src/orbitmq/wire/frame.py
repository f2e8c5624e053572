"""Encodes and decodes the frames of the remoting protocol, without I/O.

A frame is ``int32 total, int32 (format << 24 | header length), header, body``; ``total`` is the number of
bytes behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from orbitmq.runtime.seam import Buffer
from orbitmq.wire.binary_header import decode_binary_header, encode_binary_header, fits
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.errors import FrameError as FrameError
from orbitmq.wire.json_header import decode_json_header, encode_json_header
from orbitmq.wire.scan import IMPOSSIBLE, border_in

# The longest frame, with its length field. RocketMQ's com.rocketmq.remoting.frameMaxLength is 16 MiB; whether
# that counts the two length words differs by client, so both readings fit.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024 + 8

_WORDS = struct.Struct(">ii")
_WORD = struct.Struct(">i")
_MAX_HEADER_BYTES: Final = 0xFFFFFF


def encode_frame(command: Command) -> bytes:
    """The whole frame of ``command``. Its errors are those of :func:`encode_head`."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_bytes: int) -> bytes:
    """The frame of ``command`` up to its body, which has ``body_bytes`` bytes.

    A code that the ROCKETMQ format would cut to 16 bits gets a JSON header: every peer reads both formats.

    Raises:
        FrameError: a text has no UTF-8 form, the header is too long for its length field, or the frame
            exceeds :data:`MAX_FRAME_BYTES`, for which the peer would close the connection.
    """
    if command.serialization == Serialization.ROCKETMQ and fits(command.code):
        kind, header = 1 << 24, encode_binary_header(command)
    else:
        kind, header = 0, encode_json_header(command)
    if len(header) > _MAX_HEADER_BYTES or _WORDS.size + len(header) + body_bytes > MAX_FRAME_BYTES:
        raise FrameError(
            f"header of {len(header)} and body of {body_bytes} bytes (code {command.code}) do not fit a "
            f"frame of {MAX_FRAME_BYTES} bytes",
            kind="too long for a frame",
        )
    return _WORDS.pack(4 + len(header) + body_bytes, kind | len(header)) + header


def frame_end(buffer: Buffer, start: int, end: int, max_frame_bytes: int = MAX_FRAME_BYTES) -> int:
    """The end of the frame that begins at ``start``, or -1 if the frame goes beyond ``end``.

    Raises:
        FrameError: its length field is impossible or exceeds ``max_frame_bytes``.
    """
    stop = border_in(buffer, start, end, max_frame_bytes)
    if stop == IMPOSSIBLE:
        raise impossible_length(buffer, start, max_frame_bytes)
    return stop


def impossible_length(buffer: Buffer, start: int, max_frame_bytes: int) -> FrameError:
    """The error for a frame at ``start`` whose length field is impossible."""
    (content,) = _WORD.unpack_from(buffer, start)
    text = f"frame of {content} bytes; allowed: 4 to {max_frame_bytes - 4}"
    return FrameError(text, kind="impossible frame length")


def decode_head(buffer: Buffer, start: int, stop: int) -> Command | None:
    """The command of an incomplete frame, without its body; ``None`` while the header is incomplete.

    Raises:
        FrameError: the header cannot be read.
    """
    if stop - start < 8:
        return None
    (word,) = _WORD.unpack_from(buffer, start + 4)
    body_at = start + 8 + (word & 0xFFFFFF)
    if body_at > stop:
        return None
    head = bytearray(buffer[start:body_at])
    _WORD.pack_into(head, 0, body_at - start - 4)
    return decode_frame(head)


def decode_frame(
    buffer: Buffer, start: int = 0, end: int | None = None, *, with_body: bool = True
) -> Command:
    """The command in ``buffer[start:end]``, which must be exactly one whole frame.

    Args:
        with_body: whether to copy the body; else the command has none (see :func:`body_of`).

    Raises:
        FrameError: the bytes are not one whole frame.
    """
    stop = len(buffer) if end is None else end
    if stop - start < 8:
        raise FrameError(f"frame of {stop - start} bytes is shorter than its two length fields (8 bytes)")
    total, word = _WORDS.unpack_from(buffer, start)
    if total != stop - start - 4:
        raise FrameError(f"frame length {total} differs from the {stop - start - 4} bytes that follow it")
    header_length = word & 0xFFFFFF
    body_at = start + 8 + header_length
    if body_at > stop:
        raise FrameError(f"header length {header_length} is beyond the end of a frame of length {total}")
    kind = word >> 24
    header = buffer[start + 8 : body_at]
    if kind == 0:
        command = decode_json_header(header)
    elif kind == 1:
        command = decode_binary_header(header)
    else:
        raise FrameError(f"header format {kind & 0xFF} is neither 0 (JSON) nor 1 (ROCKETMQ)")
    if with_body and body_at < stop:
        command.body = bytes(buffer[body_at:stop])
    return command


def body_of(frame: memoryview) -> memoryview:
    """A view of the body in a whole frame."""
    (word,) = _WORD.unpack_from(frame, 4)
    return frame[8 + (word & 0xFFFFFF) :]


class FrameDecoder:
    """Cuts a stream of bytes into commands.

    Feed received bytes, then take :meth:`commands`. After a :class:`FrameError` the borders of the frames are
    lost, so every later use raises the same error again.

    Args:
        max_frame_bytes: the limit of one frame; a longer one is refused as soon as its length is known.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._error: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._buffer)

    def feed(self, data: Buffer) -> None:
        """Add received bytes."""
        self._buffer += data

    def commands(self) -> Iterator[Command]:
        """The complete commands, in order. The bytes behind them are kept for the next feed."""
        if self._error is not None:
            raise FrameError(self._error)
        buffer = self._buffer
        try:
            while (stop := frame_end(buffer, 0, len(buffer), self._max_frame_bytes)) >= 0:
                frame = bytes(memoryview(buffer)[:stop])
                del buffer[:stop]
                yield decode_frame(frame)
        except FrameError as error:
            self._error = str(error)
            raise
