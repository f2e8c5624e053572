"""Real processes: the slave acts for a master that is killed or frozen, and makes way when it is back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from orbitmq import Message, Producer
from orbitmq.admin import Admin
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.errors import OrbitError
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

MASTER, SLAVE = "broker-a", "broker-a-1"
SETTINGS = {"enableSlaveActingMaster": "true", "brokerNotActiveTimeoutMillis": "3000"}
PATIENCE_S = 120.0


class Look:
    """What clients and operators see of the cluster."""

    def __init__(self, cluster: ProcessCluster, admin: Admin, client: RemotingClient) -> None:
        self._cluster = cluster
        self._admin = admin
        self._client = client

    async def route(self) -> tuple[dict[int, str], bool]:
        """Brokers by the id that is shown, and whether messages can be sent to them."""
        (entry,) = await self._admin.topics.route("t")
        names = {address: name for name, address in self._cluster.brokers.items()}
        return {number: names[at] for number, at in entry.addresses.items()}, entry.writable

    async def leads(self, name: str) -> bool:
        command = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._client.request(self._cluster.brokers[name], command, 2000)
        return KVTable.decode(answer.body).table["brokerActive"] == "true"

    async def until(self, wanted: tuple[dict[int, str], bool], leader: str) -> None:
        """Wait until the route is as wanted, ``leader`` leads, and of two brokers the other one does not."""
        others = [name for name in wanted[0].values() if name != leader]
        seen: object = None
        for _ in range(int(PATIENCE_S / 0.05)):
            try:
                seen = (
                    await self.route(),
                    await self.leads(leader),
                    [await self.leads(name) for name in others],
                )
            except OrbitError as error:
                seen = error
            if seen == (wanted, True, [False] * len(others)):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{wanted} with {leader} wanted, seen {seen}")


BOTH = ({0: MASTER, 1: SLAVE}, True)
SLAVE_ONLY = ({0: SLAVE}, False)


def test_kill_freeze_and_return(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = ProcessCluster(brokers=1, replicas=2, root=str(tmp_path), settings=SETTINGS)
        async with cluster, Admin(cluster.name_server) as admin:
            async with Producer("pg", name_servers=cluster.name_server) as producer:
                await producer.send(Message("t", b"x"))
            client = RemotingClient(cluster._runtime)
            look = Look(cluster, admin, client)
            await look.until(BOTH, MASTER)
            await cluster.stop_broker(MASTER, kill=True)
            await look.until(SLAVE_ONLY, SLAVE)
            await cluster.start_broker(MASTER)
            await look.until(BOTH, MASTER)
            cluster.processes[MASTER].signal(signal.SIGSTOP)
            await look.until(SLAVE_ONLY, SLAVE)
            cluster.processes[MASTER].signal(signal.SIGCONT)
            await look.until(BOTH, MASTER)
            assert any("pre-online" in line for line in cluster.processes[MASTER].last_lines)
            await client.close()

    asyncio.run(main())


def test_a_name_server_that_stood_still_itself_loses_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {**SETTINGS, "brokerNotActiveTimeoutMillis": "5000"}
        cluster = ProcessCluster(brokers=1, root=str(tmp_path), settings=settings)
        async with cluster:
            name_server = cluster.processes["nameserver"]
            await asyncio.sleep(1)
            name_server.signal(signal.SIGSTOP)
            await asyncio.sleep(7)
            name_server.signal(signal.SIGCONT)
            await asyncio.sleep(1)
            assert not [line for line in name_server.last_lines if "broker expired" in line]

    asyncio.run(main())
