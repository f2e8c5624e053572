"""Spark's own servers from the installed PySpark: a standalone cluster, and a Spark Connect server.

All servers listen on 127.0.0.1, use the Python of the tests, and end with the test.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from orbitmq.runtime.ports import free_ports, release
from orbitmq.spark.read.partitions import CORES_VARIABLE, FILTERS_VARIABLE

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
CHECKOUT = Path(__file__).parents[2]
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_LIMIT_S = 180
_PR_SET_PDEATHSIG = 1

# A session of this process puts these into its environment, for its own workers.
OF_A_SESSION = (CORES_VARIABLE, FILTERS_VARIABLE, "ORBITMQ_SPARK_PYTHON")


class Server:
    """One of Spark's servers as a process; its output is in a file.

    Args:
        command: a command of PySpark's folder ``bin``, and its arguments.
        ready: the text of its output that says that it serves.
        memory: the size of its heap.
    """

    def __init__(
        self, name: str, folder: Path, command: Sequence[str], ready: str, memory: str = "256m"
    ) -> None:
        self.said = folder / f"{name}.log"
        self._name, self._ready = name, ready
        environment = {
            **{name: value for name, value in os.environ.items() if name not in OF_A_SESSION},
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "src"), *_pythonpath()]),
        }
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / command[0]), *command[1:]],
                cwd=folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=_end_with_parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def serves(self) -> Server:
        """Wait until the server serves."""
        end = time.monotonic() + START_LIMIT_S
        while self._ready not in self.said.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > end:
                last = "\n".join(self.said.read_text(errors="replace").splitlines()[-20:])
                self.stop()
                raise AssertionError(f"{self._name} does not serve:\n{last}")
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it and its children."""
        children = [pid for pid, _ in descendants(self.pid)] if self.process.poll() is None else []
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        for pid in children:
            _kill(pid)


class StandaloneCluster:
    """A master and workers with one core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ports = free_ports(2)
        port, web = self._ports
        self.url = f"spark://{HOST}:{port}"
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web)]
        self.master = Server("master", folder, ["spark-class", MASTER, *arguments], "New state: ALIVE")
        self.workers: list[Server] = []
        try:
            self.master.serves()
            for _ in range(workers):
                self._start_worker()
            for worker in self.workers:
                worker.serves()
        except BaseException:
            self.stop()
            raise

    def add_worker(self) -> None:
        """Start one more worker and wait until the master knows it."""
        self._start_worker().serves()

    def _start_worker(self) -> Server:
        name = f"worker-{len(self.workers)}"
        work = ["--host", HOST, "--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name)]
        command = ["spark-class", WORKER, *work, "--webui-port", "0", self.url]
        self.workers.append(Server(name, self._folder, command, "Successfully registered with master"))
        return self.workers[-1]

    def executors(self) -> dict[int, Server]:
        """The executors that run now, by process id, and the worker of each."""
        return {
            pid: worker
            for worker in self.workers
            if worker.process.poll() is None
            for pid, command in descendants(worker.pid)
            if EXECUTOR in command
        }

    def stop(self) -> None:
        for server in [*self.workers, self.master]:
            server.stop()
        release(self._ports)


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """All descendants of a process: id and command line."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            parents.setdefault(int(after_name[1]), []).append(int(entry.name))
    waiting = parents.get(pid, [])[:]
    while waiting:
        child = waiting.pop()
        waiting += parents.get(child, [])
        try:
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pythonpath() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
