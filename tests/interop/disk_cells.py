"""One broker's folder opened by the other: every record byte for byte, every offset, and on it goes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ports import free_ports
from benchmarks.remoting import Client
from benchmarks.servers import Server
from tests.interop.java_cells import QUERY_CONSUMER_OFFSET, expected, same_messages
from tests.interop.kill_load import Load
from tests.interop.messages import send
from tests.interop.records import read_queue
from tests.interop.world import CellError, World, check, equal, wait_registered

from orbitmq.message.record import decode_record

LARGE, BATCHED, DELAYED, GROUP, QUEUES = "disk_large", "disk_batched", "disk_delayed", "disk_group", 4
DELAY_LEVEL, DELAY_S, DELAYED_COUNT = 3, 10, 5
"""Sent just before the folder changes hands, so that the messages are due after it."""
QUERY_NOT_FOUND = 22
COMMITS_KEPT_S = 7
"""Both brokers write committed offsets every 5 s; a crash may lose those of the last interval. A load of that
length is also what the kills meet."""


@dataclass
class Snapshot:
    """What a broker serves: the records of each queue as bytes, and a group's committed offsets."""

    records: dict[tuple[str, int], list[bytes]]
    committed: dict[int, int]


def snapshot(broker: Server) -> Snapshot:
    """Read everything that the cell wrote."""
    with Client(broker.port, timeout_s=30) as client:
        records = {
            (topic, queue): read_queue(client, topic, queue)
            for topic in (LARGE, BATCHED)
            for queue in range(QUEUES)
        }
        committed = {}
        for queue in range(QUEUES):
            fields = {"topic": BATCHED, "consumerGroup": GROUP, "queueId": str(queue)}
            answer = client.ask(QUERY_CONSUMER_OFFSET, fields)
            check(answer.code in (0, QUERY_NOT_FOUND), f"offset query: {answer}")
            committed[queue] = int(answer.ext["offset"]) if answer.code == 0 else -1
    return Snapshot(records, committed)


def same(found: Snapshot, wanted: Snapshot, who: str) -> None:
    """Every record and every offset of `wanted` is in `found`, and nothing else."""
    equal(found.committed, wanted.committed, f"committed offsets {who}")
    for place, records in wanted.records.items():
        equal(len(found.records[place]), len(records), f"records of {place} {who}")
        for number, (ours, theirs) in enumerate(zip(found.records[place], records, strict=True)):
            equal(ours.hex(), theirs.hex(), f"record {number} of {place} {who}")


def write(world: World, ns: str, broker: Server) -> None:
    """Several log files of messages from Apache's client, and a group that has consumed some."""
    with Client(broker.port) as client:
        client.create_topic(LARGE, QUEUES)
        client.create_topic(BATCHED, QUEUES)
        client.create_topic(DELAYED, QUEUES)
    options = {"ns": ns, "compress": 1 << 24}
    world.facts("Send", topic=LARGE, how="sync", count=700, padding=3000, **options)
    world.facts("Send", topic=BATCHED, how="batch", count=40, **options)
    world.facts("Receive", ns=ns, topic=BATCHED, group=GROUP, count=40)


def add(world: World, ns: str) -> None:
    """More of both, after the folder changed hands; the group goes on where it stood."""
    for topic, how in ((LARGE, "async"), (BATCHED, "batch")):
        world.facts("Send", ns=ns, topic=topic, how=how, count=25)
    same_messages(world.facts("Receive", ns=ns, topic=BATCHED, group=GROUP, count=25), expected("batch", 25))


def delay(broker: Server) -> None:
    """Messages for the broker that has the folder next."""
    with Client(broker.port, timeout_s=30) as client:
        for number in range(DELAYED_COUNT):
            body = b"delayed %d" % number
            answer = send(client, DELAYED, body, queue=number % QUEUES, DELAY=str(DELAY_LEVEL))
            equal(answer.code, 0, f"a delayed send ({answer.remark})")


def delayed_arrived(broker: Server, turn: int, *, crash: bool) -> None:
    """What earlier turns delayed is delivered, no sooner than it is due; after a crash at most once more.

    The messages of each turn before this one have the same bodies. Those of the last turn came due in this
    one; of each turn before, a crash may have lost that they were delivered.
    """
    deadline = time.monotonic() + DELAY_S + 60
    bodies: Counter[bytes] = Counter()
    with Client(broker.port, timeout_s=30) as client:
        while bodies.total() < turn * DELAYED_COUNT:
            check(time.monotonic() < deadline, f"delayed messages of {turn} turns: {bodies}")
            time.sleep(0.5)
            records = [r for queue in range(QUEUES) for r in read_queue(client, DELAYED, queue)]
            bodies = Counter(decode_record(record).body for record in records)
    for record in map(decode_record, records):
        waited_ms = record.store_timestamp - record.born_timestamp
        check(waited_ms >= DELAY_S * 1000, f"{record.body!r} was delivered after {waited_ms} ms")
    equal(len(bodies), DELAYED_COUNT, "different delayed messages")
    most = turn + (turn - 1) * crash
    right = all(turn <= times <= most for times in bodies.values())
    check(right, f"deliveries of delayed messages, {turn} to {most} expected: {bodies}")


def hand_over(world: World, order: tuple[str, str, str], *, crash: bool) -> None:
    """The brokers of `order` open one folder in turn; each ends by SIGTERM, or by SIGKILL under load."""
    folder: Path = world.folder / world.fresh("disk")
    with world.server_stopped(world.ours.name_server(folder / "ns")) as name_server:
        wanted: Snapshot | None = None
        loads: list[Load] = []
        port = free_ports(5) + 2
        for turn, kind in enumerate(order):
            who = f"as {kind} serves them in turn {turn + 1}"
            broker = world.broker(kind, folder, name_server.address, port=port)
            with world.server_stopped(broker):
                wait_registered(name_server.port)
                if wanted is None:
                    write(world, name_server.address, broker)
                else:
                    same(snapshot(broker), wanted, who)
                    for load in loads:
                        load.kept(broker, COMMITS_KEPT_S, who)
                    try:
                        add(world, name_server.address)
                        delayed_arrived(broker, turn, crash=crash)
                    except CellError as error:
                        raise CellError(f"{who}: {error}") from error
                wanted = snapshot(broker)
                if turn == len(order) - 1:
                    break
                if crash:
                    with Load(broker.port, f"disk_loaded_{turn}", GROUP) as load:
                        time.sleep(COMMITS_KEPT_S + 1)
                        delay(broker)
                        broker.kill()
                    loads.append(load)
                else:
                    delay(broker)
        check(wanted is not None and any(wanted.records.values()), "nothing was written")


def apache_first(world: World) -> None:
    hand_over(world, ("apache", "ours", "apache"), crash=False)


def ours_first(world: World) -> None:
    hand_over(world, ("ours", "apache", "ours"), crash=False)


def apache_first_killed(world: World) -> None:
    hand_over(world, ("apache", "ours", "apache"), crash=True)


def ours_first_killed(world: World) -> None:
    hand_over(world, ("ours", "apache", "ours"), crash=True)


def apache_only(world: World) -> None:
    """The baseline: Apache's broker opens its own folder."""
    hand_over(world, ("apache", "apache", "apache"), crash=False)
