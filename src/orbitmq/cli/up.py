"""``orbitmq up``: a local cluster of real processes, for development and for a first look."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Flag, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.output import progress
from orbitmq.cli.values import pairs
from orbitmq.cli.view import Line
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.cluster.processes import ProcessCluster

MAX_PORT = 65_535
CONSOLE_PORT = 8082

app = make_app(
    "up",
    "Start a local cluster: one name server and some broker groups, each a process of its own.\n\n"
    "It runs until Ctrl-C, then stops them cleanly.",
    """
orbitmq up
orbitmq up --brokers 3 --dir ./data
orbitmq up --brokers 1 --replicas 2
orbitmq up --port 0 --json
orbitmq up --console
orbitmq up --set flushDiskType=ASYNC_FLUSH --set defaultTopicQueueNums=16
""",
)


@app.default
@command
async def up(
    *,
    brokers: Annotated[int, Parameter(name=["--brokers", "-b"])] = 2,
    replicas: Annotated[int, Parameter(name=["--replicas", "-r"])] = 1,
    port: Annotated[int, Parameter(name=["--port", "-p"])] = 9876,
    dir: Annotated[Path | None, Parameter(name=["--dir", "-d"])] = None,
    set: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    console: Flag = False,
) -> Views:
    """Start the cluster and wait for Ctrl-C.

    Args:
        brokers: Number of broker groups, each with one master.
        replicas: Number of brokers in each group: 2 is a master and a slave that copies its messages.
        port: Port of the name server; 0 takes a free one.
        dir: Folder of the data, which is kept. Default: a temporary folder, removed at the end.
        set: A setting of broker.conf as KEY=VALUE, for every broker. May be given more than once.
        console: Serve pages about the cluster to a browser on this machine, too: at port 8082, with --port 0
            at a free one. They only read; 'orbitmq console --write' makes changes.
    """
    from orbitmq.cluster.layout import MAX_BROKERS, MAX_REPLICAS
    from orbitmq.cluster.processes import ProcessCluster
    from orbitmq.runtime.system import require_linux

    require_linux()
    _check("brokers", brokers, 1, MAX_BROKERS)
    _check("replicas", replicas, 1, MAX_REPLICAS)
    _check("port", port, 0, MAX_PORT)
    stop = _set_by_signals()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    with ExitStack() as stack:
        if dir is None:
            root = stack.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-"))
        else:
            root = str(dir.resolve())
        settings = pairs("--set", set, "KEY=VALUE")
        try:
            cluster = ProcessCluster(
                brokers=brokers, replicas=replicas, root=root, name_server_port=port, settings=settings
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        with progress() as tell:
            tell(f"starting a name server and {counted(brokers * replicas, 'broker')}")
            await cluster.start()
        try:
            yield _started(cluster, root, loop.time() - begin, kept=dir is not None)
            for warning in _warnings(cluster):
                yield Line(note=f"orbitmq up: {warning}")
            async with AsyncExitStack() as consoles, aclosing(_losses(stop, cluster)) as losses:
                if console:
                    yield await consoles.enter_async_context(
                        _console(cluster, 0 if port == 0 else CONSOLE_PORT)
                    )
                async for line in losses:
                    yield line
            yield Line(text="stopping")
        finally:
            await cluster.stop()


def _check(name: str, given: int, least: int, most: int) -> None:
    if not least <= given <= most:
        raise UsageError(f"--{name} {given}: expected {least} to {most}")


def _set_by_signals() -> asyncio.Event:
    """An event that is set by SIGINT and SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def _console(cluster: ProcessCluster, port: int) -> AsyncGenerator[Line, None]:
    """Serve the cluster's console in the block; yields the line with its address."""
    from orbitmq.cli.console import opened
    from orbitmq.cli.entering import Entering
    from orbitmq.cli.where import Clusters, Servers

    clusters = Clusters((Servers(cluster.name_server),))
    async with opened(clusters, "127.0.0.1", port, Entering()) as (line, serve):
        task = asyncio.create_task(serve())
        try:
            yield line
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _warnings(cluster: ProcessCluster) -> list[str]:
    """The warnings that the servers printed at their start, such as a misspelt key, each once."""
    lines = [line for process in cluster.processes.values() for line in process.last_lines]
    return list(dict.fromkeys(line for line in lines if line.startswith("warning: ")))


def _started(cluster: ProcessCluster, root: str, seconds: float, *, kept: bool) -> Line:
    from orbitmq.cluster.processes import GRPC_PORT

    taken = f" (port {GRPC_PORT} is taken)" if cluster.grpc_port_is_taken else ""
    pids = ", ".join(f"{name} {process.pid}" for name, process in cluster.processes.items())
    lines = [
        f"name server  {cluster.name_server}",
        *(f"{name:<11}  {address}" for name, address in cluster.brokers.items()),
        f"data         {root}{'' if kept else ' (removed at the end; --dir keeps it)'}",
        f"processes    {pids}",
        f"ready in {seconds:.1f} s. Try, in another terminal:\n",
        f"  export NAMESRV_ADDR={cluster.name_server}",
        "  orbitmq send greetings 'Hello, world'",
        "  orbitmq receive greetings\n",
        f"Clients of RocketMQ 5: gRPC {cluster.grpc}{taken}",
        "Ctrl-C stops everything.",
    ]
    facts = {
        "name_server": cluster.name_server,
        "brokers": dict(cluster.brokers),
        "grpc": cluster.grpc,
        "root": root,
    }
    return Line(facts, "\n".join(lines))


async def _losses(stop: asyncio.Event, cluster: ProcessCluster) -> AsyncGenerator[Line, None]:
    """A line for each broker process that ends unexpectedly while its group has another broker, until the
    signal.

    Raises:
        ProcessError: a process ended that no other process replaces.
    """
    stopped = asyncio.create_task(stop.wait())
    endings = {asyncio.create_task(process.wait()): name for name, process in cluster.processes.items()}
    try:
        while not stop.is_set():
            await asyncio.wait({stopped, *endings}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in endings if task.done()]:
                name = endings.pop(task)
                if stop.is_set():
                    break
                ended = cluster.processes[name].ended()
                if not cluster.stands_in(name):
                    raise ended
                again = f"orbitmq broker -c {cluster.settings_file(name)}"
                yield Line(
                    note=f"orbitmq up: {ended}\nits group has another broker, so the cluster goes on\n"
                    f"in another terminal it starts again: {again}"
                )
    finally:
        for task in (stopped, *endings):
            task.cancel()
        await asyncio.gather(stopped, *endings, return_exceptions=True)
