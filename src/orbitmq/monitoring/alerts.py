"""The alerts that Prometheus raises by OrbitMQ's metrics, as docs/monitoring.md shows them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

JOB: Final = "orbitmq"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Attributes:
        query: the condition in PromQL; ``JOB`` stands for the job of the scrapes.
        wait: how long the condition must be true, in Prometheus's form; empty if once is enough.
        critical: whether an operator has to act at once.
        summary: the meaning of the alert, with the labels of the series.
    """

    name: str
    query: str
    wait: str
    summary: str
    critical: bool = False


_NODE: Final = "{{ $labels.node_id }} at {{ $labels.instance }}"
_GROUP: Final = "group {{ $labels.consumer_group }}"

ALERTS: Final = (
    Alert("BrokerGone", 'up{job="JOB"} == 0', "1m", "{{ $labels.instance }} does not answer", True),
    Alert("BrokerNotReady", "orbitmq_ready == 0", "5m", "{{ $labels.instance }} is not ready: see /readyz"),
    Alert(
        "NoMaster",
        'sum by (cluster, node_id) (orbitmq_role{role=~"master|fenced master"}) == 0',
        "1m",
        "{{ $labels.node_id }} has no master and takes no messages",
        True,
    ),
    Alert(
        "StoreTakesNoMessages",
        "orbitmq_store_refuses == 1 or orbitmq_disk_free_bytes / orbitmq_disk_size_bytes < 0.15",
        "1m",
        f"{_NODE} takes no messages, or its disk is 85 % full",
        True,
    ),
    Alert(
        "DiskFillsWithinADay",
        "predict_linear(orbitmq_disk_free_bytes[6h], 86400) < 0",
        "30m",
        f"the disk of {_NODE} is full within a day",
    ),
    Alert(
        "SendsFail",
        "increase(orbitmq_sends_failed_total[5m]) > 0",
        "1m",
        f"{_NODE} refuses messages for its store or disk",
    ),
    # For broker groups with two members.
    Alert(
        "ReplicaNotInSync",
        'orbitmq_ha_in_sync_replicas < 2 and on (instance) orbitmq_role{role="master"} == 1',
        "5m",
        "{{ $labels.node_id }} has no slave in sync",
    ),
    Alert(
        "GroupLags",
        'rocketmq_consumer_lag_latency_milliseconds{is_system="false"} > 300000',
        "5m",
        f"{_GROUP} is more than 5 minutes behind in {{{{ $labels.topic }}}}",
    ),
    Alert(
        "GroupLagsAndNobodyIsOnline",
        "sum by (consumer_group) (rocketmq_consumer_lag_messages) > 0"
        " unless on (consumer_group) rocketmq_consumer_connections",
        "10m",
        f"{_GROUP} is behind, and none of its members is online",
    ),
    Alert(
        "DeadLetters",
        "increase(orbitmq_dead_letters_total[10m]) > 0"
        " or (orbitmq_dead_letters_total unless orbitmq_dead_letters_total offset 10m)",
        "",
        f"{_GROUP} gave up messages: orbitmq dlq show",
    ),
    Alert(
        "SubscriptionsContradict",
        "increase(orbitmq_subscription_conflicts_total[10m]) > 0",
        "10m",
        f"members of {_GROUP} want different messages and lose some: orbitmq group show",
    ),
    Alert(
        "TimersLate",
        "rocketmq_timer_dequeue_latency_milliseconds > 60000",
        "5m",
        f"{_NODE} delivers messages for later more than a minute late",
    ),
    Alert(
        "FlushesAreSlow",
        "histogram_quantile(0.99, rate(orbitmq_flush_seconds_bucket[5m])) > 1",
        "10m",
        f"one of a hundred flushes of {_NODE} takes more than a second: look at the disk",
    ),
    Alert(
        "EventLoopIsLate",
        "histogram_quantile(0.99, rate(orbitmq_event_loop_delay_seconds_bucket[5m])) > 0.5",
        "10m",
        "{{ $labels.instance }} answers late: its processor is busy",
    ),
    Alert(
        "CertificateEnds",
        "orbitmq_certificate_end_seconds - time() < 30 * 86400",
        "1m",
        "the certificate {{ $labels.certificate }} at {{ $labels.instance }} ends within 30 days: renew it",
    ),
    Alert(
        "LogLinesMissing",
        "increase(orbitmq_log_lines_dropped_total[10m]) > 0",
        "",
        "{{ $labels.instance }} could not write all log lines: look at the disk of its log",
    ),
    Alert(
        "SeriesLeftOut",
        "orbitmq_metrics_series_cut > 0",
        "10m",
        f"{_NODE} leaves out metrics: metricsOtelCardinalityLimit is too small",
    ),
)


def rules(job: str = JOB) -> str:
    """The content of a file of alerting rules for Prometheus.

    Args:
        job: the ``job_name`` of the scrapes.
    """
    lines = ["groups:", "  - name: orbitmq", "    rules:"]
    for alert in ALERTS:
        query = alert.query.replace('"JOB"', json.dumps(job))
        severity = "critical" if alert.critical else "warning"
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {query}",
            *([f"        for: {alert.wait}"] if alert.wait else []),
            f"        labels: {{severity: {severity}}}",
            f"        annotations: {{summary: {json.dumps(alert.summary)}}}",
        ]
    return "\n".join(lines) + "\n"
