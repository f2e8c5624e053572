"""`make interop-grpc`: the official clients of RocketMQ 5 at ``orbitmq up``, as they come.

Producers in Python (plaintext) and Java (TLS); what each sends is received by a push and a simple consumer of
both languages and by OrbitMQ's own client, each in a group of its own: every message once, keys and bodies
equal. Then each client chooses messages by SQL92, fails until they are dead letters, begins transactions,
answers for a producer that died, and takes back a delayed message. January's flights go from each producer to
all consumers at once (:mod:`tests.interop.grpc_flights`). The two programs of docs/grpc.md run
first, and its test with client and broker in one process. Then both protocols
(:mod:`tests.interop.grpc_remoting`), and what operators see of running clients
(:mod:`tests.interop.grpc_operators`). Whole runs do this at two groups with a slave each. Then they take a
broker that requires keys (:mod:`tests.interop.grpc_secured`), and kill masters while clients hold messages
(:mod:`tests.interop.grpc_owners`). At last clusters of several brokers
(:mod:`tests.interop.grpc_clusters`), and the tests of apache/rocketmq-e2e when there is a checkout
(:mod:`tests.interop.grpc_e2e`). The Python client is installed into a virtual environment of its own in
``build/``, those of Node and Rust beside it (in whole runs only); Java's comes from Maven Central. A client
that cannot be had is left out with one line; where ``ORBITMQ_CI`` is set, that fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.servers import PeerUnavailableError, ServerError
from tests.interop import (
    grpc_clusters,
    grpc_e2e,
    grpc_flights,
    grpc_h2spec,
    grpc_operators,
    grpc_owners,
    grpc_remoting,
    grpc_secured,
)
from tests.interop.grpc_clients import (
    LIMIT_S,
    SLOWEST,
    Client,
    Line,
    difference,
    fault,
    java_client,
    node_client,
    page_test,
    python_client,
    rust_client,
    slug,
)
from tests.interop.grpc_running import cluster

from orbitmq import ConsumeFrom, Consumer
from orbitmq.admin import Admin, GroupSettings

JAVA_CLIENTS = ("5.0.8", "5.2.0")
ONE_BROKER = ("--brokers", "1")
# Each a master and a slave.
TWO_GROUPS = ("--brokers", "2", "--replicas", "2")
COUNT = 200
SHORT_COUNT = 50
# What ends a cell and not the run.
CELL_ERRORS = (
    subprocess.SubprocessError,
    TimeoutError,
    ValueError,
    KeyError,
    ServerError,
    PeerUnavailableError,
)


async def prepare(name_server: str, failing: Sequence[str]) -> None:
    """Let brokers allow recalls, and give up messages of these groups after one redelivery."""
    async with Admin(name_server) as admin:
        for broker in await admin.brokers.list():
            await admin.brokers.change_settings(broker.address, {"recallMessageEnable": "true"})
        for group in failing:
            await admin.groups.create(group, GroupSettings(max_retries=1))


async def ours(name_server: str, topic: str, group: str, count: int) -> list[Line]:
    """What OrbitMQ's own consumer, over remoting, receives."""
    lines: list[Line] = []
    consumer = Consumer(group, name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic)
    async with consumer, asyncio.timeout(LIMIT_S + count / SLOWEST):
        async for message in consumer:
            lines.append({"body": message.body.decode(), "keys": " ".join(message.keys), "tag": message.tags})
            if len(lines) == count:
                return lines
    return lines


def receive_ours(name_server: str, topic: str, group: str, count: int) -> list[Line]:
    """What OrbitMQ's own consumer receives, for callers in a thread without an event loop."""
    return asyncio.run(ours(name_server, topic, group, count))


def page_fault(client: Client, endpoint: str) -> str:
    """What is wrong with what the program of docs/grpc.md prints; empty when nothing is."""
    done = subprocess.run(
        client.page_command(endpoint), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    expected = f"from {client.name.partition(' ')[0].capitalize()}"
    if done.returncode == 0 and expected in done.stdout.splitlines():
        return ""
    return f"exit code {done.returncode}, no line {expected!r}: {(done.stdout + done.stderr)[-500:]}"


def page_test_fault(client: Client) -> str:
    """What is wrong with the test of docs/grpc.md; empty when nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_page.py"
        file.write_text(page_test())
        command = [*client.test_command, str(file)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=folder
        )
    if done.returncode == 0 and "1 passed" in done.stdout:
        return ""
    return f"exit code {done.returncode}: {(done.stdout + done.stderr)[-1000:]}"


def cells(
    clients: Sequence[Client], told: dict[str, Any], count: int
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each cell by its name: a function that gives its fault."""
    for client in clients:
        yield f"docs/grpc.md, {client.name}", partial(page_fault, client, told["grpc"])
        if client.test_command:
            yield f"docs/grpc.md, {client.name} and broker in one process", partial(page_test_fault, client)
    for sender in clients:
        yield from sender_cells(sender, clients, told, count)


def sender_cells(
    sender: Client, receivers: Sequence[Client], told: dict[str, Any], count: int
) -> Iterator[tuple[str, Callable[[], str]]]:
    """What one client sends, and all that it can do beside."""
    topic = f"from-{slug(sender.name)}"

    def sent() -> str:
        lines = sender.run("send", told["grpc"], topic, "-", count)
        return "" if len({line["id"] for line in lines}) == count else f"{len(lines)} of {count} sent"

    yield f"{sender.name} sends", sent
    for receiver in receivers:
        for role in ("push", "simple"):
            if role in receiver.lacks:
                continue
            group = slug(f"{role}-{receiver.name}-{topic}")

            def received(receiver: Client = receiver, role: str = role, group: str = group) -> str:
                return fault(receiver.run(role, told["grpc"], topic, group, count), count)

            yield f"{sender.name} to {receiver.name} {role}", received

    def by_ours() -> str:
        return fault(receive_ours(told["name_server"], topic, f"ours-{topic}", count), count)

    yield f"{sender.name} to ours", by_ours
    yield from more_cells(sender, topic, told, count)


def failing_group(client: Client) -> str:
    return f"fail-{slug(client.name)}"


def more_cells(
    client: Client, topic: str, told: dict[str, Any], count: int
) -> Iterator[tuple[str, Callable[[], str]]]:
    """What one client can do beside sending and receiving.

    Args:
        topic: to which ``count`` messages were sent.
    """
    name, endpoint = slug(client.name), told["grpc"]

    def sql() -> str:
        lines = client.run("sql", endpoint, topic, f"sql-{name}", count - 10)
        return difference(lines, {f"body-{number}" for number in range(10, count)})

    def dead_letters() -> str:
        group = failing_group(client)
        lines = client.run("fail", endpoint, topic, group, count)
        times = Counter(line["body"] for line in lines)
        if set(times.values()) != {2}:
            return f"{sum(times.values())} deliveries of {len(times)} messages, not {2 * count} of {count}"
        return fault(receive_ours(told["name_server"], f"%DLQ%{group}", f"dead-{name}", count), count)

    def transactions() -> str:
        of_transactions = f"transactions-{name}"
        lines = client.run("transact", endpoint, of_transactions, "-", 4)
        if [line["asked"] for line in lines if "asked" in line] != ["asked about"]:
            return f"asked about others: {lines}"
        received = client.run("simple", endpoint, of_transactions, f"simple-transactions-{name}", 2)
        return difference(received, {"committed", "asked about"})

    def orphan() -> str:
        orphans = f"orphans-{name}"
        client.run("die", endpoint, orphans, "-", 1)
        asked = [line.get("asked") for line in client.run("answer", endpoint, orphans, "-", 1)]
        if asked != ["left behind"]:
            return f"asked about others: {asked}"
        received = client.run("simple", endpoint, orphans, f"simple-orphans-{name}", 1)
        return difference(received, {"left behind"})

    def recall() -> str:
        delayed = f"delayed-{name}"
        lines = client.run("recall", endpoint, delayed, "-", 2)
        said = {key: value for line in lines for key, value in line.items()}
        if not said.get("recalled") or "recalled already" not in said.get("refused", ""):
            return f"the second recall is not refused: {lines}"
        return difference(client.run("simple", endpoint, delayed, f"simple-delayed-{name}", 1), {"kept"})

    yield f"{client.name}: SQL92", sql
    if "fail" not in client.lacks:
        yield f"{client.name}: dead letters", dead_letters
    yield f"{client.name}: transactions", transactions
    yield f"{client.name}: a transaction whose producer died", orphan
    if "recall" not in client.lacks:
        yield f"{client.name}: recall", recall


def available(makers: Iterable[Callable[[], Client]]) -> list[Client]:
    """The clients that can be had; what cannot is said."""
    clients = []
    for make in makers:
        try:
            clients.append(make())
        except PeerUnavailableError as error:
            print(f"interop-grpc: left out: {error}")
    return clients


def faults(cells: Iterable[tuple[str, Callable[[], str]]]) -> list[str]:
    """Run cells and print what is wrong with each; the lines of those that failed."""
    failed: list[str] = []
    for cell, run in cells:
        try:
            wrong = run()
        except CELL_ERRORS as error:
            wrong = f"{type(error).__name__}: {error}"
        line = f"{cell:<48} {wrong or 'ok'}"
        print(line, flush=True)
        if wrong:
            failed.append(line)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer messages, one version of Java's client")
    parser.add_argument("--e2e", type=Path, help="a checkout of apache/rocketmq-e2e, whose tests run too")
    options = parser.parse_args(arguments)
    count = SHORT_COUNT if options.short else COUNT
    versions = JAVA_CLIENTS[-1:] if options.short else JAVA_CLIENTS
    with tempfile.TemporaryDirectory(prefix="orbitmq-grpc-") as name:
        folder = Path(name)
        clients = available([python_client, *(partial(java_client, each, folder) for each in versions)])
        if options.short:
            print("interop-grpc: left out: the clients of Node and Rust, which only whole runs build")
        others = available([] if options.short else [node_client, rust_client])
        if len(clients) < 1 + len(versions) and os.environ.get("ORBITMQ_CI"):
            print("interop-grpc: with ORBITMQ_CI no client may be left out")
            return 1
        with cluster(folder / "data", *(ONE_BROKER if options.short else TWO_GROUPS)) as told:
            failed = faults(grpc_h2spec.cells(told["grpc"]))
            asyncio.run(prepare(told["name_server"], [failing_group(client) for client in clients + others]))
            failed += faults(cells(clients, told, count))
            for other in others:
                failed += faults(sender_cells(other, [other, *clients[:1]], told, count))
            failed += faults(grpc_flights.cells(clients, told, folder, receive_ours, short=options.short))
            remote = grpc_remoting.Remote(folder / "java", told)
            failed += faults(grpc_remoting.cells(clients, told, remote, count))
            failed += faults(grpc_operators.cells(clients, told, remote, count))
        if not options.short:
            pair = [clients[0], clients[-1]]
            failed += faults(grpc_secured.cells(pair, folder, count))
            failed += faults(grpc_owners.cells(pair, folder, count))
        failed += faults(grpc_clusters.cells(clients, folder, count, short=options.short))
        failed += faults(grpc_e2e.cells(options.e2e, folder / "e2e"))
    print(f"interop-grpc: {len(failed)} cells failed" if failed else "interop-grpc: all cells passed")
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
