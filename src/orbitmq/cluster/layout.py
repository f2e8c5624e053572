"""What the clusters of one call have in common: names, folders, settings and the question "does it serve"."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import NameServerError, OrbitError
from orbitmq.runtime import Clock
from orbitmq.transport.client import RemotingClient

HOST = "127.0.0.1"
MAX_BROKERS = 26
POLL_SECONDS = 0.02
POLL_TIMEOUT_MS = 1000
# A cluster for development starts with small log files; a real broker has RocketMQ's 1 GiB.
SMALL_FILES: Mapping[str, str] = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}


class ClusterError(OrbitError):
    """The cluster cannot start or did not serve in time."""


def broker_names(count: int) -> list[str]:
    """broker-a, broker-b, and so on.

    Raises:
        ValueError: not 1 to 26.
    """
    if not 1 <= count <= MAX_BROKERS:
        raise ValueError(f"brokers={count}: expected 1 to {MAX_BROKERS}")
    return [f"broker-{chr(ord('a') + index)}" for index in range(count)]


def broker_settings(
    name: str,
    *,
    cluster: str,
    port: int,
    root: str,
    name_servers: str,
    more: Mapping[str, str],
    host: str = HOST,
) -> dict[str, str]:
    """A broker.conf for one master on ``host``; ``more`` wins."""
    return {
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": host,
        "bindAddress": host,
        "listenPort": str(port),
        "namesrvAddr": name_servers,
        "storePathRootDir": posixpath.join(root, name),
        **SMALL_FILES,
        **more,
    }


async def live_brokers(client: RemotingClient, name_server: str) -> dict[str, str] | None:
    """Master's address of every broker group that ``name_server`` knows; None when it does not answer."""
    try:
        info = await NameServers(client, [name_server]).cluster_info(POLL_TIMEOUT_MS)
    except NameServerError:
        return None
    return {
        name: data.broker_addrs[0] for name, data in info.broker_addr_table.items() if 0 in data.broker_addrs
    }


async def wait_until_live(
    client: RemotingClient, clock: Clock, name_server: str, wanted: Mapping[str, str], timeout_s: float
) -> None:
    """Wait until ``name_server`` answers and knows the masters ``wanted``, addresses by name.

    Raises:
        ClusterError: not within ``timeout_s``; the text names what is missing.
    """
    deadline = clock.monotonic() + timeout_s
    while True:
        live = await live_brokers(client, name_server)
        missing = [name for name, address in wanted.items() if live is None or live.get(name) != address]
        if live is not None and not missing:
            return
        if clock.monotonic() >= deadline:
            if live is None:
                raise ClusterError(f"the name server {name_server} does not answer after {timeout_s:g} s")
            names = ", ".join(missing)
            raise ClusterError(f"{names} did not register at {name_server} within {timeout_s:g} s")
        await clock.sleep(POLL_SECONDS)
