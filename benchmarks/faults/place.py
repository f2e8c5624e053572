"""Two broker groups, each a master and a slave, and name servers: real processes on loopback addresses."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.faults.disks import SlowDisks
from benchmarks.faults.forgetful import ForgetfulDisks
from benchmarks.faults.relay import End, Link
from benchmarks.ports import free_ports
from benchmarks.servers import Apache, Ours, Server, ServerError

from orbitmq.admin import Admin
from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import OrbitError
from orbitmq.runtime import system_runtime
from orbitmq.transport.client import RemotingClient

READY_S = 180.0
JAVA_READY_S = 300.0
"""A JVM needs half a minute of CPU time."""
POLL_S = 0.02
FILE_BYTES = 64 * 1024 * 1024
NAME_SERVER, OTHER_NAME_SERVER = "ns", "ns2"
MASTER, SLAVE, OTHER, OTHER_SLAVE = "a0", "a1", "b0", "b1"

ACTING: Mapping[str, str] = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "totalReplicas": "2",
    "inSyncReplicas": "1",
    "minInSyncReplicas": "1",
}
DEGRADING: Mapping[str, str] = {
    **ACTING,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "enableAutoInSyncReplicas": "true",
}
STRICT: Mapping[str, str] = {
    **ACTING,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "minInSyncReplicas": "2",
}


@dataclass(frozen=True, slots=True)
class Seat:
    """The addresses of one broker: ``bound`` is its own address, ``announced`` the one that it announces.

    ``names`` is the address of the name servers for this broker.
    """

    name: str
    group: str
    broker_id: int
    bound: End
    announced: End
    ha_port: int
    names: Sequence[End]


class Place:
    """The servers of one run.

    Args:
        relayed: whether each broker is behind a relay, with links named ``a0 clients``, ``a0 ha`` and one for
            each name server, ``a0 ns``. Only for OrbitMQ's brokers: Apache's HA port listens on every
            address.
        names: the brokers of the run, out of a0, a1, b0 and b1.
        settings: the settings of every broker.
        slow_disks: whether the brokers' disks can be slowed down, see :attr:`disks`.
        forgetful: whether a broker's unflushed data can be taken from its disk, see :meth:`lose_power`. The
            nursery of ``maker`` runs with the library of :func:`benchmarks.faults.forgetful.library`.
        name_servers: names of the name servers; faults hit the first one, :data:`NAME_SERVER`.
    """

    def __init__(
        self,
        maker: Ours | Apache,
        folder: Path,
        *,
        relayed: bool = False,
        names: Sequence[str] = (MASTER, SLAVE, OTHER, OTHER_SLAVE),
        settings: Mapping[str, str] = ACTING,
        slow_disks: bool = False,
        forgetful: bool = False,
        name_servers: int = 1,
    ) -> None:
        self._maker = maker
        self._folder = folder
        self._relayed = relayed
        self._settings = {"mappedFileSizeCommitLog": str(FILE_BYTES), **settings}
        self._names = names
        self.disks = SlowDisks(folder / "disks") if slow_disks else None
        self._forgetful = ForgetfulDisks(folder / "unflushed") if forgetful else None
        self.seats: dict[str, Seat] = {}
        self.links: dict[str, Link] = {}
        self.running: dict[str, Server] = {}
        self._name_servers = (NAME_SERVER, OTHER_NAME_SERVER)[:name_servers]
        self._name_server_ports: dict[str, int] = {}
        self.client = RemotingClient(system_runtime())

    # -- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Place:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all servers; wait until the name server has every broker with its id, and the masters
        lead.
        """
        for name in self._name_servers:
            await self.start_name_server(name)
        first = free_ports(len(self._names) * 5)
        for number, name in enumerate(self._names):
            await self._seat(name, number, first + 5 * number + 2)
        # Apache's masters start first: a slave that is alone would act until its master has started.
        # OrbitMQ's slave waits 5 s before it acts; but a master that finds no slave for that long leads
        # without granting queue locks for 30 s (LK-11).
        rounds = [(0,), (1,)] if isinstance(self._maker, Apache) else [(0, 1)]
        for ids in rounds:
            seats = [seat for seat in self.seats.values() if seat.broker_id in ids]
            for seat in seats:
                self.launch(seat.name)
            if seats:
                await self.until_registered(*(seat.name for seat in seats))
        await self._until_leading()

    async def _until_leading(self) -> None:
        """Wait until every started master leads.

        A master that began alone and without a log unregisters for a moment when its slave appears, because
        it first asks whether the slave has a log (behaviour PO-24).
        """
        deadline = time.monotonic() + READY_S
        masters = {seat.group for seat in self.seats.values() if seat.broker_id == 0}
        async with Admin(self.sound_name_server) as admin:
            while True:
                with contextlib.suppress(OrbitError):
                    states = await admin.brokers.states()
                    leads = {s.broker.name for s in states if s.role == "master" and not s.problem}
                    if masters <= leads:
                        return
                if time.monotonic() > deadline:
                    raise ServerError(f"not all of {sorted(masters)} lead after {READY_S:.0f} s")
                await asyncio.sleep(POLL_S)

    async def _seat(self, name: str, number: int, port: int) -> None:
        bound = announced = names = "127.0.0.1"
        if self._relayed:
            # The brokers' own addresses, and the addresses at which the relay listens for them.
            bound, announced, names = (f"127.0.{net}.{number + 1}" for net in (1, 2, 3))
        asked = {ns: End(names, at) for ns, at in self._name_server_ports.items()}
        seat = Seat(
            name,
            f"broker-{name[0]}",
            int(name[1]),
            End(bound, port),
            End(announced, port),
            port + 1,
            list(asked.values()),
        )
        self.seats[name] = seat
        if self._relayed:
            ends = {
                "clients": (seat.announced, seat.bound),
                "ha": (End(announced, seat.ha_port), End(bound, seat.ha_port)),
                **{ns: (end, End("127.0.0.1", end.port)) for ns, end in asked.items()},
            }
            for what, (listen, target) in ends.items():
                link = Link(f"{name} {what}", listen, target)
                self.links[link.name] = link
                await link.start()

    async def stop(self) -> None:
        """End all processes, whatever their state."""
        for link in self.links.values():
            link.heal()
        for name in sorted(self.running, reverse=True):
            server = self.running.pop(name)
            if server.process.poll() is None:
                server.kill()
        for link in self.links.values():
            await link.stop()
        await self.client.close()

    # -- processes -------------------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        """The addresses of all name servers, for clients."""
        return ";".join(f"127.0.0.1:{port}" for port in self._name_server_ports.values())

    @property
    def sound_name_server(self) -> str:
        """The last name server, which no fault hits if there are two."""
        return f"127.0.0.1:{self._name_server_ports[self._name_servers[-1]]}"

    async def start_name_server(self, name: str = NAME_SERVER) -> None:
        """Start a name server, on its old port if it ran before."""
        port = self._name_server_ports.setdefault(name, free_ports())
        self.running[name] = await asyncio.to_thread(
            self._maker.name_server,
            self._folder / name,
            port=port,
            # Otherwise it would also listen on the relay's addresses.
            bindAddress="127.0.0.1",
            supportActingMaster=self._settings.get("enableSlaveActingMaster", "false"),
            notifyMinBrokerIdChanged=self._settings.get("enableSlaveActingMaster", "false"),
        )

    def launch(self, name: str) -> None:
        """Start a broker without waiting for it, on its old port and disk if it ran before."""
        seat = self.seats[name]
        settings = {**self._settings, "brokerIP1": seat.announced.host, "brokerIP2": seat.announced.host}
        if seat.broker_id:
            settings |= {"brokerId": str(seat.broker_id), "brokerRole": "SLAVE"}
        if self._relayed:
            settings |= {"bindAddress": seat.bound.host}
        more: dict[str, Any] = settings
        maker = self._maker
        if self.disks is not None and isinstance(maker, Ours):
            maker = replace(maker, env={**maker.env, **self.disks.environment(name)})
        if self._forgetful is not None and isinstance(maker, Ours):
            more_env = self._forgetful.environment(name, self._folder / name)
            maker = replace(maker, env={**maker.env, **more_env})
        self.running[name] = maker.broker(
            self._folder / name,
            ";".join(str(end) for end in seat.names),
            port=seat.bound.port,
            name=seat.group,
            wait=False,
            **more,
        )

    def kill(self, name: str) -> None:
        """Kill a server with SIGKILL."""
        self.running.pop(name).kill()

    async def term(self, name: str) -> float:
        """Stop a server with SIGTERM; returns the seconds until its process has ended."""
        server = self.running.pop(name)
        await asyncio.to_thread(server.stop, 90.0)
        return server.stopped_s

    def lose_power(self, name: str) -> None:
        """Remove unflushed data from the disk of a broker that has ended or was killed."""
        assert name not in self.running
        assert self._forgetful is not None
        self._forgetful.forget(name)

    def freeze(self, name: str) -> None:
        self.running[name].pause()

    def thaw(self, name: str) -> None:
        self.running[name].resume()

    def empty(self, name: str) -> None:
        """Remove the disk of a broker that does not run."""
        assert name not in self.running
        shutil.rmtree(self._folder / name / "store")

    def log_lines(self, name: str) -> int:
        """Number of lines that a server has logged so far, since its first start."""
        return self.running[name].log.read_bytes().count(b"\n")

    # -- requests to the name server ---------------------------------------------------------------------

    async def registered(self) -> dict[tuple[str, int], str]:
        """The brokers' addresses by group and id; empty if the name server does not answer."""
        try:
            info = await NameServers(self.client, (self.sound_name_server,)).cluster_info(1000)
        except OrbitError:
            return {}
        return {
            (group, number): address
            for group, data in info.broker_addr_table.items()
            for number, address in data.broker_addrs.items()
        }

    async def until_registered(self, *names: str) -> None:
        """Wait until the name server has these brokers.

        Raises:
            ServerError: a broker did not register in time, or ended.
        """
        timeout_s = JAVA_READY_S if isinstance(self._maker, Apache) else READY_S
        deadline = time.monotonic() + timeout_s
        while True:
            known = await self.registered()
            missing = [n for n in names if (self.seats[n].group, self.seats[n].broker_id) not in known]
            if not missing:
                return
            for name in missing:
                server = self.running[name]
                if server.process.poll() is not None:
                    raise ServerError(f"{name} ended:\n{server.tail()}")
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{missing} not registered after {timeout_s:.0f} s:\n{self.running[missing[0]].tail()}"
                )
            await asyncio.sleep(POLL_S)
