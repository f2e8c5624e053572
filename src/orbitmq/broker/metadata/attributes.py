"""Attributes of topics and groups: ``+key=value,-key`` changes them (AttributeUtil, TopicAttributes)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)


def _any(_value: str) -> bool:
    return True


def _among(*values: str) -> Callable[[str], bool]:
    return values.__contains__


def _from(low: int, high: int) -> Callable[[str], bool]:
    def allowed(value: str) -> bool:
        return re.fullmatch(r"-?[0-9]{1,19}", value) is not None and low <= int(value) <= high

    return allowed


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute.

    Attributes:
        changeable: whether the attribute may change after its creation.
        allowed: the values that RocketMQ takes; ``expected``: the same in words.
        refused: allowed values that this broker could not obey, each with what it does instead, in words.
        idle: allowed values that are kept but have no effect here.
    """

    changeable: bool
    allowed: Callable[[str], bool]
    expected: str
    refused: tuple[Callable[[str], bool], str] | None = None
    idle: Callable[[str], bool] = field(default=_among())


_LONGEST = (1 << 63) - 1
_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")
TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(
        False,
        _among("BatchCQ", "SimpleCQ"),
        "SimpleCQ",
        (_among("BatchCQ"), "batch consume queues are not built here; the topic can have SimpleCQ"),
    ),
    "cleanup.policy": Attribute(
        False,
        _among("DELETE", "COMPACTION"),
        "DELETE",
        (
            _among("COMPACTION"),
            "topics are not compacted here, messages end by their age; it can have DELETE",
        ),
    ),
    "message.type": Attribute(
        True, _among(*_TYPES), f"{', '.join(_TYPES[:-1])} or {_TYPES[-1]}", idle=_among("PRIORITY", "LITE")
    ),
    "reserve.time": Attribute(
        True,
        _from(-1, _LONGEST),
        "-1",
        (
            lambda value: int(value) != -1,
            "fileReservedTime counts for all topics here, none has a time of its own; it can have -1",
        ),
    ),
    "lite.topic.expiration": Attribute(True, _from(-1, 30 * 24 * 60), "minutes, -1 to 43200", idle=_any),
}
_FLAG = Attribute(True, _among("true", "false"), "true or false", idle=_any)
_TEXT = Attribute(True, _any, "a text", idle=_any)
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(True, _from(0, 100), "0 to 100", idle=_any),
    "lite.bind.topic": _TEXT,
    "lite.sub.model": Attribute(True, _among("Shared", "Exclusive"), "Shared or Exclusive", idle=_any),
    "lite.sub.reset.offset.exclusive": _FLAG,
    "lite.sub.reset.offset.unsubscribe": _FLAG,
    "lite.sub.client.quota": Attribute(True, _from(-1, _LONGEST), "a number from -1", idle=_any),
    "lite.sub.client.max.event.cnt": Attribute(True, _from(10, _LONGEST), "a number from 10", idle=_any),
    "lite.sub.wildcard": _TEXT,
}


def parse(text: str | None) -> dict[str, str]:
    """``+a=1,-b`` as ``{"+a": "1", "-b": ""}`` (AttributeParser).

    Raises:
        RemotingError: INVALID_PARAMETER with the part that cannot be read.
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
    """The attributes ``current`` after ``changes``.

    Raises:
        RemotingError: INVALID_PARAMETER when an attribute is unknown, not changeable or of a wrong value.
    """
    result = dict(current)
    for signed, value in changes.items():
        key = signed[1:]
        if signed[:1] not in ("+", "-"):
            raise _refused(signed, "wrong format key")
        attribute = known.get(key)
        if attribute is None:
            raise _refused(key, f"unsupported key; there are {', '.join(known)}")
        if signed[0] == "-":
            if create:
                raise _refused(key, "only add attribute is supported while creating topic")
            if key not in current:
                raise _refused(key, "attempt to delete a nonexistent key")
        elif not attribute.allowed(value):
            raise _refused(f"{key}={value}", f"expected {attribute.expected}")
        elif (why := _not_done(attribute, value)) is not None:
            raise _refused(f"{key}={value}", why)
        if not create and not attribute.changeable:
            raise _refused(key, "attempt to update an unchangeable attribute")
        if signed[0] == "+":
            result[key] = value
        else:
            del result[key]
    return result


def _not_done(attribute: Attribute, value: str) -> str | None:
    if attribute.refused is None or not attribute.allowed(value) or not attribute.refused[0](value):
        return None
    return attribute.refused[1]


def check_obeyed(known: Mapping[str, Attribute], of: str, attributes: Mapping[str, str]) -> None:
    """Refuse attributes that another broker has accepted and this broker would not obey.

    Args:
        of: the owner of the attributes, for the error text: "topic T".

    Raises:
        ValueError: the text names the attribute, its value, and what this broker does instead.
    """
    for key, value in attributes.items():
        if key in known and (why := _not_done(known[key], value)) is not None:
            raise ValueError(f"{of} has the attribute {key}={value}: {why}")


def not_acted_on(known: Mapping[str, Attribute], attributes: Mapping[str, str]) -> list[str]:
    """``key=value`` of the attributes that are kept and have no effect here."""
    return [f"{key}={value}" for key, value in attributes.items() if key in known and known[key].idle(value)]


def log_not_acted_on(known: Mapping[str, Attribute], of: str, attributes: Mapping[str, str]) -> None:
    """Log the attributes of :func:`not_acted_on`."""
    if idle := not_acted_on(known, attributes):
        log.warning("%s: %s is kept, and not acted on here", of, ", ".join(idle))


def _refused(what: str, why: str) -> RemotingError:
    return RemotingError(ResponseCode.INVALID_PARAMETER, f"attribute {what}: {why}")
