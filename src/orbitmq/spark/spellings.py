"""Names of options: those of Spark's Kafka source that mean the same, and what somebody may have meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from orbitmq.spark import option_values

# Kafka's name, lower case: ours.
SAME_AS_KAFKA: Mapping[str, str] = {
    "subscribe": "topic",
    "subscribepattern": "topicPattern",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minRowsPerTrigger",
    "minpartitions": "parallelism",
    "maxrecordsperpartition": "maxRowsPerTask",
    "kafka.group.id": "groupId",
    "startingoffsetsbytimestampstrategy": "startingTimestampStrategy",
}
# Names that mean something else here, and what to use.
_INSTEAD: Mapping[str, str] = {
    "kafka.bootstrap.servers": "use nameServers, the addresses of RocketMQ's name servers",
    "groupidprefix": "use groupId",
    "consumergroup": "use groupId",
    "valueschema": option_values.JSON_BODY,
    "includeheaders": "use properties=map",
    "fetchoffset.numretries": "use offsetTimeout",
    "fetchoffset.retryintervalms": "use offsetTimeout",
    "kafkaconsumer.polltimeoutms": "use requestTimeout",
}
# The options of Spark's Kafka source that are not the same here.
KAFKA_NAMES = (*SAME_AS_KAFKA, *(name for name in _INSTEAD if name not in ("consumergroup", "valueschema")))
KAFKA_CLIENT = "kafka."


def unknown(key: str, what: str, known: Sequence[str]) -> str:
    """What to say of an option that nobody knows.

    Args:
        what: "reading" or "writing".
        known: the names that exist.
    """
    instead = _INSTEAD.get(key.lower())
    if instead is None and key.lower().startswith(KAFKA_CLIENT):
        instead = "settings of a Kafka client mean nothing here"
    if instead is None:
        by_lower = {name.lower(): name for name in known}
        near = [by_lower[name] for name in get_close_matches(key.lower(), by_lower, 2, 0.6)]
        instead = f"did you mean {' or '.join(near)}" if near else ""
    hint = f": {instead}" if instead else ""
    return f"unknown option {key!r} for {what} topics{hint}; known: {', '.join(sorted(known))}"
