"""The bodies about subscription groups: the settings by which a consumer group consumes and retries."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from orbitmq.wire.bodies.base import Body
from orbitmq.wire.bodies.client import SubscriptionData
from orbitmq.wire.bodies.topic import DataVersion

__all__ = [
    "CustomizedRetryPolicy",
    "ExponentialRetryPolicy",
    "GroupForbidden",
    "GroupRetryPolicy",
    "GroupRetryPolicyType",
    "QuerySubscriptionResponseBody",
    "SimpleSubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
]

_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS


class GroupRetryPolicyType(StrEnum):
    """Which of a group's retry policies applies."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


def _default_retry_delays_ms() -> list[int]:
    seconds = [1, 5, 10, 30]
    minutes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30]
    return [s * _SECOND_MS for s in seconds] + [m * _MINUTE_MS for m in minutes] + [_HOUR_MS, 2 * _HOUR_MS]


@dataclass(slots=True)
class CustomizedRetryPolicy(Body):
    """Retry delays in milliseconds, by the number of deliveries."""

    next: list[int] = field(default_factory=_default_retry_delays_ms)


@dataclass(slots=True)
class ExponentialRetryPolicy(Body):
    """Growing retry delays; ``initial`` and ``max`` are milliseconds."""

    initial: int = 5 * _SECOND_MS
    max: int = 2 * _HOUR_MS
    multiplier: int = 2


@dataclass(slots=True)
class GroupRetryPolicy(Body):
    """The retry policy of a group; a missing part means its defaults."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@dataclass(slots=True)
class SimpleSubscriptionData(Body):
    """A subscription that an administrator fixed for a group."""

    topic: str = ""
    expression_type: str = "TAG"
    expression: str = "*"
    version: int = 0


@dataclass(slots=True)
class SubscriptionGroupConfig(Body):
    """Settings of a consumer group on a broker."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SubscriptionGroupList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@dataclass(slots=True)
class SubscriptionGroupWrapper(Body):
    """The group table of a broker; also the content of subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class GroupForbidden(Body):
    """Body of the response to UPDATE_AND_GET_GROUP_FORBIDDEN."""

    topic: str = ""
    group: str = ""
    readable: bool | None = None


@dataclass(slots=True)
class QuerySubscriptionResponseBody(Body):
    """A group's subscription to a topic."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""
