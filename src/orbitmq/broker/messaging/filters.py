"""What consumers subscribe to, as filters that the store reads by (FilterAPI, ConsumerFilterManager).

A new kind of expression is added here: :func:`is_supported`, :func:`parse` and :func:`filter_of`.
"""

from __future__ import annotations

from functools import lru_cache

from orbitmq.message.tags import java_hash
from orbitmq.store import PASS_ALL, MessageFilter
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

TAG = "TAG"
ALL = "*"


def is_supported(expression_type: str | None) -> bool:
    """Whether this broker filters by such expressions; no type at all means tags."""
    return not expression_type or expression_type == TAG


def require_supported(expression_type: str | None) -> None:
    """Refuse an expression that this broker cannot filter by.

    Raises:
        RemotingError: SYSTEM_ERROR.
    """
    if not is_supported(expression_type):
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


def parse(
    topic: str, expression: str | None, expression_type: str | None, version: int = 0
) -> SubscriptionData:
    """The subscription that ``expression`` (``*`` or ``a || b``) stands for.

    Raises:
        RemotingError: SUBSCRIPTION_PARSE_FAILED when no tag is left, or the type is not of tags.
    """
    if not is_supported(expression_type):
        raise RemotingError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"expressionType {expression_type}: this broker filters by TAG only",
        )
    data = SubscriptionData(topic=topic, sub_string=expression or ALL, sub_version=version)
    if data.sub_string == ALL:
        return data
    tags = [tag.strip() for tag in data.sub_string.split("||") if tag.strip()]
    if not tags:
        raise RemotingError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"subscription {expression!r} of {topic} names no tag"
        )
    data.tags_set = set(tags)
    data.code_set = {java_hash(tag) for tag in tags}
    return data


def filter_of(data: SubscriptionData) -> MessageFilter:
    """The filter of a subscription.

    Raises:
        RemotingError: SYSTEM_ERROR, it is of a kind that this broker does not have.
    """
    require_supported(data.expression_type)
    if data.sub_string == ALL or data.class_filter_mode:
        return PASS_ALL
    return _by_tags(frozenset(data.code_set))


def expression_filter(topic: str, expression: str | None, expression_type: str | None) -> MessageFilter:
    """The filter of an expression that a request brings along.

    Raises:
        RemotingError: SYSTEM_ERROR for a kind that this broker does not have, SUBSCRIPTION_PARSE_FAILED.
    """
    require_supported(expression_type)
    return _by_expression(topic, expression)


@lru_cache(maxsize=4096)
def _by_expression(topic: str, expression: str | None) -> MessageFilter:
    return filter_of(parse(topic, expression, TAG))


@lru_cache(maxsize=4096)
def _by_tags(codes: frozenset[int]) -> MessageFilter:
    return MessageFilter(codes)
