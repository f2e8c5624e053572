"""One broker's folder opened by the other: every record byte for byte, every offset, and on it goes."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.remoting import PULL_MESSAGE, Client
from benchmarks.servers import Server, free_ports
from tests.interop.java_cells import QUERY_CONSUMER_OFFSET
from tests.interop.world import CellError, World, check, equal, wait_registered

LARGE, BATCHED, GROUP, QUEUES = "disk_large", "disk_batched", "disk_group", 4
QUERY_NOT_FOUND = 22
COMMITS_KEPT_S = 7
"""Both brokers write committed offsets every 5 s; a crash may lose those of the last interval."""


@dataclass
class Snapshot:
    """What a broker serves: the records of each queue as bytes, and a group's committed offsets."""

    records: dict[tuple[str, int], list[bytes]]
    committed: dict[int, int]


def read_queue(client: Client, topic: str, queue: int) -> list[bytes]:
    """All records of a queue as they stand in pull responses."""
    end = client.max_offset(topic, queue)
    records: list[bytes] = []
    while len(records) < end:
        fields = {
            "consumerGroup": "disk_reader",
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(len(records)),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        }
        body = client.request(PULL_MESSAGE, fields).body
        found = split_records(body)
        check(found, f"no records at offset {len(records)} of {topic} {queue}, of {end}")
        for number, record in enumerate(found, len(records)):
            offset = struct.unpack_from(">q", record, 20)[0]
            equal(offset, number, f"queue offset inside a record of {topic} {queue}")
        records += found
    return records


def split_records(body: bytes) -> list[bytes]:
    records, at = [], 0
    while at < len(body):
        size = struct.unpack_from(">i", body, at)[0]
        records.append(body[at : at + size])
        at += size
    return records


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
    options = {"ns": ns, "compress": 1 << 24}
    world.facts("Send", topic=LARGE, how="sync", count=700, padding=3000, **options)
    world.facts("Send", topic=BATCHED, how="batch", count=40, **options)
    world.facts("Receive", ns=ns, topic=BATCHED, group=GROUP, count=40)


def add(world: World, ns: str) -> None:
    """More of both, after the folder changed hands."""
    for topic, how in ((LARGE, "async"), (BATCHED, "batch")):
        world.facts("Send", ns=ns, topic=topic, how=how, count=25)


def hand_over(world: World, order: tuple[str, str, str], *, crash: bool) -> None:
    """The brokers of `order` open one folder in turn; each but the last ends by SIGTERM, or by SIGKILL."""
    folder: Path = world.folder / world.fresh("disk")
    with world.server_stopped(world.ours.name_server(folder / "ns")) as name_server:
        wanted: Snapshot | None = None
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
                    try:
                        add(world, name_server.address)
                    except CellError as error:
                        raise CellError(f"{who}: {error}") from error
                wanted = snapshot(broker)
                if crash and turn < len(order) - 1:
                    time.sleep(COMMITS_KEPT_S)
                    broker.kill()
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
