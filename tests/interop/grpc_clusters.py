"""Cells of `make interop-grpc` with several brokers and one endpoint, and the commonest wrong endpoint.

Two brokers, of which one is killed or stopped, and started again, while a producer and a push consumer work:
every message is sent and arrives, and some arrive also while the broker is away. An Apache broker beside
ours: clients are led to ours. The name server's port: the client reads a broker's address.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.servers import Apache, Ours, PeerUnavailableError, Server, apache_classpath
from tests.interop.grpc_clients import LIMIT_S, Client
from tests.interop.grpc_running import Running

from orbitmq.admin import Admin

# Both brokers have it.
TOPIC = "shared"
OWN_PORT_ONLY = {"grpcServerPort": "0"}


@contextmanager
def two_brokers(folder: Path, second: Ours | Apache) -> Iterator[tuple[Server, Server, Server]]:
    """A name server, our broker and a second one; both have the topic."""
    with ExitStack() as stack:

        def kept(server: Server) -> Server:
            stack.callback(server.stop)
            return server

        name_server = kept(Ours().name_server(folder))
        first = kept(Ours().broker(folder / "a", name_server.address, **OWN_PORT_ONLY))
        other = kept(second.broker(folder / "b", name_server.address, name="broker-b", **OWN_PORT_ONLY))
        asyncio.run(_create(name_server.address))
        yield name_server, first, other


async def _create(name_server: str) -> None:
    async with Admin(name_server) as admin, asyncio.timeout(LIMIT_S):
        while len(await admin.brokers.list()) < 2:
            await asyncio.sleep(0.1)
        await admin.topics.create(TOPIC, queues=4)


async def _brokers_with_messages(name_server: str) -> set[str]:
    async with Admin(name_server) as admin:
        status = await admin.topics.status(TOPIC)
    return {each.queue.broker_name for each in status.whole() if each.max_offset > each.min_offset}


def away_in_the_middle(client: Client, folder: Path, count: int, end: Callable[[Server], None]) -> str:
    """What is wrong when one of two brokers ends and comes back while messages flow; empty: nothing."""
    with two_brokers(folder, Ours()) as (name_server, first, second), ExitStack() as stack:
        consumer = Running(client, "push", first.address, TOPIC, "readers", 10 * count)
        stack.callback(consumer.end)
        producer = Running(client, "steady", first.address, TOPIC, "-", count)
        stack.callback(producer.end)

        def sent() -> int:
            return len(producer.bodies("sent"))

        def received() -> set[str]:
            return set(consumer.bodies("body"))

        if not producer.wait_for(lambda: sent() >= count // 3) or not consumer.wait_for(
            lambda: len(received()) >= count // 6
        ):
            return f"{sent()} sent and {len(received())} received before a broker ends"
        used = asyncio.run(_brokers_with_messages(name_server.address))
        if used != {"broker-a", "broker-b"}:
            return f"messages went to {sorted(used)}, not to both brokers"
        end(second)
        before = received()
        producer.wait_for(lambda: sent() >= 2 * count // 3)
        if not consumer.wait_for(lambda: len(received() - before) >= count // 6):
            return f"{len(received() - before)} received while one of two brokers was away"
        again = Ours().broker(
            folder / "b", name_server.address, name="broker-b", port=second.port, **OWN_PORT_ONLY
        )
        stack.callback(again.stop)
        if not producer.wait_for(lambda: len(producer.lines) >= count):
            return f"{len(producer.lines)} of {count} were tried to send"
        wanted = set(producer.bodies("sent"))
        consumer.wait_for(lambda: wanted <= received())
        failed, missing = producer.bodies("failed"), wanted - received()
        if missing:
            return f"{len(missing)} of {len(wanted)} acknowledged messages missing, as {min(missing)}"
        # Clients try a message at another broker themselves.
        return f"{len(failed)} of {count} not sent: {producer.bodies('why')[:2]}" if failed else ""


def beside_apache(client: Client, folder: Path, count: int) -> str:
    """What is wrong when an Apache broker has the topic too; empty: nothing."""
    with two_brokers(folder, Apache(apache_classpath(), heap_mb=256)) as (_, first, _second):
        sent = client.run("send", first.address, TOPIC, "-", count)
        received = client.run("simple", first.address, TOPIC, "readers", count)
    found = {line["body"] for line in received}
    if len(sent) < count or len(found) < count:
        return f"{len(sent)} of {count} sent, {len(found)} received"
    return ""


def at_the_name_server(client: Client, folder: Path) -> str:
    """What is wrong with what a client says that was given the name server's address; empty: nothing."""
    with two_brokers(folder, Ours()) as (name_server, _first, _second):
        done = subprocess.run(
            [*client.command, "send", name_server.address, TOPIC, "-", "1"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    said = done.stdout + done.stderr
    return "" if "give it a broker's address: 127.0.0.1:" in said else f"it says: {said[-500:]}"


def cells(
    clients: Sequence[Client], folder: Path, count: int, *, short: bool
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each cell by its name: a function that gives its fault."""
    for number, client in enumerate(clients):
        place = folder / f"client-{number}"
        yield (
            f"{client.name}: one of two brokers is killed",
            partial(away_in_the_middle, client, place / "killed", 3 * count, Server.kill),
        )
        yield (
            f"{client.name}: at the name server's port",
            partial(at_the_name_server, client, place / "wrong"),
        )
        if not short:
            yield (
                f"{client.name}: one of two brokers is stopped",
                partial(away_in_the_middle, client, place / "stopped", 3 * count, Server.stop),
            )
            yield f"{client.name}: an Apache broker in the route", partial(_left_out, client, place, count)


def _left_out(client: Client, folder: Path, count: int) -> str:
    try:
        return beside_apache(client, folder / "apache", count)
    except PeerUnavailableError as error:
        return f"left out: {error}"
