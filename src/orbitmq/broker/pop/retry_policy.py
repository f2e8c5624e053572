"""How long a message waits after it was not handled in time (GroupRetryPolicy). Pure."""

from __future__ import annotations

from orbitmq.wire.bodies.group import GroupRetryPolicyType, SubscriptionGroupConfig

# RocketMQ's bound of the exponent.
_MOST_DOUBLINGS = 32
# Added to the number of redeliveries for the place in the list of delays: redeliveries begin with level 3.
_LISTED_FROM = 2


def delay_ms(group: SubscriptionGroupConfig, reconsume_times: int) -> int:
    """The delay before redelivery number ``reconsume_times`` + 1, in ms.

    A group without a policy has no delay of its own: each consumer's invisible time is the delay.
    """
    policy = group.group_retry_policy
    if policy.type is GroupRetryPolicyType.EXPONENTIAL:
        growing = policy.exponential_retry_policy
        if growing is None:
            return 0
        times = min(max(reconsume_times, 0), _MOST_DOUBLINGS)
        return max(0, min(growing.max, growing.initial * int(growing.multiplier**times)))
    listed = policy.customized_retry_policy
    if listed is None or not listed.next:
        return 0
    return max(0, listed.next[min(max(reconsume_times, 0) + _LISTED_FROM, len(listed.next) - 1)])
