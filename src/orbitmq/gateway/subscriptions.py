"""Filter expressions of gRPC consumers as subscriptions of the broker. Pure."""

from __future__ import annotations

from typing import Final

from orbitmq.gateway import schema
from orbitmq.gateway.schema import FilterType
from orbitmq.message.reserved import SQL92, TAG
from orbitmq.message.tags import java_hash
from orbitmq.wire.bodies.client import SubscriptionData

ALL: Final = "*"
_SEPARATOR = "||"


def expression_of(asked: schema.FilterExpression) -> tuple[str, str]:
    """Expression and its type; none at all means every message."""
    if asked.type == FilterType.SQL:
        return asked.expression, SQL92
    return asked.expression.strip() or ALL, TAG


def tags_of(expression: str, kind: str) -> frozenset[str]:
    """The tags that an expression names; empty: it does not choose by tags."""
    if kind != TAG or expression == ALL:
        return frozenset()
    return frozenset(filter(None, (tag.strip() for tag in expression.split(_SEPARATOR))))


def subscription(entry: schema.SubscriptionEntry, version: int) -> SubscriptionData:
    """A subscription as heartbeats of the remoting protocol have it.

    Args:
        version: milliseconds since the epoch: the newest one of a group counts.
    """
    expression, kind = expression_of(entry.expression)
    tags = tags_of(expression, kind)
    return SubscriptionData(
        topic=entry.topic.name,
        sub_string=expression,
        tags_set=set(tags),
        code_set={java_hash(tag) for tag in tags},
        sub_version=version,
        expression_type=kind,
    )
