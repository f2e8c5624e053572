"""Names and numbers that RocketMQ reserves, and the rules for the names that users choose.

From Java's TopicValidator, MixAll, PermName, TopicSysFlag and SubscriptionGroupManager. Every room that needs
one of them takes it from here.
"""

from __future__ import annotations

from typing import Final

# The broker id of a master; slaves have higher ones.
MASTER_ID: Final = 0

# Bits of a topic's or a broker's permission.
PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

# Bits of a topic's system flag.
TOPIC_FLAG_UNIT: Final = 1
TOPIC_FLAG_UNIT_SUB: Final = 2

# The kinds of expressions of a subscription: Java's ExpressionType.
TAG: Final = "TAG"
SQL92: Final = "SQL92"

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
NAMESPACE_SEPARATOR: Final = "%"

TOPIC_MAX_CHARS: Final = 127
GROUP_MAX_CHARS: Final = 120
RETRY_TOPIC_MAX_CHARS: Final = 255

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_QUEUES: Final = 18
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
SYNC_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
# OrbitMQ's field in a name server's answer about a group: for how many milliseconds members that it does not
# show have been silent.
MEMBERS_SILENT_MS: Final = "orbitmqSilentMs"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"

TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
    }
)

# Topics that brokers of Apache RocketMQ 5.5 make for themselves, and that their rights treat as a user's.
_MADE_BY_BROKERS: Final = frozenset(
    {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}
)

# Behaviour MV-05: no client may send to these.
FORBIDDEN_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)

# Subscription groups that exist in every broker.
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANS_GROUP,
)

# Java's clients refuse to start with these: they are the values of a group that was not set.
DEFAULT_GROUPS: Final = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})

_NAME_CHARS = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ALLOWED = "^[%|a-zA-Z0-9_-]+$"


def retry_topic(group: str) -> str:
    """The topic that holds a group's messages for redelivery."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic that holds a group's messages that failed too often."""
    return DLQ_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ reserves the name in every cluster."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_own_topic(topic: str) -> bool:
    """Whether brokers have made the topic for themselves: lists and patterns leave it out."""
    return is_system_topic(topic) or topic in _MADE_BY_BROKERS


def is_system_group(group: str) -> bool:
    """Whether the group belongs to the broker itself."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_built_in_group(group: str) -> bool:
    """Whether the group is built in: the broker's own, or one that every broker has."""
    return is_system_group(group) or group in SYSTEM_GROUPS


def topic_fault(topic: str) -> str | None:
    """Why RocketMQ refuses a topic name (behaviour MV-03), None when it does not."""
    limit = RETRY_TOPIC_MAX_CHARS if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MAX_CHARS
    return _fault("topic", topic, limit)


def group_fault(group: str) -> str | None:
    """Why RocketMQ refuses a group name (behaviour MV-04), None when it does not."""
    return _fault("group", group, GROUP_MAX_CHARS)


def _fault(kind: str, name: str, max_chars: int) -> str | None:
    if not name.strip():
        return f"The specified {kind} is blank."
    shown = name if len(name) <= RETRY_TOPIC_MAX_CHARS else f"{name[:40]}..."
    if not _NAME_CHARS.issuperset(name):
        shown = shown.encode("utf-8", "backslashreplace").decode()
        return f"The specified {kind}: {shown}, contains illegal characters, allowing only {_ALLOWED}"
    if len(name) > max_chars:
        return (
            f"The specified {kind}: {shown}, has {len(name)} characters, "
            f"is longer than {kind} max length: {max_chars}"
        )
    return None
