"""Alerts and dashboard: their contents, and that their metrics exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbitmq.cli.main import main
from orbitmq.monitoring.alerts import ALERTS, rules
from orbitmq.monitoring.board import board

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
METRIC = re.compile(r"\b(?:rocketmq|orbitmq|process)_\w+?(?=_bucket\b|\b)")


def queries() -> Iterator[str]:
    for alert in ALERTS:
        yield alert.query
    for panel in board()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def used() -> set[str]:
    """The metrics that alerts and dashboard use."""
    return {name for query in queries() for name in METRIC.findall(query)}


@pytest.mark.behaviour("MX-08")
def test_the_page_shows_the_alerts_that_are_printed() -> None:
    [block] = re.findall(r"^```yaml\n(groups:\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert block == rules()


@pytest.mark.behaviour("MX-08")
def test_every_metric_that_is_asked_for_is_on_the_page() -> None:
    listed = set(METRIC.findall(PAGE.partition("## Alerts")[0]))
    assert used() - listed == set()
    assert len(used()) > 25


@pytest.mark.behaviour("MX-08")
def test_the_alerts_are_rules_of_prometheus() -> None:
    [group] = yaml.safe_load(rules('the "job"'))["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert group["rules"][0]["expr"] == r'up{job="the \"job\""} == 0'
    for rule, alert in zip(group["rules"], ALERTS, strict=True):
        assert rule["expr"] == alert.query.replace("JOB", r"the \"job\"")
        assert rule["annotations"]["summary"] == alert.summary
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+[ms]", rule.get("for", "1m"))
        assert re.fullmatch(r"[^{}]*({{ \$labels\.\w+ }}[^{}]*)+", alert.summary)


@pytest.mark.behaviour("MX-08")
def test_panels_of_the_board_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    panels: list[dict[str, Any]] = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.behaviour("MX-08")
@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_is_balanced(query: str) -> None:
    for one, other in ("()", "{}", "[]"):
        assert query.count(one) == query.count(other)
    assert "NODES" not in query.replace("JOB", "")


@pytest.mark.behaviour("MX-08")
def test_both_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "alerts", "--job", "mq"]) == 0
    assert capsys.readouterr().out == rules("mq")
    assert main(["generate", "grafana"]) == 0
    assert json.loads(capsys.readouterr().out) == board()
