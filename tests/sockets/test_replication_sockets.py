"""A slave on real sockets and files: its log is its master's, also what was written while it was away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import Message, Producer
from orbitmq.auth.users import User
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.cluster.local import LocalCluster, Machine
from orbitmq.replication.link.ha_port import HaConnection, HaPort
from orbitmq.replication.link.stream_follower import StreamFollowerLink
from orbitmq.runtime.system import system_runtime
from orbitmq.wire.signing import Secret

MASTER, SLAVE = "broker-a", "broker-a-1"


def log_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


async def same_end(cluster: LocalCluster) -> None:
    master = cluster.brokers[MASTER].services.store
    slave = cluster.brokers[SLAVE].services.store
    for _ in range(6000):
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

    assert asyncio.run(asyncio.wait_for(main(), 120)) == ["127.0.0.2"]


@pytest.mark.behaviour("AU-36", "AU-37")
def test_a_slave_has_the_users_and_nobody_reads_them_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, stream = "secret-of-app-1", bytearray()
    to_master, to_slave = HaConnection.data_received, StreamFollowerLink._take

    def at_master(connection: HaConnection, data: bytes) -> None:
        stream.extend(data)
        to_master(connection, data)

    def at_slave(link: StreamFollowerLink, data: memoryview) -> None:
        stream.extend(data)
        to_slave(link, data)

    monkeypatch.setattr(HaConnection, "data_received", at_master)
    monkeypatch.setattr(StreamFollowerLink, "_take", at_slave)
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret-1"}',
        "mappedFileSizeCommitLog": str(1 << 20),
    }

    async def main() -> None:
        async with LocalCluster(
            system_runtime(), brokers=1, replicas=2, root=str(tmp_path), settings=settings
        ) as cluster:
            master, slave = (cluster.brokers[name].part(BrokerAccess) for name in (MASTER, SLAVE))
            master.users.put(User("app", Secret(secret)))
            for _ in range(6000):
                if slave.users.get("app") is not None:
                    break
                await asyncio.sleep(0.01)
            assert slave.users.get("app") == master.users.get("app")

    asyncio.run(main())
    assert len(stream) > 1000
    for text in (secret, "inner-secret-1"):
        assert text.encode() not in stream
    kept = tmp_path / SLAVE / "config" / "users.json"
    assert secret in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
