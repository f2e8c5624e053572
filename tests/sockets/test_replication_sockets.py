"""A slave on real sockets and files: its log is its master's, also what was written while it was away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from orbitmq.cluster.local import LocalCluster, Machine
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.runtime.system import system_runtime

MASTER, SLAVE = "broker-a", "broker-a-1"


def log_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


async def same_end(cluster: LocalCluster) -> None:
    master = cluster.brokers[MASTER].services.store
    slave = cluster.brokers[SLAVE].services.store
    for _ in range(3000):
        if master.max_commit_log_offset == slave.max_commit_log_offset == slave.flushed_offset:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{master.max_commit_log_offset} and {slave.max_commit_log_offset}")


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_the_slaves_files_are_the_masters(tmp_path: Path, flush: str) -> None:
    settings = {
        "flushDiskType": flush,
        "mappedFileSizeCommitLog": str(1 << 20),
        "flushIntervalCommitLog": "10",
    }

    async def main() -> None:
        async with (
            LocalCluster(
                system_runtime(), brokers=1, replicas=2, root=str(tmp_path), settings=settings
            ) as cluster,
            Producer("pg", name_servers=cluster.name_server) as producer,
        ):

            async def send() -> None:
                await asyncio.gather(*(producer.send(Message("t", b"%4000d" % n)) for n in range(300)))

            await send()
            await same_end(cluster)
            await cluster.stop_broker(SLAVE)
            await send()
            await cluster.start_broker(SLAVE)
            await send()
            await same_end(cluster)

    asyncio.run(main())
    master, slave = log_files(tmp_path / MASTER), log_files(tmp_path / SLAVE)
    assert len(master) > 2
    assert master == slave


def test_two_slaves_on_one_host_are_two_copies(tmp_path: Path) -> None:
    settings = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": "3",
        "flushDiskType": "ASYNC_FLUSH",
        "mappedFileSizeCommitLog": str(1 << 20),
    }

    async def main() -> None:
        async with (
            LocalCluster(
                system_runtime(), brokers=1, replicas=3, root=str(tmp_path), settings=settings
            ) as cluster,
            Producer("pg", name_servers=cluster.name_server) as producer,
        ):
            for number in range(20):
                await producer.send(Message("t", b"%d" % number))
                ends = {broker.services.store.max_commit_log_offset for broker in cluster.brokers.values()}
                assert len(ends) == 1

    asyncio.run(main())


def test_a_slave_connects_from_its_brokerip1(tmp_path: Path) -> None:
    """A master of RocketMQ finds its slave in the routes by the address that the connection came from."""
    hosts = {MASTER: "127.0.0.1", SLAVE: "127.0.0.2", "nameserver": "127.0.0.1"}
    runtime = system_runtime()

    async def main() -> list[str]:
        async with LocalCluster(
            runtime,
            brokers=1,
            replicas=2,
            root=str(tmp_path),
            machine_of=lambda name: Machine(runtime, hosts[name]),
        ) as cluster:
            port = cluster.brokers[MASTER].part(HaPort)
            while not port.shared.replicas.states:
                await asyncio.sleep(0.01)
            return [connection.host for connection in port.connections]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == ["127.0.0.2"]
