"""The ROCKETMQ header format (type 1): fixed numbers, then texts with their lengths."""

from __future__ import annotations

import struct

from orbitmq.runtime.seam import Buffer
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.errors import FrameError
from orbitmq.wire.json_header import MAX_EXT_FIELDS

_FIXED = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def fits(code: int) -> bool:
    """Whether ``code`` fits this format's code field of 16 bits. The codes of pop requests do not."""
    return -0x8000 <= code <= 0x7FFF


def encode_binary_header(command: Command) -> bytes:
    """The header of ``command``; code and version keep only their low 16 bits, as in Java.

    Raises:
        FrameError: a name or text is too long or has no UTF-8 form, or a number exceeds 32 bits.
    """
    try:
        remark = command.remark.encode() if command.remark else b""
        parts = [b"", b""]
        size = 0
        for name, value in command.ext.items():
            raw_name, raw_value = name.encode(), value.encode()
            parts += (_INT16.pack(len(raw_name)), raw_name, _INT32.pack(len(raw_value)), raw_value)
            size += 6 + len(raw_name) + len(raw_value)
        parts[0] = _FIXED.pack(
            _low16(command.code),
            command.language,
            _low16(command.version),
            command.opaque,
            command.flag,
            len(remark),
        )
        parts[1] = remark + _INT32.pack(size)
    except (UnicodeEncodeError, struct.error) as error:
        raise FrameError(f"header of code {command.code} cannot be written: {error}") from error
    return b"".join(parts)


def decode_binary_header(header: Buffer) -> Command:
    """Read a header; the command without its body.

    Raises:
        FrameError: a length is negative or points beyond the header, there are too many fields, or a text is
            not UTF-8.
    """
    raw = bytes(header)
    end = len(raw)
    if end < _FIXED.size + 4:
        raise FrameError(
            f"ROCKETMQ header of {end} bytes is shorter than its fixed part of {_FIXED.size + 4}"
        )
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(raw)
    position = _FIXED.size + remark_length
    if remark_length < 0 or position + 4 > end:
        raise FrameError(f"remark length {remark_length} does not fit a ROCKETMQ header of {end} bytes")
    (ext_length,) = _INT32.unpack_from(raw, position)
    if ext_length < 0 or position + 4 + ext_length > end:
        raise FrameError(f"extFields length {ext_length} does not fit a ROCKETMQ header of {end} bytes")
    try:
        remark = raw[_FIXED.size : position].decode() if remark_length else None
        ext = _decode_ext(raw, position + 4, position + 4 + ext_length) if ext_length else {}
    except UnicodeDecodeError as error:
        raise FrameError(f"ROCKETMQ header has text that is not UTF-8: {error}") from error
    return Command(code, ext, b"", opaque, flag, remark, language, version, Serialization.ROCKETMQ)


def _decode_ext(raw: bytes, position: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    read_name_length, read_value_length = _INT16.unpack_from, _INT32.unpack_from
    while position < end:
        if position + 6 > end:
            raise FrameError(f"extFields entry at byte {position} is cut off at the end of the fields, {end}")
        name_end = position + 2 + read_name_length(raw, position)[0]
        if not position + 2 <= name_end <= end - 4:
            raise FrameError(
                f"extFields name length {name_end - position - 2} does not fit at byte {position}"
            )
        value_at = name_end + 4
        value_end = value_at + read_value_length(raw, name_end)[0]
        if not value_at <= value_end <= end:
            raise FrameError(f"extFields value length {value_end - value_at} does not fit at byte {name_end}")
        ext[raw[position + 2 : name_end].decode()] = raw[value_at:value_end].decode()
        position = value_end
        if len(ext) > MAX_EXT_FIELDS:
            raise FrameError(f"header has more than {MAX_EXT_FIELDS} extFields")
    return ext


def _low16(number: int) -> int:
    return ((number + 0x8000) & 0xFFFF) - 0x8000
