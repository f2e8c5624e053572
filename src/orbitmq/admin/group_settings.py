"""Settings of a consumer group, and their form on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orbitmq.durations import Duration, milliseconds, seconds
from orbitmq.errors import ValidationError
from orbitmq.wire.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)

MAX_RETRIES = 2**31 - 1
MAX_RETRY_QUEUES = 1024
_MINUTE_S = 60
_DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing retry delays: ``first`` seconds, each next one ``factor`` times longer, up to ``longest``."""

    first: Duration = 5.0
    longest: Duration = 7200.0
    factor: int = 2


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group.

    Attributes:
        consume: whether the group may consume.
        broadcast: whether the group may consume by broadcast.
        orderly: whether the members consume in order.
        max_retries: deliveries after the first before a message becomes a dead letter.
        retry_queues: queues of the retry topic on each broker.
        retry_delays: seconds before each retry, or a :class:`Backoff`; ``None``: the brokers' delay levels.
        consume_timeout: how long a handler may take before its message is delivered again; whole minutes, in
            seconds or as a timedelta.
        attributes: further settings by RocketMQ's names.
    """

    consume: bool = True
    broadcast: bool = True
    orderly: bool = False
    max_retries: int = 16
    retry_queues: int = 1
    retry_delays: Sequence[Duration] | Backoff | None = None
    consume_timeout: Duration = 15 * _MINUTE_S
    attributes: Mapping[str, str] = field(default_factory=dict)


def to_wire(group: str, settings: GroupSettings) -> SubscriptionGroupConfig:
    """The settings in the form that brokers take.

    Raises:
        ValidationError: a setting is out of its range.
    """
    for name, value, most in (
        ("max_retries", settings.max_retries, MAX_RETRIES),
        ("retry_queues", settings.retry_queues, MAX_RETRY_QUEUES),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ValidationError(f"{name} must be a whole number from 0 to {most:,}, got {value!r}")
    timeout_s = seconds("consume_timeout", settings.consume_timeout, _MINUTE_S, _DAY_S)
    if timeout_s % _MINUTE_S:
        raise ValidationError(f"consume_timeout must be whole minutes, got {timeout_s:g} seconds")
    return SubscriptionGroupConfig(
        group_name=group,
        consume_enable=settings.consume,
        consume_broadcast_enable=settings.broadcast,
        consume_message_orderly=settings.orderly,
        retry_max_times=settings.max_retries,
        retry_queue_nums=settings.retry_queues,
        group_retry_policy=_policy(settings.retry_delays),
        consume_timeout_minute=round(timeout_s / _MINUTE_S),
        attributes=dict(settings.attributes),
    )


def _policy(delays: Sequence[Duration] | Backoff | None) -> GroupRetryPolicy:
    if delays is None:
        return GroupRetryPolicy()
    if isinstance(delays, Backoff):
        first, longest = (
            milliseconds(seconds(f"retry_delays.{name}", value, 0, _DAY_S, above=True))
            for name, value in (("first", delays.first), ("longest", delays.longest))
        )
        if delays.factor < 1:
            raise ValidationError(f"retry_delays.factor must be 1 or more, got {delays.factor!r}")
        return GroupRetryPolicy(
            GroupRetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(first, longest, delays.factor)
        )
    if not delays:
        raise ValidationError("retry_delays must have one delay or more, or be None")
    each = [milliseconds(seconds("retry_delays", delay, 0, _DAY_S)) for delay in delays]
    return GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(each))


def from_wire(config: SubscriptionGroupConfig) -> GroupSettings:
    """The settings in a broker's answer."""
    policy = config.group_retry_policy
    growing, fixed = policy.exponential_retry_policy, policy.customized_retry_policy
    delays: Sequence[Duration] | Backoff | None = None
    if policy.type is GroupRetryPolicyType.EXPONENTIAL:
        growth = growing or ExponentialRetryPolicy()
        delays = Backoff(growth.initial / 1000, growth.max / 1000, growth.multiplier)
    elif fixed is not None:
        delays = tuple(delay / 1000 for delay in fixed.next)
    return GroupSettings(
        consume=config.consume_enable,
        broadcast=config.consume_broadcast_enable,
        orderly=config.consume_message_orderly,
        max_retries=config.retry_max_times,
        retry_queues=config.retry_queue_nums,
        retry_delays=delays,
        consume_timeout=config.consume_timeout_minute * _MINUTE_S,
        attributes=dict(config.attributes),
    )
