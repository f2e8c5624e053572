"""What the pages about high availability tell an operator to type replaces a broker, with their own files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import ConsumeFrom, Message
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Producer, PullConsumer

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("high-availability.md", "ha-operations.md")
TEXT = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)
LARGEST = 12 * 1024
LIMIT_S = 120
# Small files and quick looks; everything else is of the pages.
SMALL = "mappedFileSizeCommitLog=4194304\ngrpcServerPort=0\n"
NAME_SERVER = "127.0.0.9"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


class Machines:
    """The page's machines: 10.0.0.1 is 127.0.0.1 here, and so on; every one uses the same ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = free_ports(3)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def name_server(self) -> str:
        return f"{NAME_SERVER}:{self._ports[2]}"

    def start(self, what: str, command: str, conf: str, host: str) -> None:
        port, ha_port, name_port = self._ports
        text = conf.replace("10.0.0.9:9876", self.name_server).replace("10912", str(ha_port))
        text = re.sub(r"brokerIP1=.*", f"brokerIP1={host}", text)
        if command == "broker":
            text += SMALL + f"storePathRootDir={self._folder / what}\nlistenPort={port}\n"
            text += "" if "haListenPort" in text else f"haListenPort={ha_port}\n"
        else:
            text += f"listenPort={name_port}\n"
        path = self._folder / f"{what}.conf"
        path.write_text(text + f"bindAddress={host}\n")
        with (self._folder / f"{what}.log").open("ab") as log:
            self.running[what] = subprocess.Popen(
                [sys.executable, "-m", "orbitmq", command, "-c", str(path)],
                stdout=log,
                stderr=log,
                env=environment(),
            )

    def stop(self, what: str) -> None:
        process = self.running.pop(what)
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)

    def listed(self) -> dict[tuple[str, int], dict[str, object]]:
        """`orbitmq cluster list`, by group and id."""
        answer = subprocess.run(
            [sys.executable, "-m", "orbitmq", "cluster", "list", "-n", self.name_server, "--json"],
            capture_output=True,
            env=environment(),
            timeout=LIMIT_S,
        )
        if answer.returncode:
            return {}
        return {(row["broker"], row["broker_id"]): row for row in json.loads(answer.stdout)["brokers"]}

    def until_copied(self, master_host: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        seen: object = None
        while time.monotonic() < deadline:
            seen = rows = self.listed()
            master, slave = rows.get(("broker-a", 0)), rows.get(("broker-a", 1))
            if master and slave and slave["lag_bytes"] == 0:
                place = master["role"], str(master["address"]).rpartition(":")[0]
                if place == ("master", master_host):
                    return
            time.sleep(0.1)
        raise AssertionError(f"not copied after {LIMIT_S} s: {seen}")


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    try:
        yield machines
    finally:
        for process in machines.running.values():
            process.kill()
            process.wait()


def test_the_pages_steps_replace_a_master_and_a_slave(machines: Machines, tmp_path: Path) -> None:
    master, slave, acting = blocks("properties")
    master, slave = master + acting, slave + acting
    (steps,) = (block for block in blocks("sh") if "orbitmq broker" in block)
    flags = re.findall(r"(supportActingMaster|notifyMinBrokerIdChanged)=(\w+)", steps)
    machines.start("namesrv", "nameserver", "".join(f"{key}={value}\n" for key, value in flags), NAME_SERVER)
    machines.start("master", "broker", master, "127.0.0.1")
    machines.start("slave", "broker", slave, "127.0.0.2")
    machines.until_copied("127.0.0.1")
    with Producer("replacing", name_servers=machines.name_server) as producer:
        sent = {producer.send(Message("replaced", str(number))).message_id for number in range(50)}

    machines.stop("slave")
    shutil.rmtree(tmp_path / "slave")
    machines.start("slave", "broker", slave, "127.0.0.4")
    machines.until_copied("127.0.0.1")

    machines.stop("master")
    shutil.rmtree(tmp_path / "master")
    machines.start("master", "broker", master, "127.0.0.3")
    machines.until_copied("127.0.0.3")
    with PullConsumer(
        "replaced_group", name_servers=machines.name_server, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        consumer.subscribe("replaced")
        deadline = time.monotonic() + LIMIT_S
        while sent and time.monotonic() < deadline:
            sent -= {message.message_id for message in consumer.poll(timeout=1)}
    assert not sent, "not all messages came through both replacements"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short(page: str) -> None:
    assert len((ROOT / "docs" / page).read_bytes()) <= LARGEST
