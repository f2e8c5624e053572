"""A cluster of real processes on this host: what ``orbitmq up`` and the demo start."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from typing import Any

from orbitmq.cluster.layout import (
    HOST,
    ClusterError,
    broker_settings,
    members,
    name_server_settings,
    settings_of_all,
    wait_until_live,
)
from orbitmq.message.numbers import whole_number
from orbitmq.runtime import Runtime, system_runtime
from orbitmq.runtime.ports import claim, free_ports, is_free, release
from orbitmq.runtime.processes import ChildProcess, ProcessError
from orbitmq.settings import properties_text
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.addresses import joined

MODULE = "orbitmq.cli.main"
READY_SECONDS = 120.0
STOP_SECONDS = 30.0
# The default port of RocketMQ's proxy, which clients of RocketMQ 5 connect to.
GRPC_PORT = 8081


class ProcessCluster:
    """One name server and some broker groups, each a process, on loopback ports.

    Example::

        async with ProcessCluster(brokers=2, root="/tmp/orbitmq") as cluster:
            print(cluster.name_server)
    """

    def __init__(
        self,
        *,
        brokers: int = 2,
        replicas: int = 1,
        root: str,
        cluster: str = "DefaultCluster",
        name_server_port: int = 0,
        settings: Mapping[str, str] | None = None,
        runtime: Runtime | None = None,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        """Nothing starts yet.

        Args:
            brokers: how many groups.
            replicas: brokers in each group: a master, broker-a, and its slaves, broker-a-1 and so on.
            root: folder of the data; a cluster started again on it has its messages.
            name_server_port: 0 takes any free port.
            settings: RocketMQ keys put over the broker.conf of every broker.

        Raises:
            ValidationError: more than 26 groups, or none; more than 9 replicas, or none.
        """
        self._members = {member.name: member for member in members(brokers, replicas)}
        self._root = root
        self._cluster = cluster
        self._name_server_port = name_server_port
        # No other program gets these ports, even while a broker is down.
        self._claimed: list[int] = []
        self._settings = settings_of_all(replicas, settings or {})
        self._runtime = runtime or system_runtime()
        self._ready_seconds = ready_seconds
        self._arguments: dict[str, list[str]] = {}
        self._addresses: dict[str, str] = {}
        self._grpc_port = 0
        self.processes: dict[str, ChildProcess] = {}

    async def __aenter__(self) -> ProcessCluster:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def name_server(self) -> str:
        """The name server as "host:port"."""
        return f"{HOST}:{self._name_server_port}"

    @property
    def brokers(self) -> Mapping[str, str]:
        """Address of every broker by its name."""
        return dict(self._addresses)

    @property
    def grpc(self) -> str:
        """Where gRPC clients find the first broker: port 8081 if that was free, else the broker's own."""
        return joined(HOST, self._grpc_port) if self._grpc_port else next(iter(self._addresses.values()))

    @property
    def grpc_port_is_taken(self) -> bool:
        """Whether gRPC has only the broker's own port because another program has port 8081."""
        return not self._grpc_port and "grpcServerPort" not in self._settings

    def settings_file(self, name: str) -> str:
        """The broker.conf of a broker; a broker that was lost starts again with it."""
        return posixpath.join(self._root, "conf", f"{name}.conf")

    def stands_in(self, name: str) -> bool:
        """Whether another broker of the same group runs."""
        member = self._members.get(name)
        return member is not None and any(
            other.group == member.group and self.processes[other.name].exit_code is None
            for other in self._members.values()
            if other.name != name and other.name in self.processes
        )

    async def start(self) -> None:
        """Start all processes and wait until the name server knows every broker.

        Raises:
            ClusterError: a port is taken, a process ended, or a server did not serve in time. All are stopped
                then.
        """
        if self._name_server_port and not is_free(self._name_server_port, HOST):
            raise ClusterError(
                f"port {self._name_server_port} of the name server is in use: stop the program that listens "
                "there, or choose another port (orbitmq up --port)"
            )
        ports = free_ports(2 * len(self._members) + 1)
        self._claimed = list(ports)
        self._name_server_port = self._name_server_port or ports.pop()
        self._claim_grpc_port()
        self._write_settings(ports)
        try:
            await asyncio.gather(*(self._launch(name) for name in self._arguments))
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, timeout_s: float = STOP_SECONDS) -> None:
        """End the brokers, then the name server, with SIGTERM; processes that take longer get SIGKILL."""
        brokers = [self.processes.pop(name) for name in self._members if name in self.processes]
        await asyncio.gather(*(process.stop(timeout_s) for process in brokers))
        for process in self.processes.values():
            await process.stop(timeout_s)
        self.processes.clear()
        release(self._claimed)

    async def stop_broker(self, name: str, *, kill: bool = False) -> None:
        """End one broker with SIGTERM, or with SIGKILL."""
        process = self.processes.pop(name)
        await (process.kill() if kill else process.stop(STOP_SECONDS))

    async def start_broker(self, name: str) -> None:
        """Start a broker that was ended, on its old port and data, and wait until it has registered.

        Raises:
            ClusterError: the broker does not serve in time, or ended again.
        """
        await self._launch(name)
        await self._until_ready()

    def _claim_grpc_port(self) -> None:
        given = self._settings.get("grpcServerPort")
        if given is not None:
            self._grpc_port = whole_number(given, 65535) or 0
            return
        wanted = range(GRPC_PORT, GRPC_PORT + 1)
        if is_free(GRPC_PORT, HOST) and claim(wanted):
            self._claimed.append(GRPC_PORT)
            self._grpc_port = GRPC_PORT

    def _write_settings(self, ports: list[int]) -> None:
        name_server = {
            "listenPort": str(self._name_server_port),
            "bindAddress": HOST,
            "kvConfigPath": posixpath.join(self._root, "nameserver", "kvConfig.json"),
            **name_server_settings(self._settings),
        }
        self._arguments["nameserver"] = ["nameserver", "-c", self._write("nameserver", name_server)]
        for name, member in self._members.items():
            settings = broker_settings(
                member,
                cluster=self._cluster,
                port=ports.pop(),
                ha_port=ports.pop(),
                root=self._root,
                name_servers=self.name_server,
                more=self._settings,
                grpc_port=0 if self._arguments.keys() - {"nameserver"} else self._grpc_port,
            )
            self._arguments[name] = ["broker", "-c", self._write(name, settings)]
            self._addresses[name] = joined(settings["brokerIP1"], settings["listenPort"])

    def _write(self, name: str, settings: Mapping[str, str]) -> str:
        path = self.settings_file(name)
        self._runtime.files.make_dirs(posixpath.dirname(path))
        self._runtime.files.write_atomic(path, properties_text.render(settings).encode(), sync=False)
        return path

    async def _launch(self, name: str) -> None:
        try:
            self.processes[name] = await ChildProcess.start_python(name, MODULE, self._arguments[name])
        except ProcessError as error:
            raise ClusterError(str(error)) from error

    async def _until_ready(self) -> None:
        client = RemotingClient(self._runtime)
        wanted = {
            member: self._addresses[name] for name, member in self._members.items() if name in self.processes
        }
        ready = asyncio.create_task(
            wait_until_live(client, self._runtime.clock, self.name_server, wanted, self._ready_seconds)
        )
        endings = {asyncio.create_task(p.wait()): p for p in self.processes.values()}
        watched: set[asyncio.Task[Any]] = {ready, *endings}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task, process in endings.items():
                if task.done():
                    raise ClusterError(str(process.ended()))
            await ready
        finally:
            for watcher in watched:
                watcher.cancel()
            await asyncio.gather(*watched, return_exceptions=True)
            await client.close()
