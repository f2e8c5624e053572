"""The servers of one side: OrbitMQ's brokers, or Apache's proxies with a broker in the same JVM."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.grpc_faults.network import SERVERS
from benchmarks.grpc_places import start_proxy
from benchmarks.ports import free_ports
from benchmarks.remoting import Client as Remoting
from benchmarks.servers import Apache, Ours, Server

from orbitmq import Message, Producer
from orbitmq.admin import Admin, GroupSettings

SETTINGS: Final = {"brokerIP1": SERVERS, "flushDiskType": "SYNC_FLUSH"}
# Settings of a name server that lets a slave act for its master.
NAMES: Final = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
# A JVM needs half a minute of CPU time.
REGISTERED_WITHIN_S: Final = 180.0
# On a busy machine brokers stall for seconds. Such waits are not measured.
ANSWERED_WITHIN_S: Final = 60.0
FIFO: Final = {"message.type": "FIFO"}
TRANSACTION: Final = {"message.type": "TRANSACTION"}


@dataclass(frozen=True)
class Broker:
    """A running broker; ``endpoint`` is its address for gRPC clients."""

    server: Server
    endpoint: str


class Site:
    """A name server, and brokers that keep their ports and data across restarts.

    Args:
        stack: the stack that kills the servers in the end.
    """

    def __init__(self, maker: Ours | Apache, folder: Path, stack: ExitStack) -> None:
        self._maker = maker
        self._folder = folder
        self._stack = stack
        self._ports: dict[str, int] = {}
        self.title = maker.title
        self.name_server = maker.name_server(folder, **NAMES)  # type: ignore[arg-type]
        stack.callback(self.name_server.kill)

    @property
    def is_ours(self) -> bool:
        """Whether the servers are OrbitMQ's."""
        return isinstance(self._maker, Ours)

    def beside(self, name: str) -> Site:
        """Another name server with its own brokers."""
        return Site(self._maker, self._folder / name, self._stack)

    def broker(self, name: str = "broker-a", seat: str = "master", **more: str) -> Broker:
        """Start or restart a broker.

        Args:
            seat: its role in its group; each has its own ports and folder.
        """
        place = f"{name}-{seat}"
        if place not in self._ports:
            self._ports[place] = free_ports(7) + 2
        port, folder, settings = self._ports[place], self._folder / place, {**SETTINGS, **more}
        names = self.name_server.address
        if isinstance(self._maker, Ours):
            server = self._maker.broker(folder, names, port=port, name=name, **settings)  # type: ignore[arg-type]
        else:
            server, port = start_proxy(self._maker, folder, names, port=port, name=name, **settings)
        self._stack.callback(server.kill)
        return Broker(server, f"{SERVERS}:{port}")

    def wait_for(self, brokers: int = 1) -> None:
        """Wait until this many brokers have registered at the name server."""

        async def wait() -> None:
            async with Admin(self.name_server.address) as admin, asyncio.timeout(REGISTERED_WITHIN_S):
                while len(await admin.brokers.list()) < brokers:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

        asyncio.run(wait())

    def create(
        self,
        topic: str,
        queues: int = 4,
        attributes: Mapping[str, str] | None = None,
        *,
        groups: int = 1,
    ) -> None:
        """Create a topic, and a consumer group of the same name, which is ordered if ``message.type`` is
        FIFO.

        Args:
            groups: number of broker groups, all of which need a master.
        """

        async def make() -> None:
            async with Admin(self.name_server.address) as admin:
                async with asyncio.timeout(REGISTERED_WITHIN_S):
                    have: Sequence[str] = ()
                    while len(have) < groups:
                        have = await admin.topics.create(topic, queues=queues, attributes=attributes)
                await admin.groups.create(topic, GroupSettings(orderly=attributes == FIFO))

        asyncio.run(make())

    def send(self, topic: str, bodies: Sequence[str]) -> None:
        """Send messages one after the other, over remoting."""

        async def send() -> None:
            async with Producer("faults", name_servers=self.name_server.address) as producer:
                for body in bodies:
                    await producer.send(Message(topic, body.encode()), timeout=ANSWERED_WITHIN_S)

        asyncio.run(send())


def stored(broker: Broker, topic: str, queues: int) -> int:
    """Number of messages of a topic at a broker."""
    with Remoting(broker.server.port) as client:
        return sum(client.max_offset(topic, queue) for queue in range(queues))
