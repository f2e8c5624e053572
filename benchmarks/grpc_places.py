"""The two systems that serve gRPC: OrbitMQ's broker, and Apache's proxy with its broker in one JVM.

Both flush each message to disk before its answer. The rows of :mod:`benchmarks.grpc` measure one system while
the other one is paused.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ports import free_ports
from benchmarks.remoting import HEART_BEAT, Client
from benchmarks.servers import (
    PEER_VERSION,
    POM,
    Apache,
    Ours,
    Server,
    ServerError,
    broker_properties,
    classpath,
    start,
    wait_for_route,
    write_properties,
)

TOPIC = "grpc"
QUEUES = 8
HEAP_MB = 1024
# The limit of waits for events that should happen at once.
LIMIT_S = 60


@dataclass
class Place:
    """One of the two systems while it runs.

    Attributes:
        server: the server whose CPU is counted; its port is for remoting.
        name_server: its name server.
        port: its gRPC port.
    """

    title: str
    server: Server
    name_server: Server
    port: int
    warmup_s: float

    @property
    def endpoint(self) -> str:
        """The address for gRPC clients."""
        return f"127.0.0.1:{self.port}"

    def stored(self, topic: str = TOPIC) -> int:
        """Number of messages of the topic."""
        with Client(self.server.port) as client:
            return sum(client.max_offset(topic, queue) for queue in range(QUEUES))

    def prepare(self, topic: str, group: str) -> None:
        """Create a topic and a group, and wait until clients find them."""
        with Client(self.server.port) as client:
            client.create_topic(topic, QUEUES)
            client.create_group(group)
        wait_for_route(self.name_server, topic)


@contextmanager
def ours(folder: Path) -> Iterator[Place]:
    """OrbitMQ's broker."""
    maker = Ours()
    with _running(maker, folder) as (name_server, kept):
        broker = kept(
            maker.broker(folder, name_server.address, flushDiskType="SYNC_FLUSH", grpcServerPort="0")
        )
        yield Place(maker.title, broker, name_server, broker.port, maker.warmup_s)


@contextmanager
def apache(folder: Path) -> Iterator[Place]:
    """Apache's proxy with a broker in the same JVM; raises as ``classpath`` does."""
    maker = Apache(proxy_jars(), heap_mb=HEAP_MB)
    with _running(maker, folder) as (name_server, kept):
        port = free_ports(7) + 2
        server, grpc_port = start_proxy(maker, folder, name_server.address, port, flushDiskType="SYNC_FLUSH")
        kept(server)
        yield Place(f"{maker.title}, proxy -pm local", server, name_server, grpc_port, maker.warmup_s)


def proxy_jars() -> str:
    """The class path of Apache's proxy; raises as ``classpath`` does."""
    return classpath(f"proxy-{PEER_VERSION}", POM, f"-Drocketmq.version={PEER_VERSION}", "-Pproxy")


def start_proxy(
    maker: Apache, folder: Path, name_server: str, port: int, *, name: str = "broker-a", **more: str
) -> tuple[Server, int]:
    """Start Apache's proxy with a broker in the same JVM; returns the server and its gRPC port.

    Args:
        maker: Apache's servers, with the jars of :func:`proxy_jars`.
        port: the broker's port; the two ports before it and the four after it are also used.
        more: further settings of the broker.
    """
    properties = broker_properties(port, folder / "store", name_server, name=name, **more)
    broker = write_properties(folder / "broker.conf", properties)
    grpc_port = port + 3
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": name_server,
        "grpcServerPort": grpc_port,
        "remotingListenPort": port + 4,
    }
    proxy = folder / "rmq-proxy.json"
    proxy.write_text(json.dumps(settings))
    main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local", "-n", name_server]
    command = [*maker.java(folder, maker.heap_mb), *main, "-pc", str(proxy), "-bc", str(broker)]
    server = start("apache-proxy", command, port, folder, HEART_BEAT)
    _wait_for_port(grpc_port)  # the proxy opens its port after the broker's
    return server, grpc_port


def _wait_for_port(port: int) -> None:
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise ServerError(f"port {port} is not open after {LIMIT_S} s: {error}") from None
            time.sleep(0.1)


@contextmanager
def _running(maker: Ours | Apache, folder: Path) -> Iterator[tuple[Server, Any]]:
    """A name server, and a function that registers a server to be ended with the block."""
    with ExitStack() as stack:

        def kept(server: Server) -> Server:
            stack.callback(server.kill)
            return server

        yield kept(maker.name_server(folder)), kept
