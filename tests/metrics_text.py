"""Reads what a scrape gave with Prometheus's own parser, for tests."""

from __future__ import annotations

from typing import cast

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


def families(text: bytes) -> dict[str, Metric]:
    """The metrics by their names; each name is there once."""
    found = list(text_string_to_metric_families(text.decode()))
    names = [f"{one.name}_total" if one.type == "counter" else one.name for one in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    """The value of the one series that has these labels."""
    [sample] = [s for s in found[name].samples if labels.items() <= s.labels.items()]
    return cast("float", sample.value)


STORED = {"storage_type", "storage_medium"}
# Metrics of RocketMQ 5.5 that have series only once something happened: their types, and their labels beside
# cluster, node_type and node_id.
COUNTED = {
    "rocketmq_half_messages": ("gauge", {"topic"}),
    "rocketmq_commit_messages_total": ("counter", {"topic"}),
    "rocketmq_rollback_messages_total": ("counter", {"topic"}),
    "rocketmq_finish_message_latency_milliseconds": ("histogram", {"topic"}),
    "rocketmq_send_to_dlq_messages_total": ("counter", {"consumer_group", "topic", "is_system"}),
    "rocketmq_timer_enqueue_total": ("counter", {"topic"} | STORED),
    "rocketmq_timer_dequeue_total": ("counter", {"topic"} | STORED),
    "rocketmq_timing_messages": ("gauge", {"topic"} | STORED),
    "rocketmq_delay_message_latency_seconds": ("histogram", {"topic"} | STORED),
    "rocketmq_pop_revive_retry_messages_total": ("counter", {"consumer_group", "topic", "put_status"}),
    "rocketmq_topic_create_execution_time_milliseconds": ("histogram", {"invocation_status", "is_system"}),
    "rocketmq_consumer_group_create_execution_time_milliseconds": ("histogram", {"invocation_status"}),
}
