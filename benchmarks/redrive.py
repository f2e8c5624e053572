"""Dead letters sent again: the rate, the broker's cost for each, and how well a given rate is kept.

`python -m benchmarks.redrive [--messages 200000]`; a part of `make bench-peer`. Apache's broker has no
redrive.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import table
from benchmarks.remoting import Client
from benchmarks.servers import Ours, Server

from orbitmq import Message, Producer
from orbitmq.admin import Admin, RedriveJob
from orbitmq.message.reserved import dead_letter_topic

GROUP, TOPIC, QUEUES = "bench_redrive", "redriven", 8
MESSAGES, SHORT_MESSAGES = 200_000, 40_000
RATE = 5_000
BODY = b"x" * 128
PER_BATCH = 500
# The properties of a dead letter from a pop or a pull.
PROPERTIES = {
    "DLQ_ORIGIN_TOPIC": TOPIC, "DLQ_ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000000",
    "RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000000", "TAGS": "paid",
}  # fmt: skip


def compare(folder: Path, messages: int) -> tuple[str, dict[str, Any]]:
    """The page's table, and the content of the record."""
    print(f"measuring a redrive of {messages:,}", flush=True)
    maker = Ours()
    name_server = maker.name_server(folder)
    broker = maker.broker(folder, name_server.address, flushDiskType="ASYNC_FLUSH")
    try:
        fast = asyncio.run(_redriven(broker, name_server.address, messages, None))
        paced = asyncio.run(_redriven(broker, name_server.address, RATE * 4, RATE))
    finally:
        broker.stop()
        name_server.stop()
    rows = [
        ["as fast as it goes", f"{fast['rate']:,.0f}/s", f"{fast['cpu_us']:.1f} us"],
        [f"--rate {RATE}", f"{paced['rate']:,.0f}/s", f"{paced['cpu_us']:.1f} us"],
    ]
    return table(["redrive", "dead letters", "broker CPU of each"], rows), {"fast": fast, "paced": paced}


async def _redriven(broker: Server, servers: str, messages: int, rate: int | None) -> dict[str, float]:
    group = f"{GROUP}_{rate}"
    dead = dead_letter_topic(group)
    with Client(broker.port) as client:
        client.create_topic(dead, 1)
        client.create_topic(TOPIC, QUEUES)
    async with Producer("bench", name_servers=servers) as producer, Admin(servers) as admin:
        for _ in range(0, messages, PER_BATCH):
            await producer.send_batch([Message(dead, BODY, properties=PROPERTIES) for _ in range(PER_BATCH)])
        await asyncio.sleep(1)
        cpu, begun = broker.cpu_s(), time.monotonic()
        await admin.dead_letters.redrive(group, rate=rate)
        while (job := await _status(admin, group)).state == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        seconds = time.monotonic() - begun
    assert job.sent == messages, job
    return {"rate": messages / seconds, "cpu_us": (broker.cpu_s() - cpu) / messages * 1e6}


async def _status(admin: Admin, group: str) -> RedriveJob:
    (job,) = (await admin.dead_letters.redrives(group)).whole()
    return job


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.redrive", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"how many ({MESSAGES})")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbitmq-redrive-") as folder:
        print(compare(Path(folder), options.messages)[0])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
