"""A dashboard for Grafana with OrbitMQ's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_COLUMNS: Final = 24
_HEIGHT: Final = 8
_STAT_HEIGHT: Final = 4
# The labels of the clusters and brokers that the user chooses at the top of the board.
_NODES: Final = 'cluster=~"$cluster",node_id=~"$node"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A diagram.

    Attributes:
        unit: Grafana's name of the unit of the axis.
        queries: queries in PromQL, each with the legend of its lines; ``NODES`` stands for the chosen
            brokers.
        stat: whether the panel shows only the present number.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stat: bool = False


@dataclass(frozen=True, slots=True)
class PanelRow:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str) -> str:
    return f"rate({metric}[$__rate_interval])"


def _p99(histogram: str) -> str:
    """The query for the 99th percentile of a histogram."""
    rate = _rate(f"{histogram}_bucket{{NODES}}")
    return f"histogram_quantile(0.99, sum by (node_id, instance, le) ({rate}))"


def _share(way: str) -> str:
    fast, whole = f"orbitmq_fast_path_messages_{way}_total", f"orbitmq_messages_{way}_total"
    return " / ".join(_rate(f"{name}{{NODES}}") for name in (fast, whole))


_BROKER: Final = "{{node_id}} {{instance}}"
_GROUP: Final = "{{consumer_group}} {{topic}}"

ROWS: Final = (
    PanelRow(
        "Health",
        (
            Panel("Brokers that are ready", "short", (("sum(orbitmq_ready{NODES})", ""),), stat=True),
            Panel("Brokers", "short", (("count(orbitmq_ready{NODES})", ""),), stat=True),
            Panel("Masters", "short", (('sum(orbitmq_role{NODES,role="master"})', ""),), stat=True),
            Panel(
                "Stores that take no messages",
                "short",
                (("sum(orbitmq_store_refuses{NODES})", ""),),
                stat=True,
            ),
            Panel("Topics", "short", (("max(rocketmq_topic_number{NODES})", ""),), stat=True),
            Panel("Groups", "short", (("max(rocketmq_consumer_group_number{NODES})", ""),), stat=True),
        ),
    ),
    PanelRow(
        "Messages",
        (
            Panel("In", "ops", ((_rate("orbitmq_messages_in_total{NODES}"), _BROKER),)),
            Panel("Out", "ops", ((_rate("orbitmq_messages_out_total{NODES}"), _BROKER),)),
            Panel(
                "In, by topic",
                "ops",
                ((f"topk(10, sum by (topic) ({_rate('rocketmq_messages_in_total{NODES}')}))", "{{topic}}"),),
            ),
            Panel(
                "Out, by group",
                "ops",
                (
                    (
                        "topk(10, sum by (consumer_group, topic) "
                        f"({_rate('rocketmq_messages_out_total{NODES}')}))",
                        _GROUP,
                    ),
                ),
            ),
            Panel("Sends that failed", "ops", ((_rate("orbitmq_sends_failed_total{NODES}"), _BROKER),)),
            Panel(
                "In, bytes",
                "Bps",
                (
                    (
                        f"sum by (node_id, instance) ({_rate('rocketmq_throughput_in_total{NODES}')})",
                        _BROKER,
                    ),
                ),
            ),
            Panel("Pulls that wait", "short", (("orbitmq_pulls_waiting{NODES}", _BROKER),)),
        ),
    ),
    PanelRow(
        "Groups",
        (
            Panel(
                "Lag",
                "short",
                (
                    (
                        "topk(10, sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{NODES}))",
                        _GROUP,
                    ),
                ),
            ),
            Panel(
                "Age of the oldest message that is not done",
                "ms",
                (
                    (
                        "topk(10, max by (consumer_group, topic) "
                        "(rocketmq_consumer_lag_latency_milliseconds{NODES}))",
                        _GROUP,
                    ),
                ),
            ),
            Panel(
                "In the hands of members",
                "short",
                (
                    (
                        "topk(10, sum by (consumer_group, topic) "
                        "(rocketmq_consumer_inflight_messages{NODES}))",
                        _GROUP,
                    ),
                ),
            ),
            Panel(
                "Members that are online",
                "short",
                (
                    (
                        "max by (consumer_group) (sum by (instance, consumer_group) "
                        "(rocketmq_consumer_connections{NODES}))",
                        "{{consumer_group}}",
                    ),
                ),
            ),
            Panel(
                "Dead letters an hour",
                "short",
                (
                    (
                        "sum by (consumer_group) (increase(orbitmq_dead_letters_total{NODES}[1h]))",
                        "{{consumer_group}}",
                    ),
                ),
            ),
            Panel(
                "Subscriptions that contradict",
                "short",
                (
                    (
                        "sum by (consumer_group) (increase(orbitmq_subscription_conflicts_total{NODES}[1h]))",
                        "{{consumer_group}}",
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Store and replicas",
        (
            Panel(
                "Disk that is free",
                "percentunit",
                (("orbitmq_disk_free_bytes{NODES} / orbitmq_disk_size_bytes{NODES}", _BROKER),),
            ),
            Panel("Not on disk yet", "bytes", (("rocketmq_storage_flush_behind_bytes{NODES}", _BROKER),)),
            Panel(
                "Message log",
                "bytes",
                (("orbitmq_commit_log_end_bytes{NODES} - orbitmq_commit_log_start_bytes{NODES}", _BROKER),),
            ),
            Panel("Slaves behind", "bytes", (("orbitmq_ha_followers_behind_bytes{NODES}", _BROKER),)),
            Panel(
                "Brokers in sync",
                "short",
                (
                    ("orbitmq_ha_in_sync_replicas{NODES}", f"in sync {_BROKER}"),
                    ("orbitmq_ha_needed_replicas{NODES}", f"needed {_BROKER}"),
                ),
            ),
            Panel(
                "Messages for later, how late",
                "ms",
                (("rocketmq_timer_dequeue_latency_milliseconds{NODES}", _BROKER),),
            ),
        ),
    ),
    PanelRow(
        "Process",
        (
            Panel("Flush of the log, 99 of 100", "s", ((_p99("orbitmq_flush_seconds"), _BROKER),)),
            Panel(
                "Delay of the event loop, 99 of 100",
                "s",
                ((_p99("orbitmq_event_loop_delay_seconds"), _BROKER),),
            ),
            Panel(
                "Share of messages on the fast path",
                "percentunit",
                (
                    (_share("in"), f"in {_BROKER}"),
                    (_share("out"), f"out {_BROKER}"),
                ),
            ),
            Panel("Processor", "percentunit", ((_rate("process_cpu_seconds_total{NODES}"), _BROKER),)),
            Panel("Memory", "bytes", (("process_resident_memory_bytes{NODES}", _BROKER),)),
            Panel(
                "Requests that failed",
                "ops",
                (
                    (
                        "topk(10, sum by (request_code, response_code) "
                        f"({_rate('orbitmq_requests_failed_total{NODES}')}))",
                        "{{request_code}} {{response_code}}",
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Name servers",
        (
            Panel("Brokers that are registered", "short", (("orbitmq_nameserver_brokers", "{{instance}}"),)),
            Panel(
                "Route queries",
                "ops",
                ((_rate("orbitmq_nameserver_route_queries_total"), "{{instance}}"),),
            ),
            Panel(
                "Registrations",
                "ops",
                ((_rate("orbitmq_nameserver_registrations_total"), "{{instance}}"),),
            ),
        ),
    ),
)


def board() -> dict[str, Any]:
    """The board in the form that Grafana imports; the user chooses the Prometheus that has the metrics."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        panels.append({"type": "row", "title": row.title, "gridPos": _place(top, 0, _COLUMNS, 1)})
        top += 1
        stat = all(panel.stat for panel in row.panels)
        width, height = (_COLUMNS // len(row.panels), _STAT_HEIGHT) if stat else (8, _HEIGHT)
        for number, panel in enumerate(row.panels):
            line, column = divmod(number * width, _COLUMNS)
            panels.append(_drawn(panel, _place(top + line * height, column, width, height)))
        top += -(-len(row.panels) * width // _COLUMNS) * height
    return {
        "title": "OrbitMQ",
        "uid": "orbitmq",
        "tags": ["orbitmq", "rocketmq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _choices()},
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }


def _place(top: int, left: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _drawn(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "ABCDEFGH"[number],
                "datasource": source,
                "expr": query.replace("NODES", _NODES),
                "legendFormat": legend,
            }
            for number, (query, legend) in enumerate(panel.queries)
        ],
    }


def _choices() -> list[dict[str, Any]]:
    """The variables that the user chooses: the Prometheus, the clusters and the brokers."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    names = {
        "cluster": 'label_values(orbitmq_ready{node_type="broker"}, cluster)',
        "node": 'label_values(orbitmq_ready{node_type="broker",cluster=~"$cluster"}, node_id)',
    }
    chosen = [
        {
            "type": "query",
            "name": name,
            "datasource": source,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
        }
        for name, query in names.items()
    ]
    return [{"type": "datasource", "name": "datasource", "query": "prometheus"}, *chosen]
