"""The common parts of all kinds of clusters: names, folders, settings, and the wait until the brokers
serve."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import NameServerError, OrbitError, ValidationError
from orbitmq.runtime import Clock
from orbitmq.transport.client import RemotingClient

HOST = "127.0.0.1"
MAX_BROKERS = 26
MAX_REPLICAS = 9
POLL_SECONDS = 0.02
POLL_TIMEOUT_MS = 1000
# A cluster for development starts with small log files; a real broker has RocketMQ's 1 GiB.
SMALL_FILES: Mapping[str, str] = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}


class ClusterError(OrbitError):
    """The cluster cannot start or did not serve in time."""


@dataclass(frozen=True, slots=True)
class Member:
    """One broker of a cluster.

    Attributes:
        name: the broker's name in the cluster: the group's name for the master, ``broker-a-1`` for its first
            slave.
        group: its brokerName.
        broker_id: 0 is the master.
    """

    name: str
    group: str
    broker_id: int


def members(brokers: int, replicas: int = 1) -> list[Member]:
    """The brokers of ``brokers`` groups, broker-a, broker-b and so on; each a master and its slaves.

    Raises:
        ValidationError: not 1 to 26 groups, or not 1 to 9 replicas.
    """
    if not 1 <= brokers <= MAX_BROKERS:
        raise ValidationError(f"brokers={brokers}: expected 1 to {MAX_BROKERS}")
    if not 1 <= replicas <= MAX_REPLICAS:
        raise ValidationError(f"replicas={replicas}: expected 1 to {MAX_REPLICAS}")
    groups = [f"broker-{chr(ord('a') + index)}" for index in range(brokers)]
    return [
        Member(f"{group}-{number}" if number else group, group, number)
        for group in groups
        for number in range(replicas)
    ]


def broker_settings(
    member: Member,
    *,
    cluster: str,
    port: int,
    ha_port: int,
    root: str,
    name_servers: str,
    more: Mapping[str, str],
    host: str = HOST,
    grpc_port: int = 0,
) -> dict[str, str]:
    """A broker.conf for one broker on ``host``; ``more`` wins, but does not make a slave a master.

    Args:
        grpc_port: the port for gRPC beside the broker's own port, which serves gRPC too; 0: none, as brokers
            of one machine cannot share a port.
    """
    settings = {
        "brokerClusterName": cluster,
        "brokerName": member.group,
        "brokerId": "0",
        "brokerIP1": host,
        "bindAddress": host,
        "listenPort": str(port),
        "haListenPort": str(ha_port),
        "grpcServerPort": str(grpc_port),
        "namesrvAddr": name_servers,
        "storePathRootDir": posixpath.join(root, member.name),
        "slaveReadEnable": "true",
        **SMALL_FILES,
        **more,
    }
    if member.broker_id:
        settings |= {"brokerId": str(member.broker_id), "brokerRole": "SLAVE"}
    return settings


def settings_of_all(replicas: int, more: Mapping[str, str]) -> dict[str, str]:
    """The settings that override those of every broker: ``more``, and the number of replicas."""
    return {"totalReplicas": str(replicas), **more}


def name_server_settings(brokers: Mapping[str, str]) -> dict[str, str]:
    """The name server's settings for these settings of the brokers: whether it shows acting masters."""
    acting = brokers.get("enableSlaveActingMaster", "false")
    return {"supportActingMaster": acting, "notifyMinBrokerIdChanged": acting}


async def live_brokers(client: RemotingClient, name_server: str) -> dict[tuple[str, int], str] | None:
    """Address, by group and id, of every broker that ``name_server`` knows; None when it does not answer."""
    try:
        info = await NameServers(client, (name_server,)).cluster_info(POLL_TIMEOUT_MS)
    except NameServerError:
        return None
    return {
        (group, broker_id): address
        for group, data in info.broker_addr_table.items()
        for broker_id, address in data.broker_addrs.items()
    }


async def wait_until_live(
    client: RemotingClient, clock: Clock, name_server: str, wanted: Mapping[Member, str], timeout_s: float
) -> None:
    """Wait until ``name_server`` answers and knows the brokers ``wanted``, with their addresses.

    Raises:
        ClusterError: this took longer than ``timeout_s``; the text names the missing servers.
    """
    deadline = clock.monotonic() + timeout_s
    while True:
        live = await live_brokers(client, name_server)
        missing = [
            each.name
            for each, address in wanted.items()
            if live is None or live.get((each.group, each.broker_id)) != address
        ]
        if live is not None and not missing:
            return
        if clock.monotonic() >= deadline:
            if live is None:
                raise ClusterError(f"the name server {name_server} does not answer after {timeout_s:g} s")
            names = ", ".join(missing)
            raise ClusterError(f"{names} did not register at {name_server} within {timeout_s:g} s")
        await clock.sleep(POLL_SECONDS)
