"""Clients and admin run where Linux's modules and calls are missing, as on Windows and macOS; servers refuse.

A process of its own hides them after the standard library has loaded what it needs of them itself. The broker
runs in another process. The package is imported from its source: it is compiled on Linux only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.testing import RunningCluster

HIDE = """
import asyncio, asyncio.unix_events, concurrent.futures, ctypes, importlib, logging, mmap, multiprocessing
import os, select, shutil, signal, socket, subprocess, sys, tempfile, uuid

for name in ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog", "uvloop", "msvcrt"):
    sys.modules[name] = None
for name in (
    "O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK", "SEEK_DATA", "SEEK_HOLE", "fchmod", "fchown", "fdatasync",
    "fork", "getgid", "geteuid", "getuid", "getpgid", "killpg", "mkfifo", "pipe2", "posix_fadvise",
    "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "readv", "register_at_fork",
    "sched_getaffinity", "sendfile", "setpgid", "setsid", "statvfs", "sync", "sysconf", "uname",
    "wait3", "writev",
):
    delattr(os, name)
for name in ("MAP_SHARED", "MAP_PRIVATE", "PROT_READ", "PROT_WRITE"):
    delattr(mmap, name)
for name in ("pthread_sigmask", "SIGKILL", "SIGHUP", "SIGUSR1", "setitimer", "valid_signals"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("poll", "epoll"):
    delattr(select, name)
for name in ("MSG_MORE", "TCP_CONGESTION", "SO_REUSEPORT"):
    delattr(socket, name)

def absent(*_):
    raise AttributeError("Windows has no such method")

socket.socket.sendmsg = property(absent)

def no_library(name, *_, **__):
    raise TypeError("Windows has no library without a name")

ctypes.CDLL = no_library

def no_signals(*_):
    raise NotImplementedError

asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = no_signals
asyncio.unix_events._UnixSelectorEventLoop.remove_signal_handler = no_signals
sys.platform = "win32"
"""

CLIENTS = """
import orbitmq, orbitmq.admin, orbitmq.errors, orbitmq.sync
from orbitmq import ConsumeFrom, Consumer, Message, Producer, PullConsumer, SimpleConsumer
from orbitmq.admin import Admin

where, folder = sys.argv[1:3]
for module in (orbitmq, orbitmq.admin, orbitmq.sync):
    for name in module.__all__:
        getattr(module, name)

async def run():
    async with Admin(where) as admin:
        await admin.topics.create("far", queues=2)
    async with Producer("pg", name_servers=where) as producer:
        for number in range(3):
            await producer.send(Message("far", b"async %d" % number))
    async with Consumer(
        "cg", name_servers=where, consume_from=ConsumeFrom.FIRST, broadcast=True, offsets_folder=folder
    ) as consumer:
        consumer.subscribe("far")
        got = []
        async for message in consumer.messages():
            got.append(message.body)
            if len(got) == 3:
                break
    print("consumed", sorted(got))
    async with SimpleConsumer("popping", name_servers=where, consume_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("far")
        popped = []
        while len(popped) < 3:
            for message in await consumer.receive():
                popped.append(message.body)
                await consumer.ack(message)
    print("popped", len(popped))

asyncio.run(run())

with orbitmq.sync.Producer("pg", name_servers=where) as producer:
    producer.send(Message("far", b"sync"))
with orbitmq.sync.PullConsumer("pulling", name_servers=where, consume_from=ConsumeFrom.FIRST) as consumer:
    consumer.subscribe("far")
    bodies = []
    while len(bodies) < 4:
        bodies += [message.body for message in consumer.poll()]
print("polled", len(bodies))

async def until_signal():
    async with Consumer("signalled", name_servers=where, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("far")
        signalled = []
        async def handler(message):
            if not signalled:
                signalled.append(signal.raise_signal(signal.SIGINT))
        await consumer.run(handler, stop_on_signals=True)
    print("stopped by a signal")

asyncio.run(until_signal())
"""

SPARK = """
import orbitmq.spark, orbitmq.spark.datasource, orbitmq.spark.session

from orbitmq.runtime.sockets import SocketStream
host, port = sys.argv[1].rsplit(":", 1)
stream = SocketStream(host, int(port), 3.0)
print("room", stream.wait(to_send=True, timeout_s=3.0), "bytes", stream.wait(to_send=False, timeout_s=0.01))
"""

SERVERS = """
from orbitmq.broker.config import BrokerConfig
from orbitmq.cli.main import main
from orbitmq.cluster.brokers import make_broker
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime import system_runtime

async def start(make):
    try:
        await make().start()
    except StartError as error:
        print("refused:", error)

asyncio.run(start(lambda: NameServer(system_runtime(), NameServerConfig(listen_port=0))))
asyncio.run(start(lambda: make_broker(system_runtime(), BrokerConfig(store_path_root_dir=sys.argv[1]))))
for words in (["nameserver", "--port", "0"], ["broker", "--port", "0"], ["up", "--port", "0"]):
    print("exit code", main(words), file=sys.stderr)
"""

NEED_LINUX = "name servers and brokers need Linux"


def elsewhere(script: str, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ORBITMQ_PURE": "1"}
    return subprocess.run(
        [sys.executable, "-c", before + HIDE + script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )


@pytest.mark.behaviour("RS-01")
def test_clients_and_admin_work_without_linux(orbitmq_cluster: RunningCluster, tmp_path: Path) -> None:
    done = elsewhere(CLIENTS, orbitmq_cluster.name_server, str(tmp_path / "offsets"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "consumed [b'async 0', b'async 1', b'async 2']",
        "popped 3",
        "polled 4",
        "stopped by a signal",
    ]
    assert "Traceback" not in done.stderr


@pytest.mark.behaviour("RS-01")
def test_the_spark_source_is_imported_and_connects_without_linux(orbitmq_cluster: RunningCluster) -> None:
    # Spark itself is not what is tried here.
    before = "import pyarrow, pyspark.sql.datasource"
    done = elsewhere(SPARK, orbitmq_cluster.name_server, before=before)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["room True bytes False"]


@pytest.mark.behaviour("RS-02")
def test_servers_refuse_to_start_without_linux_in_one_line(tmp_path: Path) -> None:
    done = elsewhere(SERVERS, str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    refused = done.stdout.splitlines()
    assert len(refused) == 2
    told = f"refused: {NEED_LINUX}, this system is win32: run them on"
    assert all(line.startswith(told) for line in refused)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert lines[1::2] == ["exit code 1"] * 3
    assert [line.partition(": ")[0] for line in lines[::2]] == [
        "orbitmq nameserver",
        "orbitmq broker",
        "orbitmq up",
    ]
    assert all(NEED_LINUX in line for line in lines[::2])


COMMANDS = """
import io
from orbitmq.cli.main import main

def run(*words):
    code = main([*words, "-n", sys.argv[1]])
    sys.stdout.flush()
    print("exit code", code, file=sys.stderr)

class Screen(io.BytesIO):
    # Ctrl-C is pressed when the last message is printed.
    def write(self, data):
        if b"goodbye" in data:
            signal.raise_signal(signal.SIGINT)
        return super().write(data)

run("send", "spoken", "hello", "--quiet")
run("receive", "spoken")
run("receive", "spoken", "--group", "listeners", "--count", "1")
run("send", "spoken", "goodbye", "--quiet")
screen, terminal = Screen(), sys.stdout
sys.stdout = io.TextIOWrapper(screen, "utf-8")
run("receive", "spoken", "--group", "listeners")
terminal.write(screen.getvalue().decode())
sys.stdout = terminal
run("group", "lag", "listeners", "--topic", "spoken", "--json")
"""


@pytest.mark.behaviour("RS-01")
def test_commands_of_clients_work_without_linux(orbitmq_cluster: RunningCluster) -> None:
    """Receiving with a group ended with an unexpected NotImplementedError."""
    before = "import cyclopts.core, cyclopts.bind, rich.console, rich.table\n"
    done = elsewhere(COMMANDS, orbitmq_cluster.name_server, before=before)
    assert done.stderr.splitlines() == ["exit code 0"] * 6
    lines = done.stdout.splitlines()
    assert lines[:3] == ["hello", "hello", "goodbye"]
    assert json.loads("\n".join(lines[3:]))["lag"] == 0
