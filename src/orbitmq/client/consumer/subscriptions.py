"""What a consumer wants of a topic, in its own terms and in those of a heartbeat."""

from __future__ import annotations

from orbitmq.client.core.broker_calls import Filter
from orbitmq.errors import ValidationError
from orbitmq.message.tags import java_hash
from orbitmq.wire.bodies import SubscriptionData

ALL = "*"


def tag_filter(tags: str, version_ms: int) -> Filter:
    """``*`` (or nothing) for all messages, ``a || b`` for those with one of the tags.

    Raises:
        ValidationError: an expression without any tag.
    """
    expression = tags.strip()
    if expression in ("", ALL):
        return Filter(ALL, "TAG", frozenset(), version_ms)
    wanted = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not wanted:
        raise ValidationError(f"tag expression {tags!r} names no tag")
    return Filter(expression, "TAG", wanted, version_ms)


def sql_filter(expression: str, version_ms: int) -> Filter:
    """An SQL92 expression over properties, evaluated by the broker (needs enablePropertyFilter there)."""
    if not expression.strip():
        raise ValidationError("the SQL expression is empty")
    return Filter(expression, "SQL92", frozenset(), version_ms)


def subscription_data(topic: str, wanted: Filter) -> SubscriptionData:
    """The form that heartbeats carry."""
    return SubscriptionData(
        topic=topic,
        sub_string=wanted.expression,
        tags_set=set(wanted.tags),
        code_set={java_hash(tag) for tag in wanted.tags},
        sub_version=wanted.version,
        expression_type=wanted.kind,
    )
