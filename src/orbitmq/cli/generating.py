"""``orbitmq generate``: files for the programs around a cluster."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from orbitmq import __version__
from orbitmq.cli import containers
from orbitmq.cli.app import make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError, text_of
from orbitmq.cli.output import json_text
from orbitmq.cli.view import View
from orbitmq.monitoring.alerts import JOB, rules
from orbitmq.monitoring.board import board
from orbitmq.runtime.paths import absolute, folder_of, joined

IMAGE = f"orbitmq:{__version__}"

app = make_app(
    "generate",
    "Print files for the programs around a cluster: alerts for Prometheus, a board for Grafana, units for "
    "systemd, files for Docker Compose and Kubernetes.",
    """
orbitmq generate alerts > rules.yml
orbitmq generate alerts --job rocketmq > rules.yml
orbitmq generate grafana > board.json
orbitmq generate systemd broker -c broker.conf > broker.service
orbitmq generate systemd nameserver -c namesrv.conf > nameserver.service
orbitmq generate compose --host 10.0.0.5 > compose.yaml
orbitmq generate kubernetes --image example.org/orbitmq:1 > orbitmq.yaml
""",
)

Image = Annotated[
    str, Parameter(help="The container image, made with the Containerfile of OrbitMQ's source.")
]


@app.command
@command
def alerts(*, job: str = JOB) -> View:
    """Print rules for Prometheus: the alerts of the page Monitoring.

    Args:
        job: The job_name under which Prometheus scrapes the brokers and name servers.
    """
    if not job.strip():
        raise UsageError("--job is empty: expected the job_name of the scrapes")
    text = rules(job)
    return View({"job": job, "rules": text}, lines=[text.rstrip("\n")])


@app.command
@command
def grafana() -> View:
    """Print a board for Grafana, to be imported there. It has the metrics of all brokers and name servers."""
    found = board()
    return View({"board": found}, lines=[json_text(found)])


@app.command
@command
def systemd(
    server: Literal["broker", "nameserver"],
    /,
    *,
    config: Annotated[str, Parameter(name=["--config", "-c"])],
    program: str | None = None,
) -> View:
    """Print a unit of systemd that runs a server under its watchdog, without rights that it does not need.

    Args:
        server: What the unit runs: broker or nameserver.
        config: The server's configuration file, where the service finds it: broker.conf or namesrv.conf.
        program: Path of the orbitmq that the service runs. Default: the one that runs now.
    """
    from orbitmq.cli.units import broker_unit, name_server_unit

    path = absolute(config)
    text = text_of(path)
    make = broker_unit if server == "broker" else name_server_unit
    try:
        unit = make(text, path, program or joined(folder_of(absolute(sys.executable)), "orbitmq"))
    except ValueError as error:
        raise UsageError(f"{config}: {error}") from error
    return View({"server": server, "unit": unit}, lines=[unit.rstrip("\n")])


@app.command
@command
def compose(*, image: Image = IMAGE, host: str | None = None) -> View:
    """Print a file for Docker Compose: a name server and a broker.

    Args:
        host: Address of this machine by which clients outside of the containers reach them. Without it
            only clients in the containers' network do.
    """
    from orbitmq.settings.typed import own_host

    address = None if host is None else own_host("--host", host)
    text = containers.compose(_image(image), address)
    return View({"image": image, "file": text}, lines=[text.rstrip("\n")])


@app.command
@command
def kubernetes(*, image: Image = IMAGE) -> View:
    """Print objects for Kubernetes: two name servers, and two brokers without replicas."""
    text = containers.kubernetes(_image(image))
    return View({"image": image, "file": text}, lines=[text.rstrip("\n")])


def _image(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9][\w./:@-]{0,254}", name, re.ASCII):
        raise UsageError(f"--image {name}: expected the name of a container image, as orbitmq:1")
    return name
