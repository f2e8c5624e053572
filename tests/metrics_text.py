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
