"""Names of options in other connectors: equivalents here, and advice for those without an equivalent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from orbitmq.spark import option_values

READING, WRITING = "reading", "writing"
# Options of Spark's Kafka source, in lower case, each with OrbitMQ's equivalent option.
_SAME_AS_KAFKA: Mapping[str, str] = {
    "subscribe": "topic",
    "subscribepattern": "topicPattern",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minRowsPerTrigger",
    "minpartitions": "parallelism",
    "maxrecordsperpartition": "maxRowsPerTask",
    "kafka.group.id": "groupId",
    "startingoffsetsbytimestampstrategy": "startingTimestampStrategy",
}
# The names in Apache's rocketmq-spark, for reading and for writing.
_SAME_AS_ROCKETMQ: Mapping[str, Mapping[str, str]] = {
    READING: {
        "nameserver": "nameServers",
        "subexpression": "tags",
        "group": "groupId",
        "pullbatchsize": "pullMessages",
        "pulltimeout": "requestTimeout",
        "pulltimeoutms": "requestTimeout",
    },
    WRITING: {"nameserver": "nameServers", "group": "producerGroup"},
}
_NAME_SERVERS = "use nameServers, the addresses of RocketMQ's name servers"
# Names of Spark's Kafka source without an equivalent here, with the advice what to use instead.
_INSTEAD_OF_KAFKA: Mapping[str, str] = {
    "kafka.bootstrap.servers": _NAME_SERVERS,
    "groupidprefix": "use groupId",
    "includeheaders": "use properties=map",
    "fetchoffset.numretries": "use offsetTimeout",
    "fetchoffset.retryintervalms": "use offsetTimeout",
    "kafkaconsumer.polltimeoutms": "use requestTimeout",
}
# Option names of other connectors (RocketMQ's for Spark, Flink and others) without an equivalent here, each
# with the advice what to use instead.
_INSTEAD: Mapping[str, str] = {
    **_INSTEAD_OF_KAFKA,
    "consumergroup": "use groupId",
    "consumer.group": "use groupId",
    "consumer.topic": "use topic",
    "nameserveraddress": _NAME_SERVERS,
    "nameserver.addr": _NAME_SERVERS,
    "namesrvaddr": _NAME_SERVERS,
    "name.srv.addr": _NAME_SERVERS,
    "endpoints": _NAME_SERVERS,
    "startmessageoffset": "use startingOffsets",
    "starttimems": "use startingTimestamp",
    "endtimems": "use endingTimestamp",
    "valueschema": option_values.JSON_BODY,
}
# Options of other connectors that users may know.
KAFKA_NAMES = (*_SAME_AS_KAFKA, *_INSTEAD_OF_KAFKA)
ROCKETMQ_NAMES = tuple(dict.fromkeys(name for names in _SAME_AS_ROCKETMQ.values() for name in names))
# The spelling of rocketmq-spark's documentation.
_SPELLED: Mapping[str, Sequence[str]] = {
    READING: ("nameServer", "subExpression", "pullBatchSize", "pullTimeout"),
    WRITING: ("nameServer",),
}
KAFKA_CLIENT = "kafka."


def ours(key: str, what: str) -> str:
    """The name of this connector's option for another connector's option ``key``, else ``key`` itself; in
    lower case.

    Args:
        what: ``READING`` or ``WRITING``.
    """
    lower = key.lower()
    return {**_SAME_AS_KAFKA, **_SAME_AS_ROCKETMQ[what]}.get(lower, lower).lower()


def unknown(key: str, what: str, known: Sequence[str]) -> str:
    """The text of the error for an unknown option.

    Args:
        what: ``READING`` or ``WRITING``.
        known: the names of all options.
    """
    instead = _INSTEAD.get(key.lower())
    if instead is None and key.lower().startswith(KAFKA_CLIENT):
        instead = "settings of a Kafka client mean nothing here"
    if instead is None:
        by_lower = {name.lower(): name for name in (*known, *_SPELLED[what])}
        near = [by_lower[name] for name in get_close_matches(key.lower(), by_lower, 2, 0.6)]
        instead = f"did you mean {' or '.join(near)}" if near else ""
    hint = f": {instead}" if instead else ""
    return f"unknown option {key!r} for {what} topics{hint}; known: {', '.join(sorted(known))}"
