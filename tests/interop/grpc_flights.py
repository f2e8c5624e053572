"""Cells of `make interop-grpc` with real data: the flights that left New York in January 2013.

The Python producer sends them to a topic, and the Java producer to another one. Meanwhile push and simple
consumers of each client and OrbitMQ's own consumer receive them, each in a group of its own: every flight
once to each group, with its body, key and tag. A short run takes the flights of the first of January.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from examples.flights.data import Value, rows
from examples.flights.sender import message_of
from tests.interop.grpc_clients import Client, Line, slug

from orbitmq.admin import Admin

JANUARY = 27_004
FIRST_OF_JANUARY = 842

Flight = tuple[str, str, str]
Receive = Callable[[str, str, str, int], list[Line]]


def in_january(row: dict[str, Value]) -> bool:
    return row["month"] == 1


def on_its_first_day(row: dict[str, Value]) -> bool:
    return in_january(row) and row["day"] == 1


def flights(*, short: bool) -> list[Flight]:
    """Carrier, tail number (empty: unknown) and JSON of each flight, as the demo sends them."""
    # The file has the days in their order.
    taken = takewhile(on_its_first_day if short else in_january, rows())
    messages = [message_of("flights", row) for row in taken]
    found = [(message.tags or "", " ".join(message.keys), message.body.decode()) for message in messages]
    assert len(found) == (FIRST_OF_JANUARY if short else JANUARY)
    return found


def difference(received: Sequence[Line], sent: Sequence[Flight]) -> str:
    """What is wrong with what one group received; empty when nothing is."""
    found = Counter((line["tag"], line["keys"], line["body"]) for line in received)
    wanted = Counter(sent)
    missing, beyond = wanted - found, found - wanted
    texts = [
        f"{sum(some.values())} {what}, first {next(iter(some))}"
        for what, some in (("missing", missing), ("twice, or changed", beyond))
        if some
    ]
    return "; ".join(texts)


def everywhere(
    sender: Client,
    receivers: Sequence[Client],
    told: dict[str, Any],
    file: Path,
    sent: Sequence[Flight],
    ours: Receive,
) -> str:
    """Send the flights while all groups receive them; what is wrong, or empty."""
    topic, count = f"flights-{slug(sender.name)}", len(sent)
    asyncio.run(create(told["name_server"], topic))
    with ThreadPoolExecutor(2 * len(receivers) + 1) as pool:
        groups = {
            f"{role} {client.name}": pool.submit(
                client.run, role, told["grpc"], topic, slug(f"{role}-{client.name}-{topic}"), count
            )
            for client in receivers
            for role in ("push", "simple")
        }
        groups["ours"] = pool.submit(ours, told["name_server"], topic, f"ours-{topic}", count)
        lines = sender.run("flights", told["grpc"], topic, str(file), count)
        wrong = {name: difference(group.result(), sent) for name, group in groups.items()}
    faults = [f"{name}: {text}" for name, text in wrong.items() if text]
    if (ids := len({line["id"] for line in lines})) != count:
        faults.insert(0, f"{ids} of {count} sent")
    return ", ".join(faults)


async def create(name_server: str, topic: str) -> None:
    async with Admin(name_server) as admin:
        await admin.topics.create(topic)


def cells(
    clients: Sequence[Client], told: dict[str, Any], folder: Path, ours: Receive, *, short: bool
) -> Iterator[tuple[str, Callable[[], str]]]:
    """A cell for each client that sends.

    Args:
        folder: for the file that the producers read.
        ours: receives with OrbitMQ's own consumer: from a name server, a topic, in a group, so many messages.
    """
    sent = flights(short=short)
    file = folder / "flights.tsv"
    file.write_text("".join("\t".join(flight) + "\n" for flight in sent))
    for sender in clients:
        name = f"{len(sent)} flights, {sender.name} to all"
        yield name, partial(everywhere, sender, clients, told, file, sent, ours)
