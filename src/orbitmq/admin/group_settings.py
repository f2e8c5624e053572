"""Settings of a consumer group, and their form on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from orbitmq.client.ranges import check_kind, check_number
from orbitmq.durations import Duration, as_seconds, milliseconds
from orbitmq.errors import ValidationError
from orbitmq.parameters import refuses_unknown
from orbitmq.wire.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)

_MINUTE_S = 60


@refuses_unknown
@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing retry delays: ``first`` seconds, each later delay ``factor`` times as long, up to
    ``longest``.
    """

    first: Duration = 5.0
    longest: Duration = 7200.0
    factor: int = 2


@refuses_unknown
@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group.

    Attributes:
        consume: whether the group may consume.
        broadcast: whether the group may consume by broadcast.
        orderly: whether the members consume in order.
        max_retries: deliveries after the first before a message becomes a dead letter.
        retry_queues: queues of the retry topic on each broker.
        retry_delays: delays before the retries in seconds, or a :class:`Backoff`; ``None``: the brokers'
            delay levels.
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
    """The settings in the form of the wire protocol.

    Raises:
        ValidationError: a setting is out of its range.
    """
    for name in ("consume", "broadcast", "orderly"):
        check_kind(name, getattr(settings, name), bool)
    for name in ("max_retries", "retry_queues", "consume_timeout"):
        check_number(f"GroupSettings.{name}", getattr(settings, name), called=name)
    attributes = settings.attributes
    if not isinstance(attributes, Mapping) or not all(
        isinstance(each, str) for each in chain(*attributes.items())
    ):
        raise ValidationError(f"attributes must be a mapping of texts to texts, got {attributes!r:.80}")
    timeout_s = as_seconds(settings.consume_timeout)
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
        attributes=dict(attributes),
    )


def _policy(delays: Sequence[Duration] | Backoff | None) -> GroupRetryPolicy:
    if delays is None:
        return GroupRetryPolicy()
    if isinstance(delays, Backoff):
        for name in ("first", "longest", "factor"):
            check_number(f"Backoff.{name}", getattr(delays, name), called=f"{name} of retry_delays")
        first, longest = milliseconds(delays.first), milliseconds(delays.longest)
        return GroupRetryPolicy(
            GroupRetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(first, longest, delays.factor)
        )
    if not isinstance(delays, Sequence) or not delays:
        raise ValidationError(
            f"retry_delays must be a list of one delay or more, a Backoff or None, got {delays!r:.80}"
        )
    for delay in delays:
        check_number("GroupSettings.retry_delays", delay, called="retry_delays")
    each = [milliseconds(delay) for delay in delays]
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
