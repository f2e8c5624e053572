"""Reads and writes JSON in the dialect of Java's fastjson.

The dialect differs from the standard in two ways: integer keys of a map have no quotes (``{0:"a"}``), and a
map whose keys are message queues has objects as keys (``{{"brokerName":..}:5}``). Fields are sorted by name,
and nulls are left out.
"""

from __future__ import annotations

import json.decoder
import json.encoder
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from orbitmq.message.model import MessageQueue
from orbitmq.runtime.seam import Buffer
from orbitmq.wire.errors import BodyError

# The deepest accepted nesting; RocketMQ's bodies are at most six levels deep.
MAX_DEPTH: Final = 64
MAX_NUMBER_CHARS: Final = 64

# The standard library's functions in C; typeshed lacks the first one.
_scan_text: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]
_scan_standard: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_quote = json.encoder.encode_basestring
_decode_standard = msgspec.json.Decoder().decode
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
# An object of plain texts and integers without escapes, such as a message queue, which is read in C.
_TEXT: Final = r'"[^"\\\x00-\x1f\ud800-\udfff]*"'
_PLAIN: Final = rf"{_TEXT}:(?:{_TEXT}|-?[1-9][0-9]{{0,17}}|0)"
_FLAT: Final = rf"\{{{_PLAIN}(?:,{_PLAIN})*\}}"
_FLAT_OBJECT = re.compile(_FLAT)
# Entries of a map whose keys and values are such objects.
_FLAT_ENTRIES = re.compile(rf"{_FLAT}:{_FLAT}(?:,{_FLAT}:{_FLAT})*")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}

# Returns the pairs of key and attribute of a class, in the order of writing; None if it is not a body.
FieldsOf = Callable[[type], tuple[tuple[str, str], ...] | None]


def dumps(value: object, *, java_keys: bool = False, fields_of: FieldsOf | None = None) -> bytes:
    """``value`` as JSON without spaces, with sorted keys, and without entries that are ``None``.

    Args:
        value: a text, number, boolean or message queue, or a list, tuple, set (written sorted) or dict of
            them; keys may be texts, integers or message queues.
        java_keys: write integer keys without quotes, as Java does, instead of in standard form. Queue keys
            have no standard form and are always objects.
        fields_of: gives the fields of other objects.

    Raises:
        BodyError: a value has no JSON form, or a text no UTF-8 form.
    """
    parts: list[str] = []
    _Writer(parts.append, java_keys, fields_of).write(value)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise BodyError(f"a text has no UTF-8 form: {error}") from error


class _Writer:
    __slots__ = ("_add", "_fields_of", "_java_keys")

    def __init__(self, add: Callable[[str], None], java_keys: bool, fields_of: FieldsOf | None) -> None:
        self._add = add
        self._java_keys = java_keys
        self._fields_of = fields_of

    def write(self, value: object) -> None:
        if isinstance(value, str):
            self._add(_quote(value))
        elif value is None or isinstance(value, bool):
            self._add("null" if value is None else "true" if value else "false")
        elif isinstance(value, int):
            self._add(str(int(value)))
        elif isinstance(value, float):
            self._add(repr(value) if math.isfinite(value) else "null")
        elif isinstance(value, MessageQueue):
            self._add(_queue(value))
        elif isinstance(value, dict):
            self._write_map(value)
        elif isinstance(value, list | tuple):
            self._write_items(value)
        elif isinstance(value, set | frozenset):
            self._write_items(sorted(value))
        else:
            self._write_object(value)

    def _write_items(self, items: list[Any] | tuple[Any, ...]) -> None:
        separator = "["
        for item in items:
            self._add(separator)
            self.write(item)
            separator = ","
        self._add("]" if separator == "," else "[]")

    def _write_map(self, entries: dict[Any, Any]) -> None:
        separator = "{"
        for key in sorted(entries):
            value = entries[key]
            if value is None:
                continue
            self._add(f"{separator}{self._key(key)}:")
            self.write(value)
            separator = ","
        self._add("}" if separator == "," else "{}")

    def _key(self, key: object) -> str:
        if isinstance(key, str):
            return _quote(key)
        if isinstance(key, int):
            return str(int(key)) if self._java_keys else f'"{int(key)}"'
        if isinstance(key, MessageQueue):
            return _queue(key)
        raise BodyError(f"a {type(key).__name__} cannot be a key of a JSON map")

    def _write_object(self, value: object) -> None:
        fields = self._fields_of(type(value)) if self._fields_of else None
        if fields is None:
            raise BodyError(f"a {type(value).__name__} has no JSON form")
        separator = "{"
        for name, attribute in fields:
            item = getattr(value, attribute)
            if item is None:
                continue
            self._add(f'{separator}"{name}":')
            self.write(item)
            separator = ","
        self._add("}" if separator == "," else "{}")


def _queue(queue: MessageQueue) -> str:
    topic, broker_name = _quote(queue.topic), _quote(queue.broker_name)
    return f'{{"brokerName":{broker_name},"queueId":{int(queue.queue_id)},"topic":{topic}}}'


def loads(data: Buffer | str) -> Any:
    """Read JSON, standard or in fastjson's dialect.

    Integer keys become texts, quoted or not. An object that is a key becomes the tuple of its
    ``(name, value)`` pairs, which ``dict`` turns back into the object.

    Raises:
        BodyError: the data is neither of the two, nested deeper than :data:`MAX_DEPTH`, or not UTF-8.
    """
    try:
        return _decode_standard(data)
    except RecursionError as error:
        raise BodyError(f"JSON of {len(data)} bytes is nested too deep; the limit is {MAX_DEPTH}") from error
    except (msgspec.DecodeError, UnicodeError):
        pass
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"JSON of {len(data)} bytes is not UTF-8: {error}") from error
    reader = _Reader(text)
    value = reader.value(0)
    reader.end()
    return value


class Walk:
    """Reads one long JSON text piece by piece, for texts that take too long to read at once.

    Args:
        text: standard JSON, or fastjson's dialect.
    """

    def __init__(self, text: str) -> None:
        self._reader = _Reader(text)

    def members(self) -> Iterator[str]:
        """The names in the object that begins here; the caller takes each value before the next name.

        Raises:
            BodyError: no object begins here, or it is malformed.
        """
        reader = self._reader
        reader.take("{")
        if reader.peek() == "}":
            reader.skip()
            return
        while True:
            name = reader.key(0)
            reader.take(":")
            yield str(name)
            if reader.peek() == "}":
                reader.skip()
                return
            reader.take(",")

    def value(self) -> Any:
        """The value that begins here.

        Raises:
            BodyError: the value is malformed.
        """
        return self._reader.value(1)

    def quick_value(self) -> Any:
        """As :meth:`value`, but read in C if the value is standard JSON; its texts may have no UTF-8 form."""
        return self._reader.quick_value()


class _Reader:
    """Reads fastjson's dialect: texts that the standard reader refused."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def skip(self) -> None:
        """Skip one character."""
        self._at += 1

    def quick_value(self) -> Any:
        """The value that begins here, read in C if it is standard JSON."""
        self.peek()
        try:
            value, self._at = _scan_standard(self._text, self._at)
        except (StopIteration, ValueError, RecursionError):
            return self.value(1)
        return value

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise BodyError(f"JSON is nested deeper than {MAX_DEPTH} levels at character {self._at}")
        first = self.peek()
        if first == "{":
            return self._flat() or self._object(depth)
        if first == "[":
            return self._array(depth)
        if first == '"':
            return self._string()
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        return self._number()

    def _flat(self) -> dict[str, Any] | None:
        """The object that begins here; ``None`` if it is not flat."""
        found = _FLAT_OBJECT.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        flat: dict[str, Any] = _decode_standard(found[0])
        return flat

    def end(self) -> None:
        if self.peek():
            raise self._error("the end of the text")

    def _object(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        self._at += 1
        if self.peek() == "}":
            self._at += 1
            return found
        entries = _FLAT_ENTRIES.match(self._text, self._at)
        if entries is not None and (flat := _flat_entries(entries[0])) is not None:
            found = flat
            self._at = entries.end()
            if self.peek() == "}":
                self._at += 1
                return found
            self.take(",")
        while True:
            key = self.key(depth)
            self.take(":")
            found[key] = self.value(depth + 1)
            if self.peek() == "}":
                self._at += 1
                return found
            self.take(",")

    def key(self, depth: int) -> object:
        first = self.peek()
        if first == '"':
            return self._string()
        if first == "{":
            flat = self._flat()
            if flat is not None:
                return tuple(flat.items())
            pairs = self.value(depth + 1).items()
            if any(isinstance(item, dict | list) for pair in pairs for item in pair):
                raise self._error("an object key with plain values")
            return tuple(pairs)
        return str(self._number())

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        if self.peek() == "]":
            self._at += 1
            return found
        while True:
            found.append(self.value(depth + 1))
            if self.peek() == "]":
                self._at += 1
                return found
            self.take(",")

    def _string(self) -> str:
        try:
            value, self._at = _scan_text(self._text, self._at + 1, False)
            value.encode()  # refuses half of a surrogate pair, with which no table could be written later
        except (json.decoder.JSONDecodeError, UnicodeEncodeError) as error:
            raise BodyError(f"JSON has a damaged text at character {self._at}: {error}") from error
        return value

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._at, self._at + MAX_NUMBER_CHARS)
        if found is None:
            raise self._error("a value")
        self._at = found.end()
        return float(found[0]) if found[1] or found[2] else int(found[0])

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        found = _SPACE.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return self._text[self._at : self._at + 1]

    def take(self, expected: str) -> None:
        if self.peek() != expected:
            raise self._error(repr(expected))
        self._at += 1

    def _error(self, expected: str) -> BodyError:
        found = self._text[self._at : self._at + 20]
        return BodyError(f"JSON has {found!r} at character {self._at}; expected {expected}")


def _flat_entries(text: str) -> dict[Any, Any] | None:
    """The entries of a map, read as one array in C; ``None`` if a text in them contains the separator."""
    objects = _decode_standard("[" + text.replace("}:{", "},{") + "]")
    if len(objects) != 2 * text.count("}:{"):
        return None
    return {tuple(key.items()): value for key, value in zip(objects[::2], objects[1::2], strict=True)}
