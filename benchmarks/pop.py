"""Pops of 32 messages and one batch acknowledgement: the broker's cost per message, OrbitMQ's beside
Apache's.

`python -m benchmarks.pop [--short]`. The same blocking client runs on both brokers, in turn; the other broker
is stopped meanwhile. The client is slower than either broker, so the broker's CPU time counts, not the rate.
Both flush asynchronously; the load first warms up each broker, the JVM for 10 s.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import keep, machine, record, table
from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours, PeerUnavailableError, Server, apache_classpath

POP_MESSAGE, BATCH_ACK_MESSAGE, SEND_BATCH_MESSAGE = 200050, 200151, 320
TOPIC, GROUP, QUEUES = "bench_pop", "bench_pop_group", 4
PER_POP = 32
BODY = b"x" * 128
INVISIBLE_MS = 60_000


@dataclass
class Cost:
    """One run: messages popped and acknowledged, the client's seconds, and the broker's CPU time.

    Attributes:
        measured_s: the duration of the measurement of ``cpu_s``: the client's seconds and some more.
    """

    messages: int
    seconds: float
    cpu_s: float
    measured_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6


def fill(client: Client, messages: int) -> None:
    """Store messages in batches, one queue after the other."""
    properties = b"TAGS\x01a"
    item = b"".join(
        number.to_bytes(4, "big")
        for number in (4 + 4 + 4 + 4 + 4 + len(BODY) + 2 + len(properties), 0, 0, 0, len(BODY))
    )
    item += BODY + len(properties).to_bytes(2, "big") + properties
    for at in range(0, messages, 250):
        fields = {
            "a": "bench", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(at // 250 % QUEUES), "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "true",
        }  # fmt: skip
        client.request(SEND_BATCH_MESSAGE, fields, item * 250)


def pop_and_acknowledge(client: Client) -> int:
    """Pop once and acknowledge the messages with one request; returns their number."""
    fields = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(PER_POP),
        "invisibleTime": str(INVISIBLE_MS), "pollTime": "0", "bornTime": str(int(time.time() * 1000)),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    answer = client.ask(POP_MESSAGE, fields)
    if answer.code != 0:
        return 0
    starts = dict(_entries(answer.ext["startOffsetInfo"]))
    acks, count = [], 0
    for place, offsets in _entries(answer.ext["msgOffsetInfo"]):
        start = int(starts[place])
        found = [int(offset) - start for offset in offsets.split(",")]
        bits = sum(1 << offset for offset in found)
        retry, queue_id = place
        acks.append(
            {
                "c": GROUP, "t": TOPIC, "r": retry, "so": start, "q": int(queue_id),
                "rq": int(answer.ext["reviveQid"]), "pt": int(answer.ext["popTime"]),
                "it": int(answer.ext["invisibleTime"]),
                "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
            }
        )  # fmt: skip
        count += len(found)
    client.request(BATCH_ACK_MESSAGE, {}, json.dumps({"brokerName": "broker-a", "acks": acks}).encode())
    return count


def _entries(text: str) -> list[tuple[tuple[str, str], str]]:
    words = [entry.split(" ") for entry in text.split(";")]
    return [((retry, queue_id), value) for retry, queue_id, value in words]


def run(server: Server, messages: int) -> Cost:
    """Store this many messages, then pop them all; the CPU time of some seconds afterwards counts, too."""
    with Client(server.port, timeout_s=60) as client:
        fill(client, messages)
        time.sleep(1)
        cpu, started, done = server.cpu_s(), time.monotonic(), 0
        while done < messages:
            done += pop_and_acknowledge(client)
        seconds = time.monotonic() - started
        # Tables and checkpoints are written some seconds later.
        time.sleep(7)
        return Cost(done, seconds, server.cpu_s() - cpu, time.monotonic() - started)


def idle_s(server: Server, seconds: float) -> float:
    """CPU time of an idle broker during this time."""
    cpu = server.cpu_s()
    time.sleep(seconds)
    return server.cpu_s() - cpu


def measure(maker: Ours | Apache, folder: Path, *, short: bool) -> tuple[list[Cost], float]:
    """The runs of one broker, and its CPU time per second while it is idle."""
    messages, rounds = (20_000, 2) if short else (100_000, 3)
    name_server = maker.name_server(folder / "ns")
    broker = maker.broker(folder / "broker", name_server.address, flushDiskType="ASYNC_FLUSH")
    try:
        with Client(broker.port) as client:
            client.create_topic(TOPIC, QUEUES)
        warm_until = time.monotonic() + (4 if short else 10)
        while time.monotonic() < warm_until:
            run_briefly(broker)
        costs = [run(broker, messages) for _ in range(rounds)]
        # Measured after the runs, since a JVM that has just been warmed up still compiles.
        return costs, idle_s(broker, 10) / 10
    finally:
        broker.kill()
        name_server.kill()


def compare(makers: list[Ours | Apache], folder: Path, *, short: bool) -> str:
    """One line for each broker; the runs are written to a record of their own."""
    rows, content = [], {}
    for maker in makers:
        print(f"measuring pop and batch acknowledgement, {maker.title}", flush=True)
        found, idle = measure(maker, folder / f"pop-{type(maker).__name__}", short=short)
        cpu_us = statistics.median(cost.cpu_us for cost in found)
        own = statistics.median((cost.cpu_s - idle * cost.measured_s) / cost.messages * 1e6 for cost in found)
        rate = statistics.median(cost.messages / cost.seconds for cost in found)
        rows.append([maker.title, f"{cpu_us:.1f} us", f"{own:.1f} us", f"{rate:,.0f}/s"])
        content[maker.title] = {"runs": [vars(cost) for cost in found], "idle_cpu_s": idle}
    headings = ["pop 32 + batch ack", "CPU per message", "without what it needs idle", "rate of the client"]
    text = table(headings, rows)
    keep("pop", text, {"record": record(short=short), "machine": machine(), "costs": content})
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.pop", description=__doc__)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    makers: list[Ours | Apache] = [Ours()]
    try:
        makers.append(Apache(apache_classpath(), heap_mb=1024))
    except PeerUnavailableError as error:
        print(f"without Apache's broker: {error}")
    with tempfile.TemporaryDirectory(prefix="orbitmq-pop-") as folder:
        print(compare(makers, Path(folder), short=options.short))
    return 0


def run_briefly(server: Server) -> None:
    """Run the load briefly, as a warm-up."""
    with Client(server.port, timeout_s=60) as client:
        fill(client, 5000)
        while pop_and_acknowledge(client):
            pass


if __name__ == "__main__":
    raise SystemExit(main())
