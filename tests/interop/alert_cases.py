"""Rule tests for promtool: a healthy broker raises no alert, each fault raises the one alert meant for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orbitmq.monitoring.alerts import ALERTS, JOB

# Minutes: the fault begins, and the end of the series. DiskFillsWithinADay looks six hours back.
BEGIN, END = 480, 960
# When the alerts are looked at: before the fault, and long after its beginning.
BEFORE, AFTER = 470, 900

SERVER = {"job": JOB, "instance": "10.0.0.5:5557"}
NODE = {**SERVER, "cluster": "c", "node_type": "broker", "node_id": "broker-a"}
GROUP = {**NODE, "consumer_group": "billing", "topic": "orders", "is_system": "false"}

# What a healthy broker shows: name, labels, value of each minute.
HEALTHY: Sequence[tuple[str, Mapping[str, str], str]] = (
    ("up", SERVER, "1"),
    ("orbitmq_ready", NODE, "1"),
    ("orbitmq_role", {**NODE, "role": "master"}, "1"),
    ("orbitmq_role", {**NODE, "role": "slave"}, "0"),
    ("orbitmq_store_refuses", NODE, "0"),
    ("orbitmq_disk_free_bytes", NODE, "80"),
    ("orbitmq_disk_size_bytes", NODE, "100"),
    ("orbitmq_sends_failed_total", NODE, "2"),
    ("orbitmq_ha_in_sync_replicas", NODE, "2"),
    ("rocketmq_consumer_lag_latency_milliseconds", GROUP, "1000"),
    ("rocketmq_consumer_lag_messages", GROUP, "5"),
    ("rocketmq_consumer_connections", {**NODE, "consumer_group": "billing"}, "1"),
    ("orbitmq_dead_letters_total", {**NODE, "consumer_group": "billing"}, "3"),
    ("orbitmq_subscription_conflicts_total", {**NODE, "consumer_group": "billing"}, "0"),
    ("rocketmq_timer_dequeue_latency_milliseconds", NODE, "100"),
    ("orbitmq_log_lines_dropped_total", NODE, "0"),
    ("orbitmq_certificate_end_seconds", {**NODE, "certificate": "/mq.pem"}, "9000000"),
    ("orbitmq_metrics_series_cut", NODE, "0"),
)

# The metric that a fault changes, and its values from then on, as promtool writes them.
FAULTS: Mapping[str, tuple[str, str]] = {
    "BrokerGone": ("up", "0x{n}"),
    "BrokerNotReady": ("orbitmq_ready", "0x{n}"),
    "NoMaster": ("orbitmq_role", "0x{n}"),
    "StoreTakesNoMessages": ("orbitmq_store_refuses", "1x{n}"),
    "DiskFillsWithinADay": ("orbitmq_disk_free_bytes", "80-0.1x{n}"),
    "SendsFail": ("orbitmq_sends_failed_total", "3+1x{n}"),
    "ReplicaNotInSync": ("orbitmq_ha_in_sync_replicas", "1x{n}"),
    "GroupLags": ("rocketmq_consumer_lag_latency_milliseconds", "400000x{n}"),
    "GroupLagsAndNobodyIsOnline": ("rocketmq_consumer_connections", "_x{n}"),
    "DeadLetters": ("orbitmq_dead_letters_total", "4+1x{n}"),
    "SubscriptionsContradict": ("orbitmq_subscription_conflicts_total", "1+1x{n}"),
    "TimersLate": ("rocketmq_timer_dequeue_latency_milliseconds", "70000x{n}"),
    "FlushesAreSlow": ("orbitmq_flush_seconds_bucket", ""),
    "EventLoopIsLate": ("orbitmq_event_loop_delay_seconds_bucket", ""),
    # promtool begins at 1970: AFTER is 54,000 s then.
    "CertificateEnds": ("orbitmq_certificate_end_seconds", "2592000x{n}"),
    "LogLinesMissing": ("orbitmq_log_lines_dropped_total", "1+1x{n}"),
    "SeriesLeftOut": ("orbitmq_metrics_series_cut", "9x{n}"),
}
# Labels that an alert does not take from its series.
AGGREGATED: Mapping[str, Sequence[str]] = {
    "NoMaster": ("cluster", "node_id"),
    "GroupLagsAndNobodyIsOnline": ("consumer_group",),
}
# Histograms: what a minute adds to each bucket while all is well, and under the fault.
BUCKETS = {"0.1": (60, 0), "0.5": (60, 0), "5.0": (60, 60), "+Inf": (60, 60)}


def _written(name: str, labels: Mapping[str, str], values: str) -> dict[str, str]:
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{pairs}}}", "values": values}


def _series(fault: str | None) -> list[dict[str, str]]:
    changed, values = FAULTS[fault] if fault is not None else ("", "")
    rest = values.format(n=END - BEGIN)
    found = []
    for name, labels, value in HEALTHY:
        after = rest if name == changed else f"{value}x{END - BEGIN}"
        found.append(_written(name, labels, f"{value}x{BEGIN} {after}"))
    for name in ("orbitmq_flush_seconds_bucket", "orbitmq_event_loop_delay_seconds_bucket"):
        for bound, (good, bad) in BUCKETS.items():
            step = bad if name == changed else good
            before = f"0+{good}x{BEGIN}"
            after = f"{good * BEGIN + step}+{step}x{END - BEGIN}"
            found.append(_written(name, {**NODE, "le": bound}, f"{before} {after}"))
    return found


def _expected(name: str) -> dict[str, Any]:
    """The one alert that is raised; its text is compared with the labels put in."""
    [alert] = [each for each in ALERTS if each.name == name]
    changed = FAULTS[name][0]
    if name in AGGREGATED:
        labels = {label: GROUP[label] for label in AGGREGATED[name]}
    elif changed.endswith("_bucket"):
        labels = dict(NODE)
    else:
        labels = next(dict(found) for each, found, _ in HEALTHY if each == changed)
    summary = alert.summary
    for label, value in labels.items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", value)
    severity = "critical" if alert.critical else "warning"
    return {"exp_labels": {**labels, "severity": severity}, "exp_annotations": {"summary": summary}}


def rule_tests(rules: str) -> dict[str, Any]:
    """A file of rule tests over the file ``rules``: no alert while all is well, then one for each fault."""
    names = [alert.name for alert in ALERTS]
    assert set(names) == set(FAULTS), "each alert has its fault"
    tests = []
    for fault in (None, *names):
        checks = [
            {
                "eval_time": f"{minute}m",
                "alertname": name,
                "exp_alerts": [_expected(name)] if name == fault and minute == AFTER else [],
            }
            for minute in (BEFORE, AFTER)
            for name in names
        ]
        tests.append(
            {
                "name": fault or "all is well",
                "interval": "1m",
                "input_series": _series(fault),
                "alert_rule_test": checks,
            }
        )
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}
