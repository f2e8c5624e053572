"""Turns the filter expressions of gRPC consumers into subscriptions of the broker. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from orbitmq.gateway import schema
from orbitmq.gateway.schema import FilterType
from orbitmq.message.reserved import SQL92, TAG
from orbitmq.message.tags import java_hash
from orbitmq.wire.bodies.client import SubscriptionData

ALL: Final = "*"
_SEPARATOR = "||"
# Only subscriptions up to this length share an object.
_SHARED_BYTES = 1024


def expression_of(asked: schema.FilterExpression) -> tuple[str, str]:
    """An expression and its type; an empty expression means every message."""
    if asked.type == FilterType.SQL:
        return asked.expression, SQL92
    return asked.expression.strip() or ALL, TAG


def tags_of(expression: str, kind: str) -> frozenset[str]:
    """The tags that an expression names; empty if it does not filter by tags."""
    if kind != TAG or expression == ALL:
        return frozenset()
    return frozenset(filter(None, (tag.strip() for tag in expression.split(_SEPARATOR))))


class Wanted(NamedTuple):
    """A subscription of a consumer to one topic."""

    topic: str
    expression: str
    kind: str


@lru_cache(maxsize=1000)
def _shared(wanted: tuple[Wanted, ...]) -> tuple[Wanted, ...]:
    return wanted


def wanted_of(entries: Iterable[schema.SubscriptionEntry]) -> tuple[Wanted, ...]:
    """The subscriptions in a consumer's settings. Equal ones, such as those of a group, share an object."""
    wanted = tuple(Wanted(entry.topic.name, *expression_of(entry.expression)) for entry in entries)
    size = sum(len(each.topic) + len(each.expression) for each in wanted)
    return _shared(wanted) if size <= _SHARED_BYTES else wanted


def subscription(wanted: Wanted, version: int) -> SubscriptionData:
    """A subscription in the form of the remoting protocol's heartbeats.

    Args:
        version: milliseconds since the epoch; a group's newest version counts.
    """
    tags = tags_of(wanted.expression, wanted.kind)
    return SubscriptionData(
        topic=wanted.topic,
        sub_string=wanted.expression,
        tags_set=set(tags),
        code_set={java_hash(tag) for tag in tags},
        sub_version=version,
        expression_type=wanted.kind,
    )
