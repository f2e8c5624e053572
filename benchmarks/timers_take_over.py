"""A slave takes over while a million timer messages wait: measures the time from `kill -9` of the master to
the next delivery.

`python -m benchmarks.timers_take_over [--waiting 1000000]`. There are two groups of a master and a slave,
each broker a process; the messages wait in one group. Its slave acts for the master and hands due messages to
the other group.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import tempfile
import time
from pathlib import Path

from benchmarks.measure import table
from benchmarks.remoting import Client
from benchmarks.replicas import followers
from benchmarks.timers import BODY, SHORT_WAITING, WAITING

from orbitmq import Message, MessageQueue, Producer, PullConsumer
from orbitmq.admin import Admin
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.durations import instant

SETTINGS = {"enableSlaveActingMaster": "true", "enableRemoteEscape": "true", "flushDiskType": "ASYNC_FLUSH"}
MASTER = "broker-a"
FAR, PROBE = "waiting", "probe"
PROBES, EVERY_S, AHEAD_S = 300, 0.05, 5.0
CAUGHT_UP_S = 120.0


async def measure(folder: Path, waiting: int) -> dict[str, float]:
    """Seconds until the slave delivered the messages that were due after the kill, and the lateness of all of
    them.
    """
    cluster = ProcessCluster(brokers=2, replicas=2, root=str(folder), settings=SETTINGS)
    async with cluster, Admin(cluster.name_server) as admin:
        for topic in (FAR, PROBE):
            await admin.topics.create(topic, queues=1)
        async with Producer("bench", name_servers=cluster.name_server, timeout=30) as producer:
            queue = MessageQueue(FAR, MASTER, 0)
            for first in range(0, waiting, 1000):
                async with asyncio.TaskGroup() as group:
                    for number in range(first, min(waiting, first + 1000)):
                        delay_s = 3600 + number * 86_400 / waiting
                        group.create_task(producer.send(Message(FAR, BODY, delay=delay_s), queue=queue))
            begin_ms = round((time.time() + AHEAD_S) * 1000)
            due = {number: begin_ms + round(number * EVERY_S * 1000) for number in range(PROBES)}
            for number, at_ms in due.items():
                probe = Message(PROBE, struct.pack(">i", number), deliver_at=instant(at_ms))
                await producer.send(probe, queue=MessageQueue(PROBE, MASTER, 0))
        await _caught_up(cluster)
        await asyncio.sleep(max(0.0, begin_ms / 1000 + AHEAD_S - time.time()))
        killed_ms = round(time.time() * 1000)
        await cluster.stop_broker(MASTER, kill=True)
        stored = await _delivered(cluster.name_server, {number for number in due if due[number] > killed_ms})
    late = sorted(stored[number] - due[number] for number in stored if due[number] > killed_ms)
    first = min(stored[number] for number in stored if due[number] > killed_ms)
    return {
        "messages that wait": waiting,
        "from kill -9 of the master to the slave's first delivery, s": (first - killed_ms) / 1000,
        "late, worst, s": late[-1] / 1000,
        "late, p50, s": late[len(late) // 2] / 1000,
        "delivered too early": sum(ms < 0 for ms in late),
        "due messages lost": sum(number not in stored for number in due if due[number] > killed_ms),
    }


async def _caught_up(cluster: ProcessCluster) -> None:
    """Wait until the slave has the whole log."""
    port = int(cluster.brokers[MASTER].rpartition(":")[2])
    deadline = time.monotonic() + CAUGHT_UP_S
    with Client(port) as client:
        while (links := followers(client)) == [] or any(link["diff"] for link in links):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the slave did not catch up: {links}")
            await asyncio.sleep(0.1)


async def _delivered(name_server: str, wanted: set[int]) -> dict[int, int]:
    """The time at which each probe was stored under its topic, in ms since the epoch, by the probe's
    number.
    """
    found: dict[int, int] = {}
    deadline = time.monotonic() + PROBES * EVERY_S + 60
    async with PullConsumer("bench_reader", name_servers=name_server) as reader:
        queue = MessageQueue(PROBE, "broker-b", 0)
        reader.assign([queue])
        await reader.seek_to_begin(queue)
        while wanted - found.keys() and time.monotonic() < deadline:
            for message in await reader.poll(100, timeout=0.5):
                found[struct.unpack(">i", message.body)[0]] = message.store_timestamp_ms
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.timers_take_over", description=__doc__)
    parser.add_argument("--waiting", type=int, default=WAITING, help=f"how many messages wait ({WAITING})")
    parser.add_argument("--short", action="store_true", help=f"{SHORT_WAITING} of them")
    options = parser.parse_args()
    waiting = SHORT_WAITING if options.short else options.waiting
    with tempfile.TemporaryDirectory(prefix="orbitmq-take-over-") as folder:
        found = asyncio.run(measure(Path(folder), waiting))
    rows = [[title, f"{figure:,.3f}".rstrip("0").rstrip(".")] for title, figure in found.items()]
    print(table(["take-over", "OrbitMQ"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
