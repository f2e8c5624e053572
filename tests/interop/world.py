"""The programs that interoperability cells run: servers of both kinds, and our small Java clients."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any
from urllib.parse import parse_qsl

from benchmarks.remoting import GET_BROKER_CLUSTER_INFO, Client
from benchmarks.servers import (
    OLD_PEER_VERSION,
    PEER_VERSION,
    PROGRAM_HEAP_MB,
    ROOT,
    Apache,
    Ours,
    Server,
    ServerError,
    apache_classpath,
    child_settings,
)
from tests.interop import baseline

JAVA_SOURCES = ROOT / "tests" / "interop" / "java"
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags for a JVM that starts quickly and ends soon."""
_QUICK_CLIENT = "-Drocketmq.client.rebalance.waitInterval=1000"
"""How often Java's consumers share out the queues: each 20 s by themselves."""
SMALL_LOG_BYTES = 1 << 20
"""Size of commit log files here: a few hundred messages fill several."""

Fact = dict[str, str]


class CellError(AssertionError):
    """What a cell found wrong."""


def check(condition: object, what: str) -> None:
    """Raise :class:`CellError` unless the condition holds."""
    if not condition:
        raise CellError(what)


def equal(found: object, wanted: object, what: str) -> None:
    """Raise :class:`CellError` unless both are equal; the message shows both."""
    check(found == wanted, f"{what}: found {shortened(found)}, wanted {shortened(wanted)}")


def shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


@dataclass
class Place:
    """A name server and a broker that work together. `kind` names both, as "ours/apache"."""

    kind: str
    name_server: Server
    broker: Server

    @property
    def ns(self) -> str:
        return self.name_server.address

    def client(self) -> Client:
        return Client(self.broker.port)


def compile_java(classes: Path, path: str, sources: Iterable[Path]) -> None:
    """Compile Java programs against a class path.

    Raises:
        ServerError: they do not compile.
    """
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", path, "-d", str(classes), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise ServerError(f"javac failed:\n{done.stderr}")


@contextmanager
def running_java(command: list[str], main: str, **options: object) -> Iterator[RunningProgram]:
    """Run one of our Java programs with name=value arguments; killed at the end if it still runs.

    Args:
        command: Java with its options and class path.
    """
    with running_program([*command, main], **options) as program:
        yield program


@contextmanager
def running_program(command: list[str], **options: object) -> Iterator[RunningProgram]:
    """Run a program that says facts, with name=value arguments; killed at the end if it still runs."""
    arguments = [f"{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=child_settings,
    )
    try:
        yield RunningProgram(process, f"{Path(command[-1]).name} {' '.join(arguments)}")
    finally:
        process.kill()
        process.wait()


class RunningProgram:
    """One of our programs while it runs; its facts arrive in order."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self.process = process
        self.name = name
        self._lines: Queue[str | None] = Queue(maxsize=100_000)
        self._other: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, fact: str, timeout_s: float = 180) -> list[Fact]:
        """All facts up to and including the first of that name."""
        facts: list[Fact] = []
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except Empty:
                self.process.kill()
                raise CellError(f"{self.name} said nothing for {timeout_s:.0f} s: {self._tail()}") from None
            if line is None:
                raise CellError(f"{self.name} ended before {fact!r}: {self._tail()}")
            facts.append(dict(parse_qsl(line, keep_blank_values=True)))
            if facts[-1]["fact"] in ("failed", "timeout"):
                self.process.kill()
                raise CellError(f"{self.name}: {facts[-1]} after {len(facts) - 1} facts; {self._tail()}")
            if facts[-1]["fact"] == fact:
                return facts

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("fact="):
                self._lines.put(line.strip())
            else:
                self._other.append(line.strip())
                del self._other[:-40]
        self._lines.put(None)

    def _tail(self) -> str:
        wanted = [line for line in self._other if "Exception" in line or "CODE" in line or "DESC" in line]
        plain = [line for line in self._other if " |-" not in line]  # without logback about itself
        return " | ".join((wanted or plain)[:4])


class World:
    """Starts servers and clients below one folder.

    Args:
        classpath: of the jars of Apache's current version; those of 4.9 are fetched when a cell needs them.
        measured: our Java programs get the JVM flags of the benchmarks, not those for a quick start.

    Attributes:
        remarks: what a cell says although it passes.
    """

    def __init__(self, classpath: str, folder: Path, *, measured: bool = False) -> None:
        self.folder = folder
        self._measured = measured
        self.ours = Ours()
        self._client_version = PEER_VERSION
        self._count = 0
        self.baseline = baseline.load()
        self.remarks: list[str] = []
        self._apache: dict[str, Apache] = {}
        self._add_apache(PEER_VERSION, classpath)

    def apache(self, version: str) -> Apache:
        """Apache's programs of that version; the first call fetches them and compiles our Java clients.

        Raises:
            PeerUnavailableError: they cannot be fetched.
            ServerError: our Java clients do not compile against them.
        """
        if version not in self._apache:
            self._add_apache(version, apache_classpath(version))
        return self._apache[version]

    def _add_apache(self, version: str, classpath: str) -> None:
        compile_java(self._classes(version), classpath, sorted(JAVA_SOURCES.glob("*.java")))
        self._apache[version] = Apache(classpath, heap_mb=512, version=version)

    def _classes(self, version: str) -> Path:
        return self.folder / f"classes-{version}"

    @contextmanager
    def old_clients(self) -> Iterator[None]:
        """The Java clients that start inside are those of 4.9."""
        self._client_version = OLD_PEER_VERSION
        try:
            yield
        finally:
            self._client_version = PEER_VERSION

    def fresh(self, name: str) -> str:
        """A topic or group name that was not used before."""
        self._count += 1
        return f"{name}_{self._count}"

    def maker(self, kind: str) -> Ours | Apache:
        """Starts the servers of a kind: ours, apache, or apache 4.9."""
        if kind == "ours":
            return self.ours
        return self.apache(OLD_PEER_VERSION if kind == "apache 4.9" else PEER_VERSION)

    @contextmanager
    def place(self, name_server: str, broker: str) -> Iterator[Place]:
        """Run a name server and a broker (each of a kind that `maker` knows) with the broker registered."""
        folder = self.folder / f"place-{name_server}-{broker}".replace(" ", "-")
        with (
            self.server_stopped(self.maker(name_server).name_server(folder)) as ns,
            self.server_stopped(self.broker(broker, folder, ns.address)) as started,
        ):
            wait_registered(ns.port)
            yield Place(f"{name_server}/{broker}", ns, started)
        shutil.rmtree(folder, ignore_errors=True)

    def broker(
        self, kind: str, folder: Path, ns: str, *, port: int = 0, name: str = "broker-a", **more: str
    ) -> Server:
        """A broker with small files, flushing asynchronously, which keeps its data in `folder`/store.

        Args:
            more: settings, before those that are here.
        """
        settings: dict[str, Any] = {
            "flushDiskType": "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": str(SMALL_LOG_BYTES),
            "transactionTimeOut": "1000",
            "transactionCheckInterval": "2000",
            # How soon Apache's broker writes that a transaction has ended.
            "transactionOpBatchInterval": "1000",
            # Apache's broker turns away what has waited for 0.2 s, which is nothing on a busy machine.
            "waitTimeMillsInSendQueue": "20000",
            "osPageCacheBusyTimeOutMills": "20000",
            "recallMessageEnable": "true",
            **more,
        }
        return self.maker(kind).broker(folder, ns, port=port, name=name, **settings)

    @contextmanager
    def server_stopped(self, server: Server) -> Iterator[Server]:
        """Stop the server at the end: cleanly, or with SIGKILL when the cell has failed already."""
        try:
            yield server
        except BaseException:
            server.kill()
            raise
        server.stop()

    @contextmanager
    def java(self, main: str, **options: object) -> Iterator[RunningProgram]:
        """Run one of our Java programs with name=value arguments; killed at the end if it still runs."""
        with running_java(self.command(), main, **options) as program:
            yield program

    def facts(self, main: str, **options: object) -> list[Fact]:
        """Run one of our Java programs to its end; its facts, without the last one."""
        with self.java(main, **options) as program:
            return program.wait_for("done")[:-1]

    def admin(self, commands: list[list[str]]) -> list[str]:
        """Run mqadmin commands one after the other; what each printed."""
        text = "".join("\t".join(command) + "\n" for command in commands)
        done = subprocess.run(
            [*self.command(), "Admin"],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180 + 20 * len(commands),
            preexec_fn=child_settings,
        )
        said = "".join(
            line for line in done.stdout.splitlines(True) if " |-" not in line
        )  # logback about itself
        outputs = said.split("=== end of command\n")
        equal(len(outputs) - 1, len(commands), f"mqadmin commands that ended ({done.stdout[-500:]})")
        return outputs[:-1]

    def command(self) -> list[str]:
        """The start of a command line for one of our Java programs."""
        version = self._client_version
        java = self.apache(version).java(self.folder, PROGRAM_HEAP_MB if self._measured else 128)
        java[-1] = f"{self._classes(version)}:{java[-1]}"
        if self._measured:
            return java
        return [
            java[0],
            *QUICK_JAVA,
            _QUICK_CLIENT,
            *(part for part in java[1:] if part != "-XX:+UseG1GC" and part != "-server"),
        ]


def wait_registered(name_server_port: int, brokers: int = 1, timeout_s: float = 180) -> None:
    """Wait until the name server knows that many broker groups."""
    deadline = time.monotonic() + timeout_s
    body = b""
    while time.monotonic() < deadline:
        with Client(name_server_port) as client:
            body = client.request(GET_BROKER_CLUSTER_INFO).body
        if body.count(b'"brokerAddrs"') >= brokers:
            return
        time.sleep(0.05)
    raise CellError(f"no {brokers} brokers at the name server within {timeout_s:.0f} s: {body!r}")
