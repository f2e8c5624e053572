"""Values as mqadmin prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orbitmq.wire.versions import name_of

if TYPE_CHECKING:
    from orbitmq.wire.bodies.group import SubscriptionGroupConfig
    from orbitmq.wire.bodies.topic import TopicConfig


def front(text: str, length: int) -> str:
    """The text, cut to a column's width."""
    return text[:length]


def laid(row: str, *values: object) -> str:
    """Values formatted into the columns of a row."""
    return row % values


def clock(time_ms: int) -> str:
    """A time with milliseconds, in the zone of this machine; empty for 0."""
    if time_ms <= 0:
        return ""
    from orbitmq.runtime.system import system_runtime

    return f"{system_runtime().clock.local_time(time_ms):%Y-%m-%d %H:%M:%S},{time_ms % 1000:03d}"


def seconds_of(time_ms: int) -> str:
    """A time to the second."""
    return clock(time_ms).partition(",")[0] or "N/A"


def version(number: int) -> str:
    """The name of a release, such as V5_3_3."""
    return name_of(number).upper()


def word(value: object) -> str:
    """A value as part of a Java object's text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def table(values: Mapping[Any, Any]) -> str:
    """A map as part of a Java object's text."""
    return "{" + ", ".join(f"{key}={word(value)}" for key, value in values.items()) + "}"


def perm(number: int) -> str:
    return "".join(letter if number & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def topic_config(config: TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm(config.perm)}, "
        f"topicFilterType={config.topic_filter_type.value}, topicSysFlag={config.topic_sys_flag}, "
        f"order={word(config.order)}, attributes={table(config.attributes)}]"
    )


def group_config(config: SubscriptionGroupConfig) -> str:
    policy = config.group_retry_policy
    exponential, customized = policy.exponential_retry_policy, policy.customized_retry_policy
    shown = {
        "groupName": config.group_name,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "retryQueueNums": config.retry_queue_nums,
        "retryMaxTimes": config.retry_max_times,
        "groupRetryPolicy": "GroupRetryPolicy" + table({
            "type": policy.type.value,
            "exponentialRetryPolicy": None if exponential is None else "ExponentialRetryPolicy" + table({
                "initial": exponential.initial, "max": exponential.max, "multiplier": exponential.multiplier,
            }),
            "customizedRetryPolicy": None if customized is None else "CustomizedRetryPolicy" + table({
                "next": f"[{', '.join(map(str, customized.next))}]",
            }),
        }),
        "brokerId": config.broker_id,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "groupSysFlag": config.group_sys_flag,
        "consumeTimeoutMinute": config.consume_timeout_minute,
        "subscriptionDataSet": config.subscription_data_set,
        "attributes": table(config.attributes),
    }  # fmt: skip
    return "SubscriptionGroupConfig" + table(shown)


def json_of(value: object, depth: int = 0) -> str:
    """JSON as fastjson formats it for people: tabs, no spaces, keys in order, numeric keys without quotes."""
    from orbitmq.cli.output import json_text

    inner, outer = "\t" * (depth + 1), "\t" * depth
    if isinstance(value, Mapping) and value:
        parts = [
            f"{key if isinstance(key, int) else json_text(key)}:{json_of(value[key], depth + 1)}"
            for key in sorted(value)
        ]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{outer}}}"
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(inner + json_of(one, depth + 1) for one in value) + f"\n{outer}]"
    return json_text(value, one_line=True)
