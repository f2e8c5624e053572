"""``orbitmq up``: a local cluster of real processes, for development and for a first look."""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.output import print_json

if TYPE_CHECKING:
    import asyncio

    from orbitmq.cluster.processes import ProcessCluster

app = make_app(
    "up",
    "Start a local cluster: one name server and some broker groups, each a process of its own.\n\n"
    "It runs until Ctrl-C, then stops them cleanly.",
    """
orbitmq up
orbitmq up --brokers 3 --dir ./data
orbitmq up --brokers 1 --replicas 2
orbitmq up --port 0 --json
orbitmq up --set flushDiskType=ASYNC_FLUSH --set defaultTopicQueueNums=16
""",
)


@app.default
def up(
    *,
    brokers: Annotated[int, Parameter(name=["--brokers", "-b"])] = 2,
    replicas: Annotated[int, Parameter(name=["--replicas", "-r"])] = 1,
    port: Annotated[int, Parameter(name=["--port", "-p"])] = 9876,
    dir: Annotated[Path | None, Parameter(name=["--dir", "-d"])] = None,
    set: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Start the cluster and wait for Ctrl-C.

    Parameters
    ----------
    brokers
        Number of broker groups, each with one master.
    replicas
        Number of brokers in each group: 2 is a master and a slave that copies its messages.
    port
        Port of the name server; 0 takes a free one.
    dir
        Folder of the data, kept. Without it a temporary folder is used and removed at the end.
    set
        A setting of broker.conf as KEY=VALUE, for every broker. May be given more than once.
    json
        Print one JSON object on one line when the cluster serves.
    """
    from orbitmq.runtime.system import require_linux

    require_linux()
    with ExitStack() as stack:
        if dir is None:
            root = stack.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-"))
        else:
            root = str(dir.resolve())
        return run_async(
            _run(brokers, replicas, port, root, _settings(set or []), as_json=json, kept=dir is not None)
        )


def _settings(words: list[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for key, equals, value in pairs:
        if not (key and equals):
            raise UsageError(f"--set {key}{equals}{value}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


async def _run(
    brokers: int,
    replicas: int,
    port: int,
    root: str,
    settings: dict[str, str],
    *,
    as_json: bool,
    kept: bool,
) -> int:
    import asyncio

    from orbitmq.cluster.processes import ProcessCluster

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    begin = loop.time()
    try:
        cluster = ProcessCluster(
            brokers=brokers, replicas=replicas, root=root, name_server_port=port, settings=settings
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    async with cluster:
        if as_json:
            print_json(
                {
                    "name_server": cluster.name_server,
                    "brokers": dict(cluster.brokers),
                    "grpc": cluster.grpc,
                    "root": root,
                },
                one_line=True,
            )
        else:
            _tell(cluster, root, loop.time() - begin, kept=kept)
            for warning in _warnings(cluster):
                print(f"orbitmq up: {warning}", file=sys.stderr, flush=True)
        await _until(stop, cluster)
        if not as_json:
            print("stopping", flush=True)
    return EXIT_OK


def _warnings(cluster: ProcessCluster) -> list[str]:
    """What the servers warned of when they started, as a key that is misspelt; each once."""
    lines = [line for process in cluster.processes.values() for line in process.last_lines]
    return list(dict.fromkeys(line for line in lines if line.startswith("warning: ")))


def _tell(cluster: ProcessCluster, root: str, seconds: float, *, kept: bool) -> None:
    print(f"name server  {cluster.name_server}")
    for name, address in cluster.brokers.items():
        print(f"{name:<11}  {address}")
    print(f"data         {root}{'' if kept else ' (removed at the end; --dir keeps it)'}")
    pids = ", ".join(f"{name} {process.pid}" for name, process in cluster.processes.items())
    print(f"processes    {pids}")
    print(f"ready in {seconds:.1f} s. Try, in another terminal:\n")
    print(f"  export NAMESRV_ADDR={cluster.name_server}")
    print("  orbitmq send greetings 'Hello, world'")
    print("  orbitmq receive greetings\n")
    print(f"Clients of RocketMQ 5: gRPC {cluster.grpc}")
    print("Ctrl-C stops everything.", flush=True)


async def _until(stop: asyncio.Event, cluster: ProcessCluster) -> None:
    """Wait for the signal, or for a process that ends by itself and that no other replaces: an error.

    A broker whose group has another one may be lost: that is what replicas are for.
    """
    import asyncio

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
                print(f"orbitmq up: {ended}", file=sys.stderr)
                print("its group has another broker, so the cluster goes on", file=sys.stderr)
                again = f"orbitmq broker -c {cluster.settings_file(name)}"
                print(f"in another terminal it starts again: {again}", file=sys.stderr, flush=True)
    finally:
        for task in (stopped, *endings):
            task.cancel()
        await asyncio.gather(stopped, *endings, return_exceptions=True)
