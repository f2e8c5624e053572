"""A cluster inside this process: for tests, and for programs that bring their own broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.cluster.brokers import make_broker
from orbitmq.cluster.layout import (
    HOST,
    ClusterError,
    broker_settings,
    members,
    name_server_settings,
    settings_of_all,
    wait_until_live,
)
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime import Runtime
from orbitmq.transport.client import RemotingClient

READY_SECONDS = 60.0
NAME_SERVER = "nameserver"


class Machine(NamedTuple):
    """The machine of a server: its runtime and its address."""

    runtime: Runtime
    host: str


class LocalCluster:
    """One name server and some broker groups on the ports, files and clock of one runtime.

    Example::

        async with LocalCluster(system_runtime(), brokers=1, root="/tmp/orbitmq") as cluster:
            async with Producer("my_group", name_servers=cluster.name_server) as producer:
                await producer.send(Message("TopicA", b"hello"))
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        brokers: int = 2,
        replicas: int = 1,
        root: str,
        cluster: str = "DefaultCluster",
        name_server_port: int = 0,
        settings: Mapping[str, str] | None = None,
        ready_seconds: float = READY_SECONDS,
        machine_of: Callable[[str], Machine] | None = None,
    ) -> None:
        """Nothing starts yet.

        Args:
            brokers: how many groups.
            replicas: brokers in each group: a master, broker-a, and its slaves, broker-a-1 and so on.
            root: folder of the data; a cluster started again on it has its messages.
            name_server_port: 0 takes any free port.
            settings: RocketMQ keys put over the settings of every broker.
            machine_of: returns the machine of the broker with that name, or of ``nameserver``; called at each
                start. By default all run on ``runtime``, with the address 127.0.0.1.

        Raises:
            ValidationError: more than 26 groups, or none; more than 9 replicas, or none.
            ClusterError: ``settings`` holds a key that the broker does not support.
        """
        self._runtime = runtime
        self._members = {member.name: member for member in members(brokers, replicas)}
        self._root = root
        self._cluster = cluster
        self._name_server_port = name_server_port
        self._settings = settings_of_all(replicas, settings or {})
        self._ready_seconds = ready_seconds
        self._machine_of = machine_of or (lambda _: Machine(runtime, HOST))
        self._name_server_host = self._machine_of(NAME_SERVER).host
        self._name_server: NameServer | None = None
        # The port and the HA port of each broker, by its name.
        self._ports: dict[str, tuple[int, int]] = {}
        self.brokers: dict[str, Broker] = {}
        for name in self._members:
            self._broker_config(name)

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def name_server(self) -> str:
        """The name server as "host:port"."""
        return f"{self._name_server_host}:{self._name_server_port}"

    async def start(self) -> None:
        """Start everything and wait until the name server knows every broker.

        Raises:
            ClusterError: a broker did not register in time. All is stopped then.
        """
        try:
            await self._launch_name_server()
            for name in self._members:
                await self._launch(name)
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the brokers, then the name server."""
        for name in list(self.brokers):
            await self.brokers.pop(name).stop()
        await self.stop_name_server()

    async def stop_broker(self, name: str) -> None:
        """Stop one broker cleanly."""
        await self.brokers.pop(name).stop()

    async def start_broker(self, name: str) -> None:
        """Start a stopped broker on its old port and data, and wait until it has registered.

        Raises:
            ClusterError: the broker did not register in time.
        """
        await self._launch(name)
        await self._until_ready()

    async def stop_name_server(self) -> None:
        """Stop the name server; the brokers go on."""
        if self._name_server is not None:
            await self._name_server.stop()
            self._name_server = None

    async def start_name_server(self) -> None:
        """Start the name server again on its old port, with an empty route table, and wait for the brokers.

        Raises:
            ClusterError: a broker did not register again in time.
        """
        await self._launch_name_server()
        await self._until_ready()

    async def _launch_name_server(self) -> None:
        machine = self._machine_of(NAME_SERVER)
        config = NameServerConfig(bind_address=machine.host, listen_port=self._name_server_port)
        config, _ = config.updated(name_server_settings(self._settings))
        self._name_server = NameServer(machine.runtime, config)
        await self._name_server.start()
        self._name_server_port = self._name_server.port

    async def _launch(self, name: str) -> None:
        broker = make_broker(self._machine_of(name).runtime, self._broker_config(name))
        self.brokers[name] = broker
        await broker.start()
        self._ports[name] = broker.port, broker.services.registration.ha_port

    def _broker_config(self, name: str) -> BrokerConfig:
        port, ha_port = self._ports.get(name, (0, 0))
        settings = broker_settings(
            self._members[name],
            cluster=self._cluster,
            port=port,
            ha_port=ha_port,
            root=self._root,
            name_servers=self.name_server if self._name_server_port else "",
            more=self._settings,
            host=self._machine_of(name).host,
        )
        config, warnings = BrokerConfig().updated(settings)
        if warnings:
            raise ClusterError("; ".join(warnings))
        return config

    async def _until_ready(self) -> None:
        client = RemotingClient(self._runtime)
        try:
            wanted = {self._members[name]: broker.address for name, broker in self.brokers.items()}
            await wait_until_live(client, self._runtime.clock, self.name_server, wanted, self._ready_seconds)
        finally:
            await client.close()
