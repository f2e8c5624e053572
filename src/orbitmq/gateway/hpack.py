# cython: annotation_typing=False
"""HPACK, the compression of header lists in HTTP/2 (RFC 7541). Reads all of it; writes no dynamic table.

Typed in ``hpack.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from sys import intern
from typing import TYPE_CHECKING, Final, TypeAlias

from orbitmq.gateway.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2Error

if TYPE_CHECKING:
    from orbitmq.runtime.buffers import Integers, Readable, Writable

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# The longest list of headers: names, values and 32 bytes for each header, as HTTP/2 counts them.
MAX_HEADER_LIST_BYTES: Final = 16 * 1024
# HTTP/2's default size of the dynamic table.
TABLE_BYTES: Final = 4096
HEADER_BYTES: Final = 32
# The dynamic table's first number of places, a power of two. It doubles when they are full.
_PLACES = 16
# The most bytes of a number behind its first byte: 4 times 7 bits.
_MORE_BYTES = 4

# C integers in the compiled module.
_LIST_BYTES = MAX_HEADER_LIST_BYTES
_MOST_BYTES = TABLE_BYTES
_EACH = HEADER_BYTES
_FIXED = 61
_EMIT = 256
_FAIL = 512
_NIBBLES = 16

# The static table (RFC 7541, Appendix A): "name value" in the order of the numbers, from 1 on.
_STATIC_TEXT = """:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate"""

# The length in bits of each byte's Huffman code (RFC 7541, Appendix B); the last one is that of the end mark.
# The codes follow from the lengths: they count up in the order of length, then byte.
# fmt: off
_LENGTHS = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
)
# fmt: on
_END_OF_TEXT = 256


def _static() -> list[tuple[str, str]]:
    pairs = [line.partition(" ") for line in _STATIC_TEXT.split("\n")]
    return [("", ""), *((name, value) for name, _, value in pairs)]


def _tree() -> list[list[int]]:
    """The codes as a tree. A node has two branches: each is -1 (none), a node's number, or -2 - byte."""
    nodes = [[-1, -1]]
    code = bits = 0
    for length, byte in sorted((length, byte) for byte, length in enumerate(_LENGTHS)):
        code <<= length - bits
        bits = length
        node = 0
        for place in range(length - 1, 0, -1):
            branch = code >> place & 1
            if nodes[node][branch] < 0:
                nodes[node][branch] = len(nodes)
                nodes.append([-1, -1])
            node = nodes[node][branch]
        nodes[node][code & 1] = -2 - byte
        code += 1
    return nodes


def _steps() -> tuple[Integers, Integers, Integers]:
    """Three tables: the next node, and the byte whose code ends, by node and next four bits; and by node
    whether a text may end there."""
    nodes = _tree()
    following = array("i", bytes(4 * _NIBBLES * len(nodes)))
    emitted = array("i", bytes(4 * _NIBBLES * len(nodes)))
    for start in range(len(nodes)):
        for nibble in range(_NIBBLES):
            node, what = start, 0
            for place in (3, 2, 1, 0):
                node = nodes[node][nibble >> place & 1]
                if node < -1:
                    what = _FAIL if node == -2 - _END_OF_TEXT else _EMIT | -2 - node
                    node = 0
            following[start * _NIBBLES + nibble] = node
            emitted[start * _NIBBLES + nibble] = what
    # A text may end with fewer than eight bits of padding, all 1: the beginning of the end mark's code.
    ends = array("i", bytes(4 * len(nodes)))
    node = 0
    for _ in range(8):
        ends[node] = 1
        node = nodes[node][1]
    return following, emitted, ends


_STATIC = _static()
_NUMBERS = {pair: number for number, pair in reversed(list(enumerate(_STATIC)))}
_NAME_NUMBERS = {name: number for number, (name, _) in reversed(list(enumerate(_STATIC)))}
_FOLLOWING, _EMITTED, _ENDS = _steps()
# The bytes allowed in a name: printable ASCII without capitals. A colon is allowed only as its first byte.
_NAME_BYTES = bytes(33 <= byte < 127 and not 65 <= byte <= 90 and byte != 58 for byte in range(256))


class HeaderReader:
    """Reads the header blocks of one connection, with the dynamic table that the client fills."""

    def __init__(self) -> None:
        # The dynamic table is a ring: the newest header is at ``newest``, older ones are before it.
        self.places = _PLACES
        self.table: list[tuple[str, str] | None] = [None] * _PLACES
        self.sizes = array("i", bytes(4 * _PLACES))
        self.newest = 0
        self.count = 0
        self.used = 0
        self.limit = _MOST_BYTES
        self.at = 0
        self.text_bytes = 0

    def read(self, block: bytes) -> list[tuple[str, str]]:
        """The headers in a whole block, in their order.

        Raises:
            Http2Error: the headers are malformed, or too many.
        """
        return self.read_part(block, 0, len(block))

    def read_part(self, buf: Readable, pos: int, end: int) -> list[tuple[str, str]]:
        """As :meth:`read`, for a block inside received bytes."""
        headers: list[tuple[str, str]] = []
        left = _LIST_BYTES
        self.at = pos
        while self.at < end:
            first = buf[self.at]
            if first & 0x80:
                number = self._number(buf, end, 0x7F)
                pair = self._known(number)
                size = self._size(number)
            elif first & 0xE0 == 0x20:
                if headers:
                    raise _broken("a size of the table behind a header")
                self._resize(self._number(buf, end, 0x1F))
                continue
            else:
                number = self._number(buf, end, 0x3F if first & 0x40 else 0x0F)
                if number:
                    name = self._known(number)[0]
                else:
                    name = self._name(buf, end)
                value = self._value(buf, end)
                pair = (name, value)
                size = _EACH + len(name) + self.text_bytes
                if first & 0x40:
                    self._add(pair, size)
            left -= size
            if left < 0:
                text = f"more than {MAX_HEADER_LIST_BYTES} bytes of headers"
                raise Http2Error("headers too long", text, ENHANCE_YOUR_CALM)
            headers.append(pair)
        return headers

    # -- the table ---------------------------------------------------------------------------------------

    def _known(self, number: int) -> tuple[str, str]:
        if 0 < number <= _FIXED:
            return _STATIC[number]
        if number == 0 or number - _FIXED > self.count:
            raise _broken(f"header {number} of a table of {_FIXED + self.count}")
        found = self.table[(self.newest - (number - _FIXED - 1)) & (self.places - 1)]
        assert found is not None
        return found

    def _size(self, number: int) -> int:
        if number <= _FIXED:
            name, value = _STATIC[number]
            return _EACH + len(name) + len(value)
        return self.sizes[(self.newest - (number - _FIXED - 1)) & (self.places - 1)]

    def _add(self, pair: tuple[str, str], size: int) -> None:
        """Put a header into the table; a header that is larger than the table empties it."""
        self._shrink(self.limit - size)
        if size <= self.limit:
            if self.count == self.places:
                self._grow()
            self.newest = (self.newest + 1) & (self.places - 1)
            self.table[self.newest] = pair
            self.sizes[self.newest] = size
            self.count += 1
            self.used += size

    def _grow(self) -> None:
        """Double the table's places. Its headers move to the first places, in their order."""
        table = self.table
        sizes = self.sizes
        self.places *= 2
        self.table = [None] * self.places
        self.sizes = array("i", bytes(4 * self.places))
        for i in range(self.count):
            old = (self.newest + 1 + i) & (self.count - 1)
            self.table[i] = table[old]
            self.sizes[i] = sizes[old]
        self.newest = self.count - 1

    def _shrink(self, most: int) -> None:
        while self.count and self.used > most:
            oldest = (self.newest - self.count + 1) & (self.places - 1)
            self.used -= self.sizes[oldest]
            self.table[oldest] = None
            self.count -= 1

    def _resize(self, limit: int) -> None:
        if limit > _MOST_BYTES:
            raise _broken(f"a table of {limit} bytes, at most {TABLE_BYTES} are allowed")
        self.limit = limit
        self._shrink(limit)

    # -- numbers and texts -------------------------------------------------------------------------------

    def _number(self, buf: Readable, end: int, mask: int) -> int:
        """Read the number that begins in the low bits of the next byte, and move behind it."""
        value = buf[self.at] & mask
        self.at += 1
        if value < mask:
            return value
        for place in range(_MORE_BYTES):
            if self.at >= end:
                raise _broken("a number that is cut")
            byte = buf[self.at]
            self.at += 1
            value += (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise _broken("a number that is too long")

    def _text(self, buf: Readable, end: int) -> bytes:
        if self.at >= end:
            raise _broken("a text that is missing")
        packed = buf[self.at] & 0x80
        length = self._number(buf, end, 0x7F)
        start = self.at
        if length > end - start:
            raise _broken("a text that is cut")
        self.at = start + length
        if not packed:
            return bytes(buf[start : start + length])
        # Large enough, because the shortest code has five bits.
        out = bytearray(length * 8 // 5 + 1)
        used = _unpack(buf, start, start + length, out)
        if used < 0:
            raise _broken("a text in Huffman's code that is none")
        return bytes(out[:used])

    def _name(self, buf: Readable, end: int) -> str:
        text = self._text(buf, end)
        if not _is_name(text, len(text)):
            raise Http2Error("HTTP/2 that breaks its rules (name of a header)", f"header {text[:64]!r}")
        # The tables of all connections share the names.
        return intern(text.decode("ascii"))

    def _value(self, buf: Readable, end: int) -> str:
        text = self._text(buf, end)
        self.text_bytes = len(text)
        kind = _value_kind(text, len(text))
        if kind < 0:
            raise Http2Error("HTTP/2 that breaks its rules (value of a header)", f"a header's {text[:64]!r}")
        return text.decode("ascii") if kind else text.decode("ascii", "backslashreplace")


def _unpack(buf: Readable, pos: int, end: int, out: Writable) -> int:
    """Decode Huffman code into ``out``; returns the number of bytes, or -1 when the code is invalid."""
    node = 0
    used = 0
    for i in range(pos, end):
        step = node * _NIBBLES + (buf[i] >> 4)
        what = _EMITTED[step]
        if what:
            if what == _FAIL:
                return -1
            out[used] = what & 0xFF
            used += 1
        step = _FOLLOWING[step] * _NIBBLES + (buf[i] & 0xF)
        what = _EMITTED[step]
        if what:
            if what == _FAIL:
                return -1
            out[used] = what & 0xFF
            used += 1
        node = _FOLLOWING[step]
    return used if _ENDS[node] else -1


def _is_name(text: Readable, length: int) -> bool:
    if length == 0:
        return False
    start = 1 if text[0] == 0x3A else 0
    if length == start:
        return False
    good = True
    for i in range(start, length):
        if not _NAME_BYTES[text[i]]:
            good = False
    return good


def _value_kind(text: Readable, length: int) -> int:
    """1 if the text is ASCII, 0 if it has other bytes, -1 if HTTP does not allow it."""
    if length == 0:
        return 1
    if text[0] == 0x20 or text[0] == 0x09 or text[length - 1] == 0x20 or text[length - 1] == 0x09:
        return -1
    kind = 1
    for i in range(length):
        byte = text[i]
        if byte == 0 or byte == 0x0A or byte == 0x0D:
            return -1
        if byte >= 0x80:
            kind = 0
    return kind


def _broken(text: str) -> Http2Error:
    return Http2Error("HTTP/2 headers that cannot be unpacked", text, COMPRESSION_ERROR)


# -- writing -------------------------------------------------------------------------------------------------


def block_of(headers: Headers) -> bytes:
    """Headers as one block, which serves every connection as it adds nothing to the client's table."""
    return b"".join(_packed(name.decode("ascii"), name, value) for name, value in headers)


def _packed(text: str, name: bytes, value: bytes) -> bytes:
    number = _NUMBERS.get((text, value.decode("latin-1")), 0)
    if number:
        return bytes((0x80 | number,))
    number = _NAME_NUMBERS.get(text, 0)
    head = _counted(number, 0x0F) if number else b"\0" + _counted(len(name), 0x7F) + name
    return head + _counted(len(value), 0x7F) + value


def _counted(number: int, mask: int) -> bytes:
    """A number in HPACK's form whose first byte has only zeros above the mask."""
    if number < mask:
        return bytes((number,))
    out = bytearray((mask,))
    number -= mask
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
