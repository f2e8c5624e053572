"""Names that RocketMQ reserves, and the rules for the names users choose (TopicValidator, MixAll)."""

from __future__ import annotations

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

TOPIC_MAX_CHARS = 127
GROUP_MAX_CHARS = 120
RETRY_TOPIC_MAX_CHARS = 255

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_QUEUES = 18
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
TRANS_GROUP = "CID_RMQ_SYS_TRANS"

SYSTEM_TOPICS = frozenset(
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

# Behaviour MV-05: no client may send to these.
FORBIDDEN_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)

# Subscription groups that exist in every broker (SubscriptionGroupManager).
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANS_GROUP,
)

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


def is_system_group(group: str) -> bool:
    """Whether the group belongs to the broker itself."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic(topic: str) -> None:
    """Refuse a topic name that RocketMQ would refuse (behaviour MV-03).

    Raises:
        RemotingError: INVALID_PARAMETER with the rule that is broken.
    """
    limit = RETRY_TOPIC_MAX_CHARS if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MAX_CHARS
    _check("topic", topic, limit)


def check_group(group: str) -> None:
    """Refuse a group name that RocketMQ would refuse (behaviour MV-04).

    Raises:
        RemotingError: INVALID_PARAMETER with the rule that is broken.
    """
    _check("group", group, GROUP_MAX_CHARS)


def _check(kind: str, name: str, max_chars: int) -> None:
    if not name.strip():
        raise RemotingError(ResponseCode.INVALID_PARAMETER, f"The specified {kind} is blank.")
    if not _NAME_CHARS.issuperset(name):
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"The specified {kind}: {name}, contains illegal characters, allowing only {_ALLOWED}",
        )
    if len(name) > max_chars:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"The specified {kind}: {name}, has {len(name)} characters, "
            f"is longer than {kind} max length: {max_chars}",
        )
