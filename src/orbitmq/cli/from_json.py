"""Messages from lines of JSON, as ``receive --json`` and ``dlq export`` print them."""

from __future__ import annotations

import json
from typing import Any

from orbitmq.cli.failures import UsageError
from orbitmq.errors import ValidationError
from orbitmq.message.model import Message

# Fields of a printed message about its place and its delivery, which a send ignores.
IGNORED = frozenset(
    {
        *("topic", "broker", "queue", "queue_offset", "message_id", "offset_message_id", "born_at"),
        *("stored_at", "reconsume_times", "born_host", "store_host", "store_size", "tags", "keys"),
    }
)
BODY = ("body", "body_hex")


class FromJson:
    """Converts lines to messages. Tag and keys are among the printed properties.

    Args:
        topic: the target topic; the topic in the lines is ignored.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._number = 0

    def __call__(self, line: bytes) -> Message:
        """The message of the next line.

        Raises:
            UsageError: the line is no message; the text begins with the line's number.
        """
        self._number += 1
        where = f"line {self._number}"
        try:
            found = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where}: not JSON: {error}") from error
        if not isinstance(found, dict):
            raise UsageError(f"{where}: expected an object with body or body_hex, got {line[:40]!r}")
        if "body_error" in found:
            raise UsageError(f"{where}: the body of this message is damaged: {found['body_error']}")
        if unknown := sorted(found.keys() - IGNORED - {*BODY, "properties"}):
            raise UsageError(f"{where}: unknown field {unknown[0]}")
        try:
            return Message(self._topic, _body(found, where), properties=_properties(found, where))
        except ValidationError as error:
            raise UsageError(f"{where}: {error}") from error


def _body(found: dict[str, Any], where: str) -> bytes:
    given = [name for name in BODY if isinstance(found.get(name), str)]
    if len(given) != 1:
        raise UsageError(f"{where}: expected body or body_hex, a string")
    if given == ["body"]:
        return str(found["body"]).encode("utf-8", "surrogatepass")
    try:
        return bytes.fromhex(found["body_hex"])
    except ValueError as error:
        raise UsageError(f"{where}: body_hex: {error}") from error


def _properties(found: dict[str, Any], where: str) -> dict[str, str]:
    """The properties, with the tag and keys of the line if its properties lack them."""
    properties = found.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(one, str) for one in properties.values()):
        raise UsageError(f"{where}: properties: expected an object of strings")
    tag, keys = found.get("tags"), found.get("keys") or []
    if isinstance(tag, str) and tag:
        properties = {"TAGS": tag, **properties}
    if isinstance(keys, list) and all(isinstance(one, str) for one in keys) and keys:
        properties = {"KEYS": " ".join(keys), **properties}
    return properties
