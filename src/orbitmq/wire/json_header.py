"""The JSON header format (type 0): one object with keys in alphabetical order."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET

from orbitmq.runtime.seam import Buffer
from orbitmq.wire.command import Command, Language
from orbitmq.wire.errors import FrameError

# Far more fields than any header has (a send has 14 to 20); refuses a frame of a million tiny fields.
MAX_EXT_FIELDS: Final = 1024

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_LANGUAGE_NAMES: Final = {int(language): language.name for language in Language}
_LANGUAGE_NUMBERS: Final = {language.name: int(language) for language in Language}
_OTHER: Final = int(Language.OTHER)


class _Out(msgspec.Struct, gc=False):
    """The written header: fields in alphabetical order, as fastjson writes them, without nulls."""

    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


class _In(msgspec.Struct):
    """The read header: unknown keys are skipped, and missing ones have Java's defaults."""

    code: _Int32 = 0
    extFields: dict[str, str] | None = None  # noqa: N815
    flag: _Int32 = 0
    language: str | int = "JAVA"
    opaque: _Int32 = 0
    remark: str | None = None
    version: _Int32 = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_In).decode
_decode_any = msgspec.json.Decoder().decode


def encode_json_header(command: Command) -> bytes:
    """The header of ``command`` as JSON.

    Raises:
        FrameError: a text has no UTF-8 form, as it contains half of a surrogate pair.
    """
    remark = command.remark
    try:
        return _encode(
            _Out(
                command.code,
                command.ext or UNSET,
                command.flag,
                _LANGUAGE_NAMES.get(command.language, "OTHER"),
                command.opaque,
                UNSET if remark is None else remark,
                "JSON",
                command.version,
            )
        )
    except UnicodeEncodeError as error:
        raise FrameError(f"header of code {command.code} has text without a UTF-8 form: {error}") from error


def decode_json_header(header: Buffer) -> Command:
    """Read a header; the command without its body.

    Raises:
        FrameError: the header is not a JSON object, a field has the wrong type, or the fields are too many or
            too deep.
    """
    try:
        found = _decode(header)
    except msgspec.ValidationError:
        found = _decode_leniently(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FrameError(f"JSON header of {len(header)} bytes cannot be read: {error}") from error
    except RecursionError as error:
        raise FrameError(f"JSON header of {len(header)} bytes is nested too deep") from error
    ext = found.extFields or {}
    if len(ext) > MAX_EXT_FIELDS:
        raise FrameError(f"header has {len(ext)} extFields, the limit is {MAX_EXT_FIELDS}")
    language = found.language
    return Command(
        found.code,
        ext,
        b"",
        found.opaque,
        found.flag,
        found.remark,
        _LANGUAGE_NUMBERS.get(language, _OTHER) if isinstance(language, str) else language,
        found.version,
    )


def _decode_leniently(header: Buffer) -> _In:
    """Read a header whose extFields contain nulls, numbers or booleans, as some clients write them."""
    try:
        value = _decode_any(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FrameError(f"JSON header of {len(header)} bytes cannot be read: {error}") from error
    except RecursionError as error:
        raise FrameError(f"JSON header of {len(header)} bytes is nested too deep") from error
    if not isinstance(value, dict):
        raise FrameError(f"JSON header is a {type(value).__name__}, not an object")
    ext = value.get("extFields")
    if isinstance(ext, dict):
        value["extFields"] = {name: _text(name, item) for name, item in ext.items() if item is not None}
    filled = {name: item for name, item in value.items() if item is not None}
    try:
        return msgspec.convert(filled, _In, strict=False)
    except msgspec.ValidationError as error:
        raise FrameError(f"JSON header has a field of the wrong type: {error}") from error


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise FrameError(
        f"extFields.{name[:80]} is a {type(value).__name__}; expected text, a number or a boolean"
    )
