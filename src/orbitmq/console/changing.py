"""The common parts of all changes: their arguments, their result, and the reading of a form's fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.admin import Admin, Move
from orbitmq.client.producer.producer import Producer
from orbitmq.console.model import Said
from orbitmq.console.sessions import Plan
from orbitmq.errors import ValidationError
from orbitmq.message.numbers import INT32, whole_number

Fields = Mapping[str, str]
PERMISSIONS: Final = {"read+write": 6, "read": 4, "write": 2}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a change is made in.

    Attributes:
        producer: makes a producer for sending messages.
        plan: takes the previewed reset of that name out of the session; ``None`` if there is none.
    """

    admin: Admin
    producer: Callable[[], Producer]
    plan: Callable[[str], Plan | None]


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made.

    Attributes:
        said: the first sentence of the next page.
        path: the address of the next page.
        undo: the moves that undo a reset.
    """

    said: Said
    path: str
    target: str
    before: str = ""
    after: str = ""
    undo: Plan | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change: the role that it needs, the field with its target for the audit log, and its function."""

    needs: str
    target: str
    make: Callable[[Cluster, Fields], Awaitable[Done]]


def field_of(fields: Fields, name: str) -> str:
    """A field that must not be empty.

    Raises:
        ValidationError: the field is missing or empty.
    """
    value = fields.get(name, "").strip()
    if not value:
        raise ValidationError(f"{name}: the field is empty")
    return value


def number_of(fields: Fields, name: str, least: int) -> int:
    """A field with a whole number.

    Raises:
        ValidationError: the field is not a whole number, or is below ``least``.
    """
    value = whole_number(field_of(fields, name), INT32)
    if value is None or value < least:
        raise ValidationError(f"{name}: {fields[name][:20]}: expected a whole number from {least} on")
    return value


def names_of(fields: Fields, name: str) -> list[str]:
    """A field with names, one a line, each once.

    Raises:
        ValidationError: the field has no name.
    """
    return [one for one in dict.fromkeys(field_of(fields, name).split("\n")) if one]


def permission_of(fields: Fields) -> int:
    """The permission of a topic in the form, as RocketMQ's number.

    Raises:
        ValidationError: the field is none of the permissions' words.
    """
    found = PERMISSIONS.get(fields.get("permission", ""))
    if found is None:
        raise ValidationError(f"permission: expected one of {', '.join(PERMISSIONS)}")
    return found


def typed(fields: Fields, wanted: str) -> None:
    """Refuse a dangerous change whose target was not typed.

    Raises:
        ValidationError: the typed text is not the target, which the error names.
    """
    if fields.get("typed", "").strip() != wanted:
        raise ValidationError(f"typed: expected {wanted!r}: nothing was changed")


def places(moves: Iterable[Move], *, before: bool) -> str:
    """The offsets of moves, before or after them, as a line of the audit log."""
    return ", ".join(
        f"{one.queue.topic} {one.queue.broker_name}:{one.queue.queue_id} {one.before if before else one.to}"
        for one in moves
    )
