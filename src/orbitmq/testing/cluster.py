"""A cluster on real sockets and real files for the duration of a test, usable from any thread and any
loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from orbitmq.cluster.layout import ClusterError
from orbitmq.cluster.local import LocalCluster
from orbitmq.runtime import system_runtime
from orbitmq.runtime.loop_thread import LoopThread


class RunningCluster:
    """A cluster on the event loop of a background thread; all methods block.

    Clients of ``orbitmq`` and of ``orbitmq.sync``, and other processes, reach it by :attr:`name_server`.
    """

    def __init__(self, cluster: LocalCluster, loop: LoopThread) -> None:
        self._cluster = cluster
        self._loop = loop

    @property
    def name_server(self) -> str:
        """The name server's address, "host:port"."""
        return self._cluster.name_server

    @property
    def brokers(self) -> dict[str, str]:
        """The address, "host:port", of every running broker, by name."""
        return {name: broker.address for name, broker in list(self._cluster.brokers.items())}

    @property
    def grpc(self) -> str:
        """The address, "host:port", for gRPC clients (RocketMQ 5), at one of the running brokers.

        Raises:
            ClusterError: no broker runs.
        """
        for address in self.brokers.values():
            return address
        raise ClusterError("no broker runs, so there is no address for gRPC clients")

    def stop_broker(self, name: str) -> None:
        """Stop one broker cleanly.

        Raises:
            KeyError: no broker of that name runs.
        """
        self._loop.wait(self._cluster.stop_broker(name))

    def start_broker(self, name: str) -> None:
        """Start a stopped broker on its old port and data, and wait until it has registered.

        Raises:
            ClusterError: the broker did not register in time.
        """
        self._loop.wait(self._cluster.start_broker(name))

    def stop_name_server(self) -> None:
        """Stop the name server; the brokers keep running."""
        self._loop.wait(self._cluster.stop_name_server())

    def start_name_server(self) -> None:
        """Start the name server again on its old port, and wait for the brokers."""
        self._loop.wait(self._cluster.start_name_server())


@contextmanager
def running_cluster(
    root: str, *, brokers: int = 1, replicas: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[RunningCluster]:
    """A name server and ``brokers`` groups on free ports of 127.0.0.1, stopped at the end of the block.

    Args:
        root: folder of the data.
        replicas: brokers in each group; the slaves' names are broker-a-1 and so on.
        settings: settings of every broker, by RocketMQ's keys.

    Raises:
        ValidationError: ``brokers`` is not 1 to 26, or ``replicas`` is not 1 to 9.
        ClusterError: a key of ``settings`` is not supported, or the cluster did not start in time.
    """
    cluster = LocalCluster(system_runtime(), brokers=brokers, replicas=replicas, root=root, settings=settings)
    loop = LoopThread("orbitmq-test-cluster")
    try:
        loop.wait(cluster.start())
        try:
            yield RunningCluster(cluster, loop)
        finally:
            loop.wait(cluster.stop())
    finally:
        loop.stop()
