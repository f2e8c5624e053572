"""Starts, watches and stops the servers for benchmarks and interoperability tests.

OrbitMQ's and Apache's servers have the same configuration keys, so one function builds both configurations.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.ports import free_ports
from benchmarks.remoting import GET_BROKER_CLUSTER_INFO, GET_ROUTE, HEART_BEAT, Client, RequestError

ROOT = Path(__file__).resolve().parent.parent
POM = ROOT / "tests" / "interop" / "pom.xml"
PEER_VERSION = "5.5.0"
OLD_PEER_VERSION = "4.9.7"
"""The newest 4.9 version whose broker is published on Maven Central."""
PROGRAM_HEAP_MB = 512
"""The heap of Apache's client programs."""
ROUTE_POLL_S = 0.1
# The longest time that a busy machine takes to pause a process.
STOPPED_WITHIN_S = 5.0

# The broker unmaps its files through internal classes of the JDK, which have to be opened to it.
_JAVA_OPENINGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


class PeerUnavailableError(Exception):
    """Apache RocketMQ cannot run here: Java, Maven or Maven Central is missing, as the text says."""


def left_out(what: str) -> None:
    """Print a note about a part that is left out of a run.

    Raises:
        SystemExit: ``ORBITMQ_CI`` is set, so an incomplete run fails.
    """
    print(what, flush=True)
    if os.environ.get("ORBITMQ_CI"):
        raise SystemExit("ORBITMQ_CI is set: nothing may be left out")


class ServerError(Exception):
    """A server did not start or stop in time. The text has the end of its output."""


class Process(Protocol):
    """The part of :class:`subprocess.Popen` that a server needs."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...

    def send_signal(self, number: int, /) -> None: ...


@dataclass
class Server:
    """A running server process.

    Attributes:
        port: its port for remoting requests on the loopback address.
        started_at: the start of its process, by time.monotonic().
        accepted_s: seconds from then to the first accepted connection.
        ready_s: seconds from then to the first successful answer.
    """

    name: str
    process: Process
    port: int
    log: Path
    started_at: float = field(default_factory=time.monotonic)
    accepted_s: float = 0.0
    ready_s: float = 0.0
    stopped_s: float = field(default=0.0)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """User and system time of all its threads so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def status(self, key: str) -> int:
        """A number from /proc/PID/status, such as RssAnon (in KiB) or Threads."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return int(value.split()[0])
        raise KeyError(key)

    def anonymous_mb(self) -> float:
        """The anonymous memory of the process, without mapped files, in MiB."""
        return self.status("RssAnon") / 1024

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def pause(self) -> None:
        """Pause the server while another one is measured, or for a test; returns when all its threads are
        stopped.

        Raises:
            ServerError: it does not stop in time.
        """
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOPPED_WITHIN_S
        while not self._stands_still():
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} does not stop")
            time.sleep(0.001)

    def _stands_still(self) -> bool:
        """Whether all threads are stopped: on a busy machine some run on until they have received the
        signal.
        """
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
                if stat.read_text().rpartition(") ")[2][0] not in "TtZX":
                    return False
        return True

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server with SIGKILL, like a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop the server with SIGTERM and wait; one that does not end in time is killed and reported as an
        error.
        """
        if self.process.poll() is not None:
            return
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.resume()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self.name} did not stop within {timeout_s:.0f} s") from None
        self.stopped_s = time.monotonic() - started


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def child_settings(cpus: set[int] | None = None) -> None:
    """For `preexec_fn`: the new process dies with this one, and uses only these processors if any are
    given.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if cpus:
        os.sched_setaffinity(0, cpus)


def start(
    name: str,
    command: Sequence[str],
    port: int,
    folder: Path,
    probe: int | None,
    *,
    env: Mapping[str, str] | None = None,
    cpus: set[int] | None = None,
    timeout_s: float = 120.0,
) -> Server:
    """Start a server process and wait until it answers.

    Args:
        probe: request code whose successful answer shows that the server serves; None for no wait.
        cpus: the processors for it; None for all.

    Raises:
        ServerError: the server ended, or did not answer within `timeout_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"

    started_at = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, **(env or {})},
            preexec_fn=lambda: child_settings(cpus),
        )
    server = Server(name, process, port, log, started_at)
    if probe is not None:
        _wait(server, probe, timeout_s)
    return server


def stop_paused(*servers: Server) -> None:
    """Stop servers in this order, including paused ones."""
    for server in servers:
        server.resume()
        server.stop()


def _wait(server: Server, probe: int, timeout_s: float) -> None:
    """Wait until the server answers the probe with success."""
    heartbeat = b'{"clientID":"probe","consumerDataSet":[],"producerDataSet":[]}'
    while not server.ready_s:
        try:
            with Client(server.port, timeout_s=5) as client:
                server.accepted_s = server.accepted_s or time.monotonic() - server.started_at
                answer = client.ask(probe, body=heartbeat if probe == HEART_BEAT else b"")
                if answer.code == 0:
                    server.ready_s = time.monotonic() - server.started_at
                    return
        except OSError:
            pass
        if server.process.poll() is not None:
            raise ServerError(f"{server.name} ended with {server.process.returncode}:\n{server.tail()}")
        if time.monotonic() - server.started_at > timeout_s:
            server.kill()
            raise ServerError(f"{server.name} gave no answer within {timeout_s:.0f} s:\n{server.tail()}")
        time.sleep(0.005)


def broker_properties(
    port: int, store: Path, name_server: str, *, name: str = "broker-a", **more: str
) -> dict[str, str]:
    """The configuration of a broker, in RocketMQ's own keys."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "namesrvAddr": name_server,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "autoCreateTopicEnable": "true",
        **more,
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a configuration file; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def _write_logging(folder: Path) -> None:
    """Write the log settings without which the programs of 4.9 do not start."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in ("namesrv", "broker", "tools"):
        (folder / f"logback_{program}.xml").write_text('<configuration><root level="OFF"/></configuration>\n')


@dataclass(frozen=True)
class Ours:
    """Starts OrbitMQ's servers through its command line."""

    title: str = "OrbitMQ"
    warmup_s: float = 2.0
    """How long a load runs before its measurement."""
    env: Mapping[str, str] = field(default_factory=dict)

    def name_server(
        self, folder: Path, *, port: int = 0, cpus: set[int] | None = None, wait: bool = True, **more: str
    ) -> Server:
        port = port or free_ports()
        conf = write_properties(folder / "namesrv.conf", {"listenPort": str(port), **more})
        command = [*self._command("nameserver"), "-c", str(conf)]
        probe = GET_BROKER_CLUSTER_INFO if wait else None
        return start("our-nameserver", command, port, folder, probe, env=self._env(), cpus=cpus)

    def broker(
        self,
        folder: Path,
        name_server: str,
        *,
        port: int = 0,
        name: str = "broker-a",
        store: Path | None = None,
        cpus: set[int] | None = None,
        wait: bool = True,
        **more: str,
    ) -> Server:
        port = port or free_ports(5) + 2
        probe = HEART_BEAT if wait else None
        # Port 8081 is for one broker per machine; gRPC clients find this broker at its own port.
        settings = {"grpcServerPort": "0", **more}
        properties = broker_properties(port, store or folder / "store", name_server, name=name, **settings)
        conf = write_properties(folder / f"{name}.conf", properties)
        command = [*self._command("broker"), "-c", str(conf)]
        return start(f"our-{name}", command, port, folder, probe, env=self._env(), cpus=cpus)

    def _command(self, what: str) -> list[str]:
        return [sys.executable, "-m", "orbitmq.cli.main", what]

    def _env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **self.env}


@dataclass(frozen=True)
class Apache:
    """Starts Apache RocketMQ's servers from jars of Maven Central.

    Args:
        classpath: the class path of the jars, see :func:`apache_classpath`.
        heap_mb: the broker's heap; the name server gets a quarter of it.
        version: the version of the jars.
    """

    classpath: str
    heap_mb: int = 1024
    version: str = PEER_VERSION
    warmup_s: float = 10.0
    """How long a load runs before its measurement: in this time the JVM compiles its code."""

    @property
    def title(self) -> str:
        return f"Apache {self.version}"

    def name_server(
        self, folder: Path, *, port: int = 0, cpus: set[int] | None = None, **more: str
    ) -> Server:
        port = port or free_ports()
        conf = write_properties(folder / "namesrv.conf", {"listenPort": str(port), **more})
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = [*self.java(folder, self.heap_mb // 4), main, "-c", str(conf)]
        return start("apache-nameserver", command, port, folder, GET_BROKER_CLUSTER_INFO, cpus=cpus)

    def broker(
        self,
        folder: Path,
        name_server: str,
        *,
        port: int = 0,
        name: str = "broker-a",
        store: Path | None = None,
        cpus: set[int] | None = None,
        wait: bool = True,
        **more: str,
    ) -> Server:
        port = port or free_ports(5) + 2
        probe = HEART_BEAT if wait else None
        properties = broker_properties(port, store or folder / "store", name_server, name=name, **more)
        conf = write_properties(folder / f"{name}.conf", properties)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = [*self.java(folder, self.heap_mb), main, "-c", str(conf)]
        return start(f"apache-{name}", command, port, folder, probe, cpus=cpus)

    def java(self, folder: Path, heap_mb: int) -> list[str]:
        """The start of a command line for one of its programs; logs and home directory are in `folder`."""
        if self.version.startswith("4."):
            _write_logging(folder / "conf")
        return [
            "java",
            "-server",
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            "-XX:+UseG1GC",
            f"-XX:MaxDirectMemorySize={heap_mb}m",
            *_JAVA_OPENINGS,
            f"-Duser.home={folder}",
            f"-Drocketmq.home.dir={folder}",
            f"-Drocketmq.client.logRoot={folder}",
            "-cp",
            self.classpath,
        ]


def apache_classpath(version: str = PEER_VERSION) -> str:
    """The class path of Apache RocketMQ's servers, tools and client. Errors as with :func:`classpath`."""
    arguments = [f"-Drocketmq.version={version}"]
    if version == PEER_VERSION:
        arguments.append("-Pexample")
    return classpath(f"apache-{version}", POM, *arguments)


def classpath(name: str, pom: Path, *arguments: str) -> str:
    """Fetch the jars that a POM names from Maven Central and return their class path.

    The result is stored in `build/`, so that only the first call on a machine runs Maven.

    Raises:
        PeerUnavailableError: Java or Maven is missing, or Maven Central cannot be reached.
    """
    kept = ROOT / "build" / f"{name}.classpath"
    if kept.exists() and all(Path(jar).exists() for jar in kept.read_text().split(":")):
        return kept.read_text()
    kept.parent.mkdir(exist_ok=True)
    fresh = kept.with_suffix(".new")
    command = ["mvn", "-q", "-B", "-f", str(pom), *arguments]
    command += ["dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
    try:
        subprocess.run(["java", "-version"], capture_output=True, check=True, timeout=30)
        done = subprocess.run(command, capture_output=True, check=False, timeout=600)
        if done.returncode:  # -U: Maven remembers a failed download and does not repeat it otherwise
            subprocess.run([*command, "-U"], capture_output=True, check=True, timeout=600)
    except FileNotFoundError as error:
        raise PeerUnavailableError(f"no {error.filename} on this machine") from None
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError("Maven Central gave no answer in ten minutes") from None
    except subprocess.CalledProcessError as error:
        last = error.stdout.decode(errors="replace").strip().splitlines()[:1]
        raise PeerUnavailableError(f"Maven could not fetch the jars: {' '.join(last)}") from None
    fresh.rename(kept)
    return kept.read_text()


def java_program(name: str, folder: Path) -> list[str]:
    """The command of one of OrbitMQ's programs for Apache's Java client, compiled into ``folder``.

    Raises:
        PeerUnavailableError: Java, its compiler or Maven Central is missing.
        ServerError: the program does not compile.
    """
    jars = apache_classpath()
    classes = folder / "classes"
    source = ROOT / "benchmarks" / "java" / f"{name}.java"
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", jars, "-d", str(classes), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise PeerUnavailableError("no javac on this machine") from None
    if done.returncode != 0:
        raise ServerError(f"javac failed:\n{done.stderr}")
    return [*Apache(f"{classes}:{jars}").java(folder, PROGRAM_HEAP_MB), name]


def wait_for_route(name_server: Server, topic: str, timeout_s: float = 60.0) -> None:
    """Wait until the topic's route names a broker: a broker that was paused has to register first."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with Client(name_server.port) as client:
                client.request(GET_ROUTE, {"topic": topic})
        except RequestError:
            time.sleep(ROUTE_POLL_S)
        else:
            return
    raise ServerError(f"{name_server.name} knows no route of {topic} after {timeout_s:.0f} s")
