# cython: annotation_typing=False
"""Scans a frame's header without making an object: the first step of the fast path.

A :class:`HeaderScan` notes where each header field lies in the received bytes. It accepts the flat headers
that clients usually send, in both header formats, and refuses unusual ones (nested values, escapes in keys,
too many fields); the ordinary decoder then reads the frame, or raises its errors.

Typed in ``scan.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Readable, Writable

if not cython.compiled:
    from orbitmq.message.octets import get_i16, get_i32, is_ascii, is_utf8, text_kind

MAX_FIELDS = 40

# The results of a scan.
SCAN_OK = 0
SCAN_UNUSUAL = 1

# The results of frame_border() that are not a position.
UNFINISHED = -1
IMPOSSIBLE = -2
# C integers in the compiled module.
_UNFINISHED = UNFINISHED
_IMPOSSIBLE = IMPOSSIBLE

_MASK = 0xFFFFFFFF


def field_name(name: str) -> int:
    """The hash by which a header field named ``name`` is found."""
    h = 0
    for c in name.encode():
        h = (h * 131 + c) & _MASK
    return h


def frame_border(buf: Readable, pos: int, end: int, max_frame_bytes: int) -> int:
    """The end of the frame that begins at ``pos``. All frames are cut from bytes by this function.

    UNFINISHED if the frame goes beyond ``end``, IMPOSSIBLE if its length field is below 4, or the frame, with
    that field, is longer than ``max_frame_bytes``.
    """
    if end - pos < 4:
        return _UNFINISHED
    total = get_i32(buf, pos)
    if total < 4 or total > max_frame_bytes - 4:
        return _IMPOSSIBLE
    if end - pos - 4 < total:
        return _UNFINISHED
    return pos + 4 + total


def border_in(buffer: Readable, pos: int, end: int, max_frame_bytes: int) -> int:
    """:func:`frame_border` for a Python object.

    Raises:
        ValueError: a position is outside of ``buffer``.
    """
    if pos < 0 or end > len(buffer):
        raise ValueError(f"{pos} to {end} of {len(buffer)} bytes")
    if end - pos < 4:
        return _UNFINISHED
    if cython.compiled:
        return frame_border(cython.address(buffer[0]), pos, end, max_frame_bytes)
    return frame_border(buffer, pos, end, max_frame_bytes)


class HeaderScan:
    """The places of the fields of one header. It is reused for every frame, and copies nothing."""

    def __init__(self) -> None:
        zeros = bytes(8 * MAX_FIELDS)
        self.names = array("q", zeros)
        self.name_starts = array("q", zeros)
        self.name_lengths = array("q", zeros)
        self.starts = array("q", zeros)
        self.lengths = array("q", zeros)
        self.escaped = array("q", zeros)
        self.count = 0
        self.code = 0
        self.flag = 0
        self.opaque = 0
        self.version = 0
        self.binary = 0
        self.body_start = 0

    def scan(self, buf: Readable, pos: int, end: int) -> int:
        """Scan the frame whose header word is at ``pos`` and whose body ends at ``end``."""
        word = get_i32(buf, pos)
        header_length = word & 0xFFFFFF
        kind = (word >> 24) & 0xFF
        header = pos + 4
        if kind > 1 or header + header_length > end:
            return SCAN_UNUSUAL
        self.count = 0
        self.flag = 0
        self.opaque = 0
        self.version = 0
        self.code = -1
        self.binary = kind
        self.body_start = header + header_length
        if kind == 1:
            return self._scan_binary(buf, header, self.body_start)
        return self._scan_json(buf, header, self.body_start)

    def scan_frame(self, frame: Readable) -> list[tuple[bytes, bytes, bool]] | None:
        """Scan a whole frame; (name, value, has escapes) of each field, or ``None`` for an unusual header.

        Raises:
            ValueError: the frame's length differs from its length field.
        """
        if len(frame) < 8 or int.from_bytes(frame[:4], "big") != len(frame) - 4:
            raise ValueError(f"{len(frame)} bytes are not one whole frame")
        if self._scan_view(frame) != SCAN_OK:
            return None
        raw = bytes(frame)
        return [
            (
                raw[self.name_starts[i] : self.name_starts[i] + self.name_lengths[i]],
                raw[self.starts[i] : self.starts[i] + self.lengths[i]],
                self.escaped[i] != 0,
            )
            for i in range(self.count)
        ]

    def _scan_view(self, frame: Readable) -> int:
        if cython.compiled:
            return self.scan(cython.address(frame[0]), 4, len(frame))
        return self.scan(frame, 4, len(frame))

    def _scan_binary(self, buf: Readable, pos: int, end: int) -> int:
        if end - pos < 21:
            return SCAN_UNUSUAL
        self.code = get_i16(buf, pos)
        self.version = get_i16(buf, pos + 3)
        self.opaque = get_i32(buf, pos + 5)
        self.flag = get_i32(buf, pos + 9)
        if get_i32(buf, pos + 13) != 0:
            return SCAN_UNUSUAL
        ext_length = get_i32(buf, pos + 17)
        pos += 21
        if ext_length < 0 or pos + ext_length != end:
            return SCAN_UNUSUAL
        plain = is_ascii(buf, pos, ext_length)
        n = 0
        while pos < end:
            if n >= MAX_FIELDS or end - pos < 6:
                return SCAN_UNUSUAL
            key_length = get_i16(buf, pos)
            pos += 2
            if key_length <= 0 or end - pos < key_length + 4:
                return SCAN_UNUSUAL
            h = 0
            for i in range(pos, pos + key_length):
                h = (h * 131 + buf[i]) & _MASK
            self.name_starts[n] = pos
            self.name_lengths[n] = key_length
            pos += key_length
            value_length = get_i32(buf, pos)
            pos += 4
            if value_length < 0 or value_length > end - pos:
                return SCAN_UNUSUAL
            if not plain and not is_utf8(buf, pos, value_length):
                return SCAN_UNUSUAL
            self.names[n] = h
            self.starts[n] = pos
            self.lengths[n] = value_length
            self.escaped[n] = 0
            n += 1
            pos += value_length
        self.count = n
        return SCAN_OK

    def _scan_json(self, buf: Readable, pos: int, end: int) -> int:
        if end - pos < 2 or buf[pos] != 0x7B or buf[end - 1] != 0x7D:
            return SCAN_UNUSUAL
        kind = text_kind(buf, pos, end - pos)
        if kind & 1 or (kind and not is_utf8(buf, pos, end - pos)):
            return SCAN_UNUSUAL
        pos += 1
        end -= 1
        while pos < end:
            if buf[pos] != 0x22:
                return SCAN_UNUSUAL
            pos += 1
            h = 0
            while pos < end and buf[pos] != 0x22:
                if buf[pos] == 0x5C:
                    return SCAN_UNUSUAL
                h = (h * 131 + buf[pos]) & _MASK
                pos += 1
            if end - pos < 3 or buf[pos + 1] != 0x3A:
                return SCAN_UNUSUAL
            pos += 2
            c = buf[pos]
            if c == 0x7B:
                if h != NAME_EXT_FIELDS or self.count != 0:
                    return SCAN_UNUSUAL
                pos = self._scan_fields(buf, pos + 1, end)
                if pos < 0:
                    return SCAN_UNUSUAL
            elif c == 0x22:
                if h in (NAME_CODE, NAME_OPAQUE, NAME_FLAG, NAME_VERSION, NAME_EXT_FIELDS):
                    return SCAN_UNUSUAL
                pos += 1
                while pos < end and buf[pos] != 0x22:
                    if buf[pos] == 0x5C:
                        return SCAN_UNUSUAL
                    pos += 1
                pos += 1
            else:
                start = pos
                while pos < end and buf[pos] != 0x2C:
                    pos += 1
                if self._note_number(h, buf, start, pos) != SCAN_OK:
                    return SCAN_UNUSUAL
            if pos < end:
                if buf[pos] != 0x2C:
                    return SCAN_UNUSUAL
                pos += 1
                if pos >= end:
                    return SCAN_UNUSUAL
            elif pos > end:
                return SCAN_UNUSUAL
        return SCAN_OK if self.code >= 0 else SCAN_UNUSUAL

    def _note_number(self, h: int, buf: Readable, start: int, end: int) -> int:
        value = 0
        pos = start
        if pos < end and buf[pos] == 0x2D:
            pos += 1
        if pos >= end or end - pos > 10:
            return SCAN_UNUSUAL
        first = pos
        if buf[pos] == 0x30 and end - pos > 1:
            return SCAN_UNUSUAL
        while pos < end:
            digit = buf[pos] - 0x30
            if digit < 0 or digit > 9:
                return SCAN_UNUSUAL
            value = value * 10 + digit
            pos += 1
        if first != start:
            value = -value
        if value > 0x7FFFFFFF or value < -0x80000000:
            return SCAN_UNUSUAL
        if h == NAME_CODE:
            self.code = value
        elif h == NAME_OPAQUE:
            self.opaque = value
        elif h == NAME_FLAG:
            self.flag = value
        elif h == NAME_VERSION:
            self.version = value
        else:
            return SCAN_UNUSUAL
        return SCAN_OK

    def _scan_fields(self, buf: Readable, pos: int, end: int) -> int:
        """Note the members of ``extFields``; returns the position after its closing brace, or -1."""
        n = 0
        if pos < end and buf[pos] == 0x7D:
            return pos + 1
        while pos < end:
            if n >= MAX_FIELDS or buf[pos] != 0x22:
                return -1
            pos += 1
            self.name_starts[n] = pos
            h = 0
            while pos < end and buf[pos] != 0x22:
                if buf[pos] == 0x5C:
                    return -1
                h = (h * 131 + buf[pos]) & _MASK
                pos += 1
            if end - pos < 4 or buf[pos + 1] != 0x3A or buf[pos + 2] != 0x22:
                return -1
            self.name_lengths[n] = pos - self.name_starts[n]
            pos += 3
            start = pos
            escaped = 0
            while pos < end and buf[pos] != 0x22:
                if buf[pos] == 0x5C:
                    escaped = 1
                    pos += 1
                pos += 1
            if end - pos < 2:
                return -1
            self.names[n] = h
            self.starts[n] = start
            self.lengths[n] = pos - start
            self.escaped[n] = escaped
            n += 1
            pos += 1
            if buf[pos] == 0x7D:
                self.count = n
                return pos + 1
            if buf[pos] != 0x2C:
                return -1
            pos += 1
        return -1


def parse_int(buf: Readable, pos: int, length: int) -> int:
    """The decimal number in ``length`` characters at ``pos``; ``INT_BAD`` if they are not a number."""
    value = 0
    end = pos + length
    negative = length > 1 and buf[pos] == 0x2D
    if negative:
        pos += 1
    if pos >= end or end - pos > 18:
        return INT_BAD
    while pos < end:
        digit = buf[pos] - 0x30
        if digit < 0 or digit > 9:
            return INT_BAD
        value = value * 10 + digit
        pos += 1
    return -value if negative else value


def unescape(buf: Readable, pos: int, length: int, out: Writable, at: int, room: int) -> int:
    """Write the JSON string at ``pos`` without its escapes into ``out[at:]``; returns its length, or -1 if it
    does not fit or has an escape other than the common ones below U+0080."""
    end = pos + length
    start = at
    limit = at + room
    while pos < end:
        if at >= limit:
            return -1
        c = buf[pos]
        if c == 0x5C:
            pos += 1
            if pos >= end:
                return -1
            c = buf[pos]
            if c == 0x75:
                if end - pos < 5 or buf[pos + 1] != 0x30 or buf[pos + 2] != 0x30:
                    return -1
                high = _hex_digit(buf[pos + 3])
                low = _hex_digit(buf[pos + 4])
                if high < 0 or high > 7 or low < 0:
                    return -1
                c = high * 16 + low
                pos += 4
            elif c == 0x6E:
                c = 0x0A
            elif c == 0x74:
                c = 0x09
            elif c == 0x72:
                c = 0x0D
            elif c == 0x62:
                c = 0x08
            elif c == 0x66:
                c = 0x0C
            elif c != 0x22 and c != 0x5C and c != 0x2F:
                return -1
        elif c < 0x20:
            return -1
        out[at] = c
        at += 1
        pos += 1
    return at - start


def unescaped(text: bytes, room: int) -> bytes | None:
    """:func:`unescape` for a whole bytes object."""
    out = bytearray(room + 1)
    if cython.compiled:
        length = _unescape_view(text or b"\0", len(text), out, room)
    else:
        length = unescape(text, 0, len(text), out, 0, room)
    return None if length < 0 else bytes(out[:length])


def _unescape_view(text: Readable, length: int, out: Writable, room: int) -> int:
    return unescape(cython.address(text[0]), 0, length, cython.address(out[0]), 0, room)


def parsed_int(text: bytes) -> int | None:
    """:func:`parse_int` for a whole bytes object."""
    if cython.compiled:
        value = _parse_view(text or b"\0", len(text))
    else:
        value = parse_int(text, 0, len(text))
    return None if value == INT_BAD else value


def _parse_view(text: Readable, length: int) -> int:
    return parse_int(cython.address(text[0]), 0, length)


def _hex_digit(c: int) -> int:
    if 0x30 <= c <= 0x39:
        return c - 0x30
    c |= 0x20
    if 0x61 <= c <= 0x66:
        return c - 0x57
    return -1


INT_BAD = -(1 << 62)
NAME_EXT_FIELDS = field_name("extFields")
NAME_CODE = field_name("code")
NAME_OPAQUE = field_name("opaque")
NAME_FLAG = field_name("flag")
NAME_VERSION = field_name("version")
