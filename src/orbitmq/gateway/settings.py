"""Makes the settings that a client gets back: its own, with those that this broker decides. Pure."""

from __future__ import annotations

from typing import Final

from orbitmq.gateway import schema
from orbitmq.gateway.messages import duration, new
from orbitmq.message.numbers import INT32
from orbitmq.wire.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)

POLL_MS: Final = 20_000
BATCH: Final = 32
PRODUCER_ATTEMPTS: Final = 3
PRODUCER_FIRST_MS: Final = 10
PRODUCER_LAST_MS: Final = 1000
PRODUCER_GROWTH: Final = 2.0


def answered(
    sent: schema.Settings, group: SubscriptionGroupConfig | None, body_limit: int
) -> schema.Settings:
    """The settings of a client.

    Args:
        group: the consumer's group; None if it is unknown.
        body_limit: the most bytes of a body.
    """
    settings = new(schema.Settings)
    settings.CopyFrom(sent)
    settings.metric.CopyFrom(new(schema.Metric, on=False))
    if sent.HasField("publishing"):
        settings.publishing.max_body_size = body_limit
        settings.publishing.validate_message_type = True
        settings.backoff_policy.CopyFrom(_of_producers())
    elif sent.HasField("subscription"):
        config = group or SubscriptionGroupConfig()
        settings.subscription.fifo = config.consume_message_orderly
        settings.subscription.receive_batch_size = BATCH
        settings.subscription.long_polling_timeout.CopyFrom(duration(POLL_MS))
        settings.backoff_policy.CopyFrom(_of_group(config))
    return settings


def _of_producers() -> schema.RetryPolicy:
    backoff = new(
        schema.ExponentialBackoff,
        initial=duration(PRODUCER_FIRST_MS),
        max=duration(PRODUCER_LAST_MS),
        multiplier=PRODUCER_GROWTH,
    )
    return new(schema.RetryPolicy, max_attempts=PRODUCER_ATTEMPTS, exponential_backoff=backoff)


def _of_group(group: SubscriptionGroupConfig) -> schema.RetryPolicy:
    """The retry policy of a group: the number of attempts, and the delays between them."""
    attempts = min(max(1, group.retry_max_times + 1), INT32)
    policy = group.group_retry_policy
    if policy.type is GroupRetryPolicyType.EXPONENTIAL:
        growing = policy.exponential_retry_policy or ExponentialRetryPolicy()
        backoff = new(
            schema.ExponentialBackoff,
            initial=duration(max(0, growing.initial)),
            max=duration(max(0, growing.max)),
            multiplier=float(growing.multiplier),
        )
        return new(schema.RetryPolicy, max_attempts=attempts, exponential_backoff=backoff)
    listed = policy.customized_retry_policy
    # Java's client refuses an empty list.
    delays = (listed.next if listed is not None else None) or CustomizedRetryPolicy().next
    return new(
        schema.RetryPolicy,
        max_attempts=attempts,
        customized_backoff=new(schema.CustomizedBackoff, next=[duration(max(0, each)) for each in delays]),
    )
