"""The base of all typed bodies: writing them as JSON, and reading them from it."""

from __future__ import annotations

import dataclasses
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Self

from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Buffer
from orbitmq.wire import fastjson
from orbitmq.wire.errors import BodyError

__all__ = [
    "Body",
    "encode_list",
]

# Keys in the metadata of a dataclass field.
_NAME = "wire_name"
_ALSO = "second_wire_name"
_Converter = Callable[[Any], Any]


def named(name: str, default: Any, *, also: str | None = None) -> Any:
    """A field whose wire name is not its attribute in camel case; ``also`` is a second name for reading."""
    return dataclasses.field(default=default, metadata={_NAME: name, _ALSO: also})


def named_set(name: str) -> Any:
    """As :func:`named`, for a field whose default is an empty set."""
    return dataclasses.field(default_factory=set, metadata={_NAME: name})


class Body:
    """A JSON body. Subclasses are dataclasses, whose attributes are the wire names in snake case.

    A field that is ``None`` is not written; an absent or null field gets its default when read.
    """

    __slots__ = ()

    # Pairs of wire name and property that Java writes because its classes have getters for them; never read.
    computed: ClassVar[tuple[tuple[str, str], ...]] = ()

    def encode(self, *, java_keys: bool = False) -> bytes:
        """This body as JSON; ``java_keys`` writes integer keys without quotes, as old peers expect.

        Raises:
            BodyError: an attribute has no JSON form.
        """
        return fastjson.dumps(self, java_keys=java_keys, fields_of=written_fields)

    def to_plain(self) -> dict[str, Any]:
        """This body as nested dicts and lists with its wire names, all of which are new objects."""
        return {
            name: _plain(value)
            for name, attribute in written_fields(type(self)) or ()
            if (value := getattr(self, attribute)) is not None
        }

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read a body, standard JSON or fastjson's dialect; unknown fields are ignored.

        Raises:
            BodyError: the data is not a JSON object, or a field, which the text names, has the wrong type.
        """
        return cls.from_json(fastjson.loads(data))

    @classmethod
    def decode_list(cls, data: Buffer) -> list[Self]:
        """Read a JSON array of this body.

        Raises:
            BodyError: the data is not an array, or an item has the wrong type.
        """
        items = fastjson.loads(data)
        if not isinstance(items, list):
            raise BodyError(f"list of {cls.__name__}: {reprlib.repr(items)}; expected an array")
        return [cls.from_json(item) for item in items]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Read a body from parsed JSON.

        Raises:
            BodyError: the value is not an object, or a field has the wrong type.
        """
        try:
            found: Self = _reader(cls)(value)
        except _MismatchError as error:
            raise BodyError(f"{cls.__name__}{error.path}: {error}") from error
        return found


def encode_list(bodies: Iterable[Body]) -> bytes:
    """Several bodies as one JSON array."""
    return fastjson.dumps(list(bodies), fields_of=written_fields)


def _plain(value: Any) -> Any:
    if isinstance(value, Body):
        return value.to_plain()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return [_plain(item) for item in sorted(value)]
    return str(value) if isinstance(value, StrEnum) else value


class _MismatchError(Exception):
    """A value has the wrong type. Each level that the exception passes adds its part of the path."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"{reprlib.repr(value)}; expected {expected}")
        self.path = ""


def camel(attribute: str) -> str:
    """The wire name of an attribute: ``queue_id`` becomes ``queueId``."""
    head, *rest = attribute.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _wire_names(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((f.metadata.get(_NAME) or camel(f.name), f.name) for f in dataclasses.fields(kind))


def encode_object(value: Mapping[str, object]) -> bytes:
    """A JSON object whose values may be bodies.

    Raises:
        BodyError: as in :meth:`Body.encode`.
    """
    return fastjson.dumps(dict(value), fields_of=written_fields)


def written_fields(kind: type[Any]) -> tuple[tuple[str, str], ...] | None:
    """The wire names and attributes of a body class, in the order of writing; ``None`` for other classes."""
    fields = _written.get(kind)
    if fields is None and issubclass(kind, Body):
        fields = _written[kind] = tuple(sorted(_wire_names(kind) + kind.computed))
    return fields


# Caches by body class: the written fields and the readers.
_written: dict[type[Any], tuple[tuple[str, str], ...]] = {}
_readers: dict[type[Any], _Converter] = {}


def _reader(kind: type[Any]) -> _Converter:
    """The function that makes an instance of ``kind`` from a parsed JSON object."""
    if kind not in _readers:
        _readers[kind] = _make_reader(kind)
    return _readers[kind]


def _make_reader(kind: type[Any]) -> _Converter:
    hints = typing.get_type_hints(kind)
    plan = [(name, attribute, _converter(hints[attribute])) for name, attribute in _wire_names(kind)]
    plan += [
        (f.metadata[_ALSO], f.name, _converter(hints[f.name]))
        for f in dataclasses.fields(kind)
        if f.metadata.get(_ALSO)
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _MismatchError(value, "an object")
        values = {}
        name = ""
        try:
            for name, attribute, convert in plan:
                item = value.get(name)
                if item is not None:
                    values[attribute] = convert(item)
        except _MismatchError as error:
            error.path = f".{name}{error.path}"
            raise
        try:
            return kind(**values)
        except TypeError as error:
            raise _MismatchError(value, f"all of {', '.join(name for name, _, _ in plan)}") from error

    return read


def _converter(hint: Any) -> _Converter:
    """The function that checks and converts one value of a field annotated ``hint``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _converter(next(part for part in arguments if part is not type(None)))
    if origin is list or origin is set:
        return _collection(origin, _converter(arguments[0]))
    if origin is dict:
        return _mapping(_key_converter(arguments[0]), _converter(arguments[1]))
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, Body):
        return _reader(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum(hint)
    raise TypeError(f"bodies cannot have fields of type {hint}")


def _collection(make: type, convert: _Converter) -> _Converter:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _MismatchError(value, "an array")
        items = []
        try:
            for item in value:
                items.append(convert(item))  # noqa: PERF401  # the count is needed for the error's path
        except _MismatchError as error:
            error.path = f"[{len(items)}]{error.path}"
            raise
        return items if make is list else make(items)

    return read


def _mapping(convert_key: _Converter, convert: _Converter) -> _Converter:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _MismatchError(value, "an object")
        found = {}
        key: Any = None
        try:
            for key, item in value.items():
                if item is not None:
                    found[convert_key(key)] = convert(item)
        except _MismatchError as error:
            error.path = f"[{str(key)[:80]}]{error.path}"
            raise
        return found

    return read


def _enum(kind: type[StrEnum]) -> _Converter:
    def read(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise _MismatchError(value, f"one of {', '.join(kind)}") from None

    return read


def _key_converter(hint: Any) -> _Converter:
    if hint is MessageQueue:
        return _queue_key
    return _converter(hint)


_QUEUE_FIELDS = ("brokerName", "queueId", "topic")
_LEAST, _BEYOND = -(2**63), 2**63


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise _MismatchError(value, "text")


def _integer(value: Any) -> int:
    found = value
    if type(value) is int and _LEAST <= value < _BEYOND:
        return value
    if isinstance(value, str) and len(value) <= 20:
        try:
            found = int(value)
        except ValueError:
            found = None
    if isinstance(found, bool) or not isinstance(found, int) or not _LEAST <= found < _BEYOND:
        raise _MismatchError(value, "an integer of 64 bits")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _MismatchError(value, "a number")
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise _MismatchError(value, "true or false")


def _queue(value: Any) -> MessageQueue:
    if not isinstance(value, dict):
        raise _MismatchError(value, "a message queue")
    return MessageQueue(
        _text(value.get("topic", "")), _text(value.get("brokerName", "")), _integer(value.get("queueId", 0))
    )


def _queue_key(value: Any) -> MessageQueue:
    """Read a queue that is a map's key: from fastjson a tuple of pairs, from other peers a JSON text."""
    if isinstance(value, str) and value.startswith("{"):
        return _queue(fastjson.loads(value))
    if isinstance(value, tuple):
        if len(value) == 3:
            # All peers write a queue's fields in this order. Quick, as an answer about all groups has many
            # queues.
            (first, broker), (second, number), (third, topic) = value
            if (first, second, third) == _QUEUE_FIELDS and type(broker) is type(topic) is str:
                return MessageQueue(topic, broker, _integer(number))
        return _queue(dict(value))
    raise _MismatchError(value, "a message queue as key")


def _anything(value: Any) -> Any:
    return value


_PLAIN: dict[Any, _Converter] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _boolean,
    MessageQueue: _queue,
    Any: _anything,
}
