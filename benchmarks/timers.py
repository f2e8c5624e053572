"""Timer messages: their lateness, and the costs of many waiting ones.

`python -m benchmarks.timers [--waiting 1000000] [--peer]`; a part of `make bench-peer`. Lateness is the time
from a message's requested delivery time until it is stored under its topic.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.many_topics import PULL_LIMIT_S
from benchmarks.measure import table
from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours, PeerUnavailableError, Server, apache_classpath

from orbitmq import Producer
from orbitmq.durations import instant
from orbitmq.message.model import Message

RATE, LOAD_S, AHEAD_S = 1_000, 10, 4.0
BURST = 10_000
WAITING, SHORT_WAITING = 1_000_000, 50_000
BODY = b"x" * 112
SENDS_IN_FLIGHT = 256
STORE_TIMESTAMP_AT, QUEUE_OFFSET_AT, BODY_AT = 56, 20, 88


def measure(maker: Ours | Apache, folder: Path, waiting: int) -> dict[str, float]:
    """Lateness at a rate and in a burst, memory of ``waiting`` messages, and a start after kill -9."""
    name_server = maker.name_server(folder)
    with contextlib.ExitStack() as running:
        running.callback(name_server.stop)
        broker = maker.broker(folder, name_server.address)
        running.callback(lambda: broker.kill())
        with Client(broker.port, timeout_s=30) as client:
            for topic in ("warm", "steady", "burst", "waiting", "probe"):
                client.create_topic(topic, 1)
        asyncio.run(_spread(name_server.address, "warm", RATE * 2, 2.0))
        found = _lateness(broker, name_server, "steady", RATE * LOAD_S, LOAD_S)
        burst = _lateness(broker, name_server, "burst", BURST, 1.0)
        found["timer_burst_s"] = burst["timer_worst_s"]
        before = broker.anonymous_mb()
        asyncio.run(_later(name_server.address, "waiting", waiting))
        time.sleep(2)
        found["timer_waiting"] = waiting
        found["timer_memory_bytes"] = max(0.0, broker.anonymous_mb() - before) * 2**20 / waiting
        broker.kill()
        broker = maker.broker(folder, name_server.address)
        found["timer_kill_start_s"] = _until_timers_work(broker, name_server)
        return found


def _lateness(broker: Server, name_server: Server, topic: str, count: int, over_s: float) -> dict[str, float]:
    due = asyncio.run(_spread(name_server.address, topic, count, over_s))
    end = max(due.values()) / 1000
    time.sleep(max(0.0, end - time.time()))
    with Client(broker.port, timeout_s=30) as client:
        while client.max_offset(topic, 0) < count and time.time() < end + 60:
            time.sleep(0.05)
        late = sorted(stored - due[number] for number, stored in _stored(client, topic))
    return {
        "timer_late_p50_s": late[len(late) // 2] / 1000,
        "timer_late_p99_s": late[len(late) * 99 // 100] / 1000,
        "timer_worst_s": late[-1] / 1000,
        "timer_early": float(sum(ms < 0 for ms in late)),
    }


async def _spread(name_server: str, topic: str, count: int, over_s: float) -> dict[int, int]:
    """Send messages that are due evenly over some seconds, beginning when the last one is sent."""
    due: dict[int, int] = {}
    async with Producer("bench", name_servers=name_server, timeout=30) as producer:
        # They are sent at the rate of their delivery, or for a burst as fast as possible.
        begin_ms = round((time.time() + AHEAD_S) * 1000)
        limit = asyncio.Semaphore(SENDS_IN_FLIGHT)

        async def send(number: int) -> None:
            async with limit:
                due[number] = begin_ms + round(number * over_s * 1000 / count)
                body = struct.pack(">i", number) + BODY
                await producer.send(Message(topic, body, deliver_at=instant(due[number])))

        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(send(number))
                pause = started + number / 2 * over_s / count - time.monotonic()
                if number % 64 == 63:
                    await asyncio.sleep(max(0.0, pause))
    return due


async def _later(name_server: str, topic: str, count: int) -> None:
    """Send messages that are due within the day that begins in an hour."""
    async with Producer("bench", name_servers=name_server, timeout=30) as producer:
        for first in range(0, count, 1000):
            async with asyncio.TaskGroup() as group:
                for number in range(first, min(count, first + 1000)):
                    delay_s = 3600 + number * 86_400 / count
                    group.create_task(producer.send(Message(topic, BODY, delay=delay_s)))


def _stored(client: Client, topic: str) -> Iterator[tuple[int, int]]:
    """Number and store time of each message in queue 0."""
    offset, end = 0, client.max_offset(topic, 0)
    while offset < end:
        body = client.pull(topic, 0, offset, 1024).body
        at = 0
        while at < len(body):
            (size,) = struct.unpack_from(">i", body, at)
            (stored,) = struct.unpack_from(">q", body, at + STORE_TIMESTAMP_AT)
            (number,) = struct.unpack_from(">i", body, at + BODY_AT)
            yield number, stored
            at += size
            offset += 1


def _until_timers_work(broker: Server, name_server: Server) -> float:
    """Seconds from the start of the process until a new timer message is delivered, without its delay of 0.1
    s.
    """
    while time.monotonic() - broker.started_at < PULL_LIMIT_S:
        try:
            with Client(broker.port, timeout_s=5) as client:
                asyncio.run(_probe(name_server.address))
                while not client.max_offset("probe", 0):
                    time.sleep(0.005)
                return time.monotonic() - broker.started_at - 0.1
        except Exception:
            time.sleep(0.02)
    raise RuntimeError("timers do not work after the restart")


async def _probe(name_server: str) -> None:
    async with Producer("bench", name_servers=name_server, timeout=5) as producer:
        await producer.send(Message("probe", b"x", delay=0.1))


TITLES = {
    "timer_late_p50_s": f"late at {RATE:,} due/s, p50, s",
    "timer_late_p99_s": f"late at {RATE:,} due/s, p99, s",
    "timer_worst_s": f"late at {RATE:,} due/s, worst, s",
    "timer_early": "delivered too early",
    "timer_burst_s": f"{BURST:,} due in one second, the last one late, s",
    "timer_waiting": "messages that wait",
    "timer_memory_bytes": "memory of each, bytes",
    "timer_kill_start_s": "from a start after kill -9 to the next delivery, s",
}


def compare(makers: list[Ours | Apache], folder: Path, waiting: int) -> tuple[str, dict[str, Any]]:
    """The table with a column for each broker, and the content of the record."""
    found: dict[str, dict[str, float]] = {}
    for maker in makers:
        print(f"measuring timers, {waiting:,} waiting, {maker.title}", flush=True)
        found[maker.title] = measure(maker, folder / f"timers-{type(maker).__name__}", waiting)
    rows = [
        [title, *(f"{figures[key]:,.3f}".rstrip("0").rstrip(".") for figures in found.values())]
        for key, title in TITLES.items()
    ]
    return table(["timers", *found], rows), dict(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.timers", description=__doc__)
    parser.add_argument("--waiting", type=int, default=WAITING, help=f"how many messages wait ({WAITING})")
    parser.add_argument("--peer", action="store_true", help="Apache's broker too")
    options = parser.parse_args()
    makers: list[Ours | Apache] = [Ours()]
    if options.peer:
        try:
            makers.append(Apache(apache_classpath()))
        except PeerUnavailableError as error:
            print(f"without Apache's broker: {error}")
    with tempfile.TemporaryDirectory(prefix="orbitmq-timers-") as made:
        print(compare(makers, Path(made), options.waiting)[0])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
