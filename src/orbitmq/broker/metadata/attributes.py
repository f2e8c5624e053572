"""Attributes of topics and groups: ``+key=value,-key`` changes them (AttributeUtil, TopicAttributes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: whether it may change after the creation, and which values it takes."""

    changeable: bool
    allowed: Callable[[str], bool]
    expected: str


def _among(*values: str) -> Callable[[str], bool]:
    return values.__contains__


def _reserve_time(value: str) -> bool:
    return value == "-1" or value.isdigit()


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(False, _among("BatchCQ", "SimpleCQ"), "BatchCQ or SimpleCQ"),
    "cleanup.policy": Attribute(False, _among("DELETE", "COMPACTION"), "DELETE or COMPACTION"),
    "message.type": Attribute(
        True,
        _among("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
        "UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION or MIXED",
    ),
    "reserve.time": Attribute(True, _reserve_time, "a number of milliseconds, or -1"),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {}


def parse(text: str | None) -> dict[str, str]:
    """``+a=1,-b`` as ``{"+a": "1", "-b": ""}`` (AttributeParser).

    Raises:
        RemotingError: INVALID_PARAMETER with the part that is not understood.
    """
    changes: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        key, equals, value = part.partition("=")
        if not ((key.startswith("+") and equals) or (key.startswith("-") and not equals)) or len(key) < 2:
            raise _refused(part, "attributes must look like +key=value or -key")
        if key in changes:
            raise _refused(part, "key duplication")
        changes[key] = value
    return changes


def altered(
    known: Mapping[str, Attribute], current: Mapping[str, str], changes: Mapping[str, str], *, create: bool
) -> dict[str, str]:
    """``current`` with ``changes`` applied.

    Raises:
        RemotingError: INVALID_PARAMETER when a change is unknown, not allowed or of a wrong value.
    """
    result = dict(current)
    for signed, value in changes.items():
        key = signed[1:]
        if signed[:1] not in ("+", "-"):
            raise _refused(signed, "wrong format key")
        attribute = known.get(key)
        if attribute is None:
            raise _refused(key, "unsupported key")
        if signed[0] == "-":
            if create:
                raise _refused(key, "only add attribute is supported while creating topic")
            if key not in current:
                raise _refused(key, "attempt to delete a nonexistent key")
        elif not attribute.allowed(value):
            raise _refused(f"{key}={value}", f"expected {attribute.expected}")
        if not create and not attribute.changeable:
            raise _refused(key, "attempt to update an unchangeable attribute")
        if signed[0] == "+":
            result[key] = value
        else:
            del result[key]
    return result


def _refused(what: str, why: str) -> RemotingError:
    return RemotingError(ResponseCode.INVALID_PARAMETER, f"attribute {what}: {why}")
