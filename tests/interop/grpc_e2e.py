"""`make interop-grpc E2E=<checkout>`: the gRPC tests of apache/rocketmq-e2e at OrbitMQ and at Apache's.

They are 119 tests of Java's client 5.0.3 (folder ``java/e2e``). Maven runs them from a copy, once at a broker
of OrbitMQ and once at Apache's broker behind its proxy. With both in one JVM (local mode) half of them fail:
there no consumer starts whose group was not made before, and the suite makes few. A test that passes there
and fails here is a fault; what fails at both, or there only, is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.servers import PEER_VERSION, Apache, Ours, PeerUnavailableError, Server, ServerError
from tests.interop.proxy_cells import proxy, proxy_jars
from tests.interop.world import wait_registered

from orbitmq.admin import Admin

NAME = "apache/rocketmq-e2e"
# What the suite's poms name, and what today's JDK takes in its place.
REPLACED = {"<version>1.18.8</version>": "<version>1.18.36</version>", " -XX:MaxPermSize=256m": ""}
# What OrbitMQ does in another way by default: topics are made for clients that name them, messages may wait
# for three days, and what is done of a batch in order does not come again with the rest.
OURS = {"autoCreateTopicEnable": "false", "timerMaxDelaySec": "86400", "popOrderRepeatsDone": "true"}
# Apache's broker filters by SQL92 only when it is told to.
APACHES = {"enablePropertyFilter": "true"}
# Most of a test is waiting: by itself the suite runs one test at a time on each CPU.
AT_ONCE = 4
# A run takes about ten minutes.
LIMIT_S = 2400

Outcomes = Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """Where a system serves: its gRPC endpoint, and its name server."""

    endpoint: str
    name_server: str


def outcomes(reports: Path) -> dict[str, str]:
    """Each test of Maven's reports that was not skipped by its name, with its fault; empty: it passed."""
    found: dict[str, str] = {}
    for report in sorted(reports.glob("TEST-*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("skipped") is not None:
                continue
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            faults = [each for kind in ("failure", "error") for each in case.iter(kind)]
            lines = [(each.get("message") or each.text or "failed").strip().splitlines() for each in faults]
            found[name] = lines[0][0][:300] if lines else ""
    return found


def difference(here: Outcomes, there: Outcomes) -> str:
    """The tests that fail at OrbitMQ and pass at Apache; empty when there are none."""
    if not there or not here:
        return f"{len(here)} tests ran here, {len(there)} at Apache's"
    worse = [
        f"{name}: {here.get(name, 'did not run')}"
        for name, fault in sorted(there.items())
        if not fault and here.get(name, "did not run")
    ]
    return f"{len(worse)} tests fail here and pass at Apache's: {'; '.join(worse)}" if worse else ""


def copied(checkout: Path, folder: Path) -> Path:
    """The suite's Maven project, copied and made to run on today's JDK.

    Raises:
        PeerUnavailableError: the checkout has none.
    """
    suite = checkout / "java"
    if not (suite / "e2e" / "pom.xml").exists():
        raise PeerUnavailableError(f"{NAME}: {suite / 'e2e' / 'pom.xml'} is not there")
    copy = folder / "java"
    shutil.copytree(suite, copy, ignore=shutil.ignore_patterns("target"), dirs_exist_ok=True)
    for pom in (copy / "pom.xml", copy / "e2e" / "pom.xml"):
        text = pom.read_text()
        for old, new in REPLACED.items():
            text = text.replace(old, new)
        pom.write_text(text)
    return copy


def repeated(found: Outcomes) -> str:
    """The tests that failed, as Maven's ``-Dtest`` takes them; empty: none did."""
    failed: dict[str, list[str]] = {}
    for name in (name for name, fault in found.items() if fault):
        suite, _, method = name.partition(".")
        failed.setdefault(suite, []).append(method)
    # A class that did not come to its tests has no method.
    return ",".join(
        suite if "" in methods else f"{suite}#{'+'.join(methods)}" for suite, methods in failed.items()
    )


def run_at(place: Place, suite: Path, log: Path, tests: str, at_once: int = AT_ONCE) -> dict[str, str]:
    """Run the suite at one system.

    Args:
        tests: as Maven's ``-Dtest`` takes it; empty: all.
        at_once: how many of them run together.

    Raises:
        ServerError: Maven left no reports.
    """
    reports = suite / "e2e" / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    parallel = "junit.jupiter.execution.parallel.config"
    command = ["mvn", "-B", "-q", "-f", str(suite / "pom.xml"), "-pl", "e2e", "test"]
    command += [f"-DendPoint={place.endpoint}", f"-DnamesrvAddr={place.name_server}"]
    command += [f"-D{parallel}.strategy=fixed", f"-D{parallel}.fixed.parallelism={at_once}"]
    command += ["-Dmaven.test.failure.ignore=true"]
    command += [f"-Dtest={tests}"] if tests else []
    # The client's logs go into the home folder.
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"-Drocketmq.log.root={log.parent}"}
    try:
        with log.open("w") as out:
            subprocess.run(command, stdout=out, stderr=out, timeout=LIMIT_S, check=False, env=environment)
    except FileNotFoundError:
        raise PeerUnavailableError(f"{NAME}: no mvn on this machine") from None
    found = outcomes(reports)
    if not found:
        raise ServerError(f"no reports of {NAME}: {' '.join(log.read_text().splitlines()[-5:])}")
    return found


@contextmanager
def running(maker: Ours | Apache, folder: Path) -> Iterator[Place]:
    """A name server and a broker, and Apache's proxy before its broker; raises as ``classpath`` does."""
    with ExitStack() as stack:

        def kept(server: Server) -> Server:
            stack.callback(server.kill)
            return server

        name_server = kept(maker.name_server(folder))
        broker = kept(maker.broker(folder, name_server.address, flushDiskType="SYNC_FLUSH"))
        wait_registered(name_server.port)
        endpoint = broker.address
        if isinstance(maker, Apache):
            endpoint = stack.enter_context(proxy(folder / "proxy", name_server.address))
        yield Place(endpoint, name_server.address)


async def settle(name_server: str, settings: Mapping[str, str]) -> None:
    """Give the brokers these settings."""
    async with Admin(name_server) as admin:
        for broker in await admin.brokers.list():
            await admin.brokers.change_settings(broker.address, settings)


def compare(checkout: Path, folder: Path, tests: str = "") -> str:
    """Run the suite at both systems; returns the faults of OrbitMQ, empty when there are none."""
    suite = copied(checkout, folder)
    makers: Sequence[tuple[str, Ours | Apache, Mapping[str, str]]]
    makers = (("here", Ours(), OURS), (f"at Apache {PEER_VERSION}", Apache(proxy_jars()), APACHES))
    ran = []
    for number, (where, maker, settings) in enumerate(makers):
        with running(maker, folder / f"system-{number}") as place:
            asyncio.run(settle(place.name_server, settings))
            found = run_at(place, suite, folder / f"maven-{number}.log", tests)
            if again := repeated(found):
                # Alone, and at a system that is warm: what fails then is no matter of load.
                kept = {name: fault for name, fault in found.items() if not fault}
                found = kept | run_at(place, suite, folder / f"maven-{number}-again.log", again, at_once=1)
        failed = {name: fault for name, fault in found.items() if fault}
        print(f"{NAME} {where}: {len(found)} tests, {len(failed)} failed", flush=True)
        for name, fault in failed.items():
            print(f"  {name}: {fault}", flush=True)
        ran.append(found)
    return difference(*ran)


def cells(checkout: Path | None, folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """One cell, when there is a checkout; else one line."""
    if checkout is None:
        print(f"interop-grpc: left out: {NAME} (E2E=<checkout> runs its tests here and at Apache's)")
        return
    yield NAME, lambda: compare(checkout, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("tests", nargs="?", default="", help="as Maven's -Dtest takes them: MessageTagTest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-e2e-") as folder:
        wrong = compare(options.checkout, Path(folder), options.tests)
    print(wrong or f"{NAME}: nothing fails here that passes there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
