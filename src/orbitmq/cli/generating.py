"""``orbitmq generate``: files for the programs around a cluster."""

from __future__ import annotations

from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.output import json_text
from orbitmq.cli.view import View
from orbitmq.monitoring.alerts import JOB, rules
from orbitmq.monitoring.board import board

app = make_app(
    "generate",
    "Print files for the programs around a cluster: alerts for Prometheus, a board for Grafana.",
    """
orbitmq generate alerts > rules.yml
orbitmq generate alerts --job rocketmq > rules.yml
orbitmq generate grafana > board.json
""",
)


@app.command
@command
def alerts(*, job: str = JOB) -> View:
    """Print rules for Prometheus: the alerts of the page Monitoring.

    Args:
        job: The job_name under which Prometheus scrapes the brokers and name servers.
    """
    text = rules(job)
    return View({"job": job, "rules": text}, lines=[text.rstrip("\n")])


@app.command
@command
def grafana() -> View:
    """Print a board for Grafana, to be imported there. It has the metrics of all brokers and name servers."""
    found = board()
    return View({"board": found}, lines=[json_text(found)])
