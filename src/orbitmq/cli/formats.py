"""Format strings for received messages, such as ``%t %s``, with the letters of kcat."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orbitmq.durations import since_1970_ms

if TYPE_CHECKING:
    from datetime import datetime

    from orbitmq.message.model import ReceivedMessage

HELP = (
    "%t topic, %b broker, %p queue id, %o queue offset, %s body, %S body size, %k keys, %g tag, "
    "%i message id, %T store time in ms, %d store time as date, %B born time in ms, %r reconsume times, "
    "%h properties, %% a percent sign; \\n \\t \\0 \\\\ as usual"
)

Piece = bytes | Callable[["ReceivedMessage"], bytes]


class FormatError(ValueError):
    """A format is invalid; the text names the position."""


def _text(function: Callable[[ReceivedMessage], object]) -> Callable[[ReceivedMessage], bytes]:
    return lambda message: str(function(message)).encode()


def date(milliseconds: int) -> str:
    """A time as ISO 8601 in UTC, with milliseconds."""
    seconds, rest = divmod(milliseconds, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:03d}Z"


def shown(at: datetime | None) -> str | None:
    """An instant as ISO 8601 in UTC, with milliseconds."""
    return None if at is None else date(since_1970_ms(at))


_FIELDS: dict[str, Callable[[ReceivedMessage], bytes]] = {
    "t": _text(lambda m: m.topic),
    "b": _text(lambda m: m.broker_name),
    "p": _text(lambda m: m.queue_id),
    "o": _text(lambda m: m.queue_offset),
    "s": lambda m: bytes(m.body),
    "S": _text(lambda m: len(m.body)),
    "k": _text(lambda m: " ".join(m.keys)),
    "g": _text(lambda m: m.tags or ""),
    "i": _text(lambda m: m.message_id),
    "T": _text(lambda m: m.store_timestamp_ms),
    "d": _text(lambda m: date(m.store_timestamp_ms)),
    "B": _text(lambda m: m.born_timestamp_ms),
    "r": _text(lambda m: m.reconsume_times),
    "h": _text(lambda m: ",".join(f"{name}={value}" for name, value in sorted(m.properties.items()))),
    "%": lambda m: b"%",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class Format:
    """A format, parsed once and applied to each message.

    Raises:
        FormatError: the format has an unknown letter after ``%`` or ``\\``, or ends with one of these.
    """

    def __init__(self, text: str) -> None:
        self._pieces: list[Piece] = []
        literal: list[str] = []
        characters = iter(enumerate(text))
        for position, character in characters:
            if character not in "%\\":
                literal.append(character)
                continue
            _, letter = next(characters, (0, ""))
            known: dict[str, Any] = _FIELDS if character == "%" else _ESCAPES
            if letter not in known:
                piece = (
                    f"{character}{letter} (character {position + 1})"
                    if letter
                    else f"a {character} at the end"
                )
                raise FormatError(f"--format: {piece} means nothing here; there are {HELP}")
            if character == "\\":
                literal.append(_ESCAPES[letter])
                continue
            self._pieces += ["".join(literal).encode(), _FIELDS[letter]]
            literal.clear()
        self._pieces.append("".join(literal).encode())

    def render(self, message: ReceivedMessage) -> bytes:
        """The bytes to print for ``message``; its body is not decoded."""
        return b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in self._pieces)


def body_of(message: ReceivedMessage) -> dict[str, str]:
    """The body for JSON: ``body`` as text, else ``body_hex``; or ``body_error`` when it is damaged."""
    from orbitmq.message.model import UnreadableMessage

    if isinstance(message, UnreadableMessage):
        return {"body_error": str(message.body_error), "stored_body_hex": message.stored_body.hex()}
    body = bytes(message.body)
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_hex": body.hex()}


def as_json(message: ReceivedMessage) -> dict[str, Any]:
    """``message`` as a JSON value; see :func:`body_of` for a body that is not UTF-8 text."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        **body_of(message),
        "properties": message.properties,
        "born_at": date(message.born_timestamp_ms),
        "stored_at": date(message.store_timestamp_ms),
        "reconsume_times": message.reconsume_times,
    }
