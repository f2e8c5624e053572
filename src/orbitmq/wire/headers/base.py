"""The base of all typed headers: reads them from the header fields of commands, and writes them."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

import msgspec

from orbitmq.wire.command import Command
from orbitmq.wire.errors import HeaderError

__all__ = [
    "Header",
    "RequestHeader",
    "ResponseHeader",
    "RpcRequest",
    "TopicRequest",
]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_EXPECTED: Final[dict[Any, str]] = {
    Int32: "a 32 bit integer",
    Int64: "a 64 bit integer",
    str: "text",
    bool: "true or false",
}
H = TypeVar("H", bound="Header")


class Header(msgspec.Struct, rename="camel"):
    """The fields of a command's ``ext``, with types.

    An attribute is named after the wire name, in snake case; ``None`` means that the field is absent.
    """

    def to_ext(self) -> dict[str, str]:
        """The fields that are not ``None``, by their wire names, with the texts of Java's ``toString``."""
        ext: dict[str, str] = {}
        for name, value in zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=False):
            if value is None:
                continue
            if value.__class__ is str:
                ext[name] = value
            elif value.__class__ is bool:
                ext[name] = "true" if value else "false"
            else:
                ext[name] = str(value)
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Read the fields of this header; other fields are ignored.

        Raises:
            HeaderError: a required field is missing, or a value has the wrong type. The text names the field.
        """
        try:
            return msgspec.convert(ext, cls, strict=False)
        except msgspec.ValidationError:
            return _read_as_java(cls, ext)


class RequestHeader(Header):
    """Header of a request."""

    code: ClassVar[int]

    def command(self, body: bytes = b"", **values: Any) -> Command:
        """A request with this header. ``values`` are further arguments of :class:`Command`."""
        return Command(self.code, self.to_ext(), body, **values)


class RpcRequest(RequestHeader, kw_only=True):
    """Header of a request that may name its namespace and broker (Java's ``RpcRequestHeader``).

    Attributes:
        ns: the namespace.
        nsd: whether names already contain the namespace.
        bname: the target broker, in requests that are forwarded by a proxy or for a static topic.
        oway: whether the sender expects no answer.
    """

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class TopicRequest(RpcRequest, kw_only=True):
    """Header of a request about a topic or a queue (Java's ``TopicRequestHeader``).

    Attributes:
        lo: whether the queue id is a logical id of a static topic.
    """

    lo: bool | None = None


class ResponseHeader(Header):
    """Header of a response."""

    def reply_to(
        self, request: Command, *, code: int = 0, remark: str | None = None, body: bytes = b""
    ) -> Command:
        """The response to ``request`` with this header."""
        return request.reply(code, remark, self.to_ext(), body)


def _read_as_java(header: type[H], ext: Mapping[str, str]) -> H:
    """Read fields that msgspec refused: in Java's lenient spellings, or with the error that names the
    field."""
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(header):
        text = ext.get(info.encode_name)
        if text is not None:
            values[info.name] = _parse(header, info, text)
        elif info.required:
            raise HeaderError(
                f"{header.__name__}: field {_name(info)} is missing; expected {_EXPECTED[_kind(info)]}"
            )
    return header(**values)


def _parse(header: type[Header], info: msgspec.structs.FieldInfo, text: str) -> str | int | bool:
    kind = _kind(info)
    if kind is str:
        return text
    if kind is bool:
        return text.lower() == "true"  # as in Java, every other word is false
    limit = 2**31 if kind is Int32 else 2**63
    if _INTEGER.fullmatch(text) and -limit <= int(text) < limit:
        return int(text)
    raise HeaderError(f"{header.__name__}: field {_name(info)} is {text[:80]!r}; expected {_EXPECTED[kind]}")


def _name(info: msgspec.structs.FieldInfo) -> str:
    """The wire name of a field, with the attribute's name if the wire name is a single letter."""
    return f"'{info.encode_name}'" if len(info.encode_name) > 1 else f"'{info.encode_name}' ({info.name})"


def _kind(info: msgspec.structs.FieldInfo) -> Any:
    """The type of a field without ``None``: one of the keys of ``_EXPECTED``."""
    return next(kind for kind in _EXPECTED if info.type == kind or kind in typing.get_args(info.type))
