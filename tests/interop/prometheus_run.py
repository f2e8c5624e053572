"""`make interop-prometheus`: Debian's Prometheus at our metrics, alerts and board.

promtool reads the rules and the metrics of a broker and a name server, and runs a test of each alert. Then
Prometheus scrapes both servers while messages pass: it understands every rule and every query of the board,
and the queries give data. Without the package (`prometheus`, fetched when it is missing and apt is there) it
prints one line and succeeds; where ``ORBITMQ_CI`` is set, that fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.servers import child_settings
from tests.interop.alert_cases import rule_tests

from orbitmq import ConsumeFrom, Message
from orbitmq.monitoring.alerts import ALERTS, JOB, rules
from orbitmq.monitoring.board import board
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Producer, SimpleConsumer

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0
# Panels that stay empty without a slave, dead letters, contradicting members, refused requests.
EMPTY = frozenset(
    {
        "Slaves behind",
        "Brokers in sync",
        "Dead letters an hour",
        "Subscriptions that contradict",
        "Requests that failed",
    }
)


class CheckError(Exception):
    """What is wrong, for people."""


def tools(folder: Path) -> Path | None:
    """The folder of the programs: those of this machine, else of Debian's package, unpacked."""
    installed = shutil.which("promtool")
    if installed is not None and shutil.which("prometheus") is not None:
        return Path(installed).parent
    fetched = (
        subprocess.run(
            ["apt-get", "-q", "download", "prometheus"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if shutil.which("apt-get")
        else None
    )
    packages = list(folder.glob("prometheus_*.deb"))
    if fetched is None or not packages:
        return None
    subprocess.run(["dpkg-deb", "-x", packages[0], folder / "package"], check=True)
    return folder / "package" / "usr" / "bin"


def told(command: list[str], given: str | None = None) -> str:
    """Run promtool; returns what it says.

    Raises:
        CheckError: it cannot read what it was given.
    """
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    # 3: it reads the metrics and would call them something else.
    if done.returncode not in (0, 3):
        raise CheckError(f"{' '.join(command[:3])}: {said[-3000:]}")
    return said


def check_metrics(promtool: str, target: str) -> None:
    """promtool finds no fault in the metrics, but for names that are RocketMQ's."""
    said = told([promtool, "check", "metrics"], read(f"http://{target}/metrics"))
    ours = [line for line in said.splitlines() if line and not line.startswith("rocketmq_")]
    if ours:
        raise CheckError("promtool check metrics: " + "; ".join(ours))


@contextmanager
def serving(*words: str) -> Iterator[str]:
    """One of our servers, with the line of its start."""
    command = [sys.executable, "-m", "orbitmq", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=child_settings
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def settings(**values: str) -> list[str]:
    values |= {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def metrics_of(line: str) -> str:
    """The address of the metrics, host:port, in the line of a start."""
    found = re.search(r"metrics http://(\S+)/metrics$", line)
    if found is None:
        raise CheckError(f"a server does not say where its metrics are: {line!r}")
    return found[1]


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def wait_for(what: str, done: Callable[[], bool]) -> None:
    """Look twice a second until it is so.

    Raises:
        CheckError: it is not so in time.
    """
    deadline = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > deadline:
            raise CheckError(f"{what}: not within {LIMIT_S:.0f} s")
        time.sleep(0.5)


@contextmanager
def used(name_server: str) -> Iterator[None]:
    """Messages pass, some are left behind, and a member stays online."""
    with Producer("shop", name_servers=name_server) as producer:
        for number in range(20):
            producer.send(Message("orders", str(number)))
    with SimpleConsumer("billing", name_servers=name_server, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        for message in consumer.receive(5, 300, wait=10):
            message.ack()
        yield


@contextmanager
def prometheus(binary: Path, folder: Path, targets: list[str]) -> Iterator[Callable[[str], Any]]:
    """A Prometheus that scrapes every second; its API."""
    (folder / "rules.yml").write_text(rules())
    scrape = {"job_name": JOB, "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yml"], "scrape_configs": [scrape]}
        )
    )
    (port,) = free_ports(1)
    with (folder / "prometheus.log").open("w") as log, subprocess.Popen(
        [
            binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=log, stderr=log, preexec_fn=child_settings,
    ) as process:  # fmt: skip

        def ask(path: str) -> Any:
            return json.loads(read(f"http://127.0.0.1:{port}/api/v1/{path}"))["data"]

        def is_up() -> bool:
            try:
                health = [each["health"] for each in ask("targets")["activeTargets"]]
            except OSError:
                return False
            return len(health) == len(targets) and set(health) == {"up"}

        try:
            wait_for("both servers are scraped", is_up)
            yield ask
        finally:
            process.terminate()
            process.wait(30)


def check_rules(ask: Callable[[str], Any]) -> None:
    """Every rule is evaluated without an error."""

    def evaluated() -> bool:
        found = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        wrong = [f"{rule['name']}: {rule['lastError']}" for rule in found if rule["health"] == "err"]
        if wrong:
            raise CheckError(f"rules: {'; '.join(wrong)}")
        return [rule["health"] for rule in found] == ["ok"] * len(ALERTS)

    wait_for("the rules are evaluated", evaluated)


def check_board(ask: Callable[[str], Any]) -> None:
    """Every query of the board gives data."""
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$cluster", ".*").replace("$node", ".*")
            asked = urllib.parse.quote(query.replace("$__rate_interval", "1m"))

            def has_data(asked: str = asked) -> bool:
                return bool(ask(f"query?query={asked}")["result"])

            if panel["title"] in EMPTY:
                has_data()
            else:
                wait_for(f"{panel['title']}: {query} gives data", has_data)


def run(folder: Path, binaries: Path) -> None:
    """All checks.

    Raises:
        CheckError: one of them fails.
    """
    promtool = str(binaries / "promtool")
    (folder / "rules.yml").write_text(rules())
    (folder / "tests.yml").write_text(json.dumps(rule_tests("rules.yml")))
    told([promtool, "check", "rules", str(folder / "rules.yml")])
    told([promtool, "test", "rules", str(folder / "tests.yml")])
    print(f"alerts: {len(ALERTS)}, each is raised once by its fault and by no other", flush=True)
    names = settings(kvConfigPath=f"{folder}/kv.json")
    with serving("nameserver", "--port", "0", *names) as first:
        name_server = f"127.0.0.1:{first.partition(',')[0].rpartition(':')[2]}"
        store = settings(
            storePathRootDir=f"{folder}/store", brokerIP1="127.0.0.1", haListenPort="0", grpcServerPort="0",
            mappedFileSizeCommitLog="4194304",
        )  # fmt: skip
        with serving("broker", "--port", "0", "-n", name_server, *store) as second:
            targets = [metrics_of(first), metrics_of(second)]
            for target in targets:
                check_metrics(promtool, target)
            print("metrics: promtool finds no fault", flush=True)
            with used(name_server), prometheus(binaries / "prometheus", folder, targets) as ask:
                check_rules(ask)
                check_board(ask)
            print("prometheus: scrapes both servers, understands all rules and all queries of the board")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="orbitmq-prometheus-") as name:
        folder = Path(name)
        binaries = tools(folder)
        if binaries is None:
            print("interop-prometheus: left out, there is no Debian package prometheus to be had")
            return 1 if os.environ.get("ORBITMQ_CI") else 0
        try:
            run(folder, binaries)
        except CheckError as error:
            print(f"FAILED: {error}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
