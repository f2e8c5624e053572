"""Tag expressions of consumers, as sets of hashes that the store can filter by (FilterAPI)."""

from __future__ import annotations

from orbitmq.message.tags import java_hash
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

TAG = "TAG"
ALL = "*"


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is of tags; no type at all means tags."""
    return not expression_type or expression_type == TAG


def parse(
    topic: str, expression: str | None, expression_type: str | None, version: int = 0
) -> SubscriptionData:
    """The subscription that ``expression`` (``*`` or ``a || b``) stands for.

    Raises:
        RemotingError: SUBSCRIPTION_PARSE_FAILED when no tag is left, or the type is not of tags.
    """
    if not is_tag_type(expression_type):
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


def tag_codes(data: SubscriptionData) -> frozenset[int] | None:
    """What the store filters by; ``None`` lets every message pass."""
    if data.sub_string == ALL or data.class_filter_mode:
        return None
    return frozenset(data.code_set)
