"""Filters for the store's reads, from consumers' subscriptions (FilterAPI, ExpressionMessageFilter).

Pulls, pops and every other read for a consumer get their filters from :class:`Filters`.
"""

from __future__ import annotations

from functools import lru_cache

from orbitmq.broker.clients.registry import ConsumerGroup
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.reserved import SQL92, TAG, retry_topic
from orbitmq.message.tags import java_hash
from orbitmq.store import PASS_ALL, MessageFilter
from orbitmq.store.sql.compiler import compile_by_origin, compile_sql
from orbitmq.store.sql.errors import SqlError
from orbitmq.wire.bodies.client import SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

ALL = "*"


class Filters:
    """Makes filters from consumers' expressions, if the settings allow their kind."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def of_expression(self, topic: str, expression: str | None, expression_type: str | None) -> MessageFilter:
        """The filter of an expression in a request; without a type the expression is one of tags.

        Raises:
            RemotingError: SYSTEM_ERROR for a kind that this broker does not filter by,
                SUBSCRIPTION_PARSE_FAILED with the place of the mistake.
        """
        if not expression_type or expression_type == TAG:
            return _by_tags(topic, expression)
        if expression_type != SQL92 or not self._config.enable_property_filter:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )
        return _result(_by_sql(expression or ""), topic)

    def of_subscription(self, data: SubscriptionData) -> MessageFilter:
        """The filter of a subscription from a heartbeat or from a consumer's check of its configuration.

        Raises:
            RemotingError: as :meth:`of_expression`.
        """
        if data.class_filter_mode:
            return PASS_ALL
        if data.expression_type and data.expression_type != TAG:
            return self.of_expression(data.topic, data.sub_string, data.expression_type)
        return PASS_ALL if data.sub_string == ALL else _by_codes(frozenset(data.code_set))

    def of_group(self, state: ConsumerGroup, data: SubscriptionData) -> MessageFilter:
        """The filter of a group's subscription to one of its topics.

        With ``filterSupportRetry`` a message of the retry topic must match the group's present SQL expression
        for the message's first topic (ExpressionForRetryMessageFilter). Tags are not checked again.

        Raises:
            RemotingError: as :meth:`of_expression`.
        """
        own = self.of_subscription(data)
        if not (
            self._config.filter_support_retry and own.passes_all and data.topic == retry_topic(state.name)
        ):
            return own
        expressions = {
            topic: other.sub_string
            for topic, other in sorted(state.subscriptions.items())
            if other.expression_type == SQL92
        }
        if not expressions or not self._config.enable_property_filter:
            return own
        return _result(_by_origin(tuple(expressions.items())), data.topic)


def parse(topic: str, expression: str | None, version: int = 0) -> SubscriptionData:
    """The subscription that a tag expression (``*`` or ``a || b``) stands for.

    Raises:
        RemotingError: SUBSCRIPTION_PARSE_FAILED when no tag is left.
    """
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


@lru_cache(maxsize=4096)
def _by_tags(topic: str, expression: str | None) -> MessageFilter:
    data = parse(topic, expression)
    return PASS_ALL if data.sub_string == ALL else _by_codes(frozenset(data.code_set))


@lru_cache(maxsize=4096)
def _by_codes(codes: frozenset[int]) -> MessageFilter:
    return MessageFilter(codes)


# A mistake is cached too: consumers send a broken expression again and again.
@lru_cache(maxsize=128)
def _by_sql(expression: str) -> MessageFilter | SqlError:
    try:
        return MessageFilter(program=compile_sql(expression))
    except SqlError as error:
        return error
    except ImportError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from error


@lru_cache(maxsize=128)
def _by_origin(expressions: tuple[tuple[str, str], ...]) -> MessageFilter | SqlError:
    try:
        return MessageFilter(program=compile_by_origin(dict(expressions)))
    except SqlError as error:
        return error


def _result(made: MessageFilter | SqlError, topic: str) -> MessageFilter:
    if isinstance(made, SqlError):
        raise RemotingError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"subscription of topic {topic}: {made}")
    return made
