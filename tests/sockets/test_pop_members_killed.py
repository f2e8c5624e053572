"""Members that pop, each a process; some are killed with -9 while they work.

``ORBITMQ_KILL_SECONDS=120`` runs it longer and under more load, as a measurement.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from orbitmq import Message
from orbitmq.sync import Producer
from orbitmq.testing import RunningCluster

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("ORBITMQ_KILL_SECONDS", "6"))
KILL_EVERY_S = 5.0 if SECONDS > 60 else 2.0
SENDS_PER_S = 2000 if SECONDS > 60 else 200
MEMBERS, BATCH, INVISIBLE_S = 3, 32 if SECONDS > 60 else 8, 6
# A member has two batches at most: one that it works on, and one that is on its way.
IN_FLIGHT = 2 * BATCH
MEMBER = """
import asyncio, sys
from orbitmq import ConsumeFrom, SimpleConsumer

async def main():
    async with SimpleConsumer("killed", name_servers=sys.argv[1], consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        while True:
            messages = await consumer.receive(int(sys.argv[2]), float(sys.argv[3]), wait=5)
            for message in messages:
                print(message.body.decode(), flush=True)
            await consumer.ack_all(messages)

asyncio.run(main())
"""


class Member:
    """One process; what it handled is kept, also when it is killed."""

    def __init__(self, name_server: str, handled: Counter[str]) -> None:
        command = [sys.executable, "-c", MEMBER, name_server, str(BATCH), str(INVISIBLE_S)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._handled = handled
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._handled[line.strip()] += 1

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_killed_members_repeat_what_they_had_in_flight_and_lose_nothing(
    orbitmq_cluster: RunningCluster,
) -> None:
    handled: Counter[str] = Counter()
    name_server = orbitmq_cluster.name_server
    members: list[Member] = []
    kills = sent = 0
    with Producer("shop", name_servers=name_server, timeout=60) as producer:
        producer.send(Message("orders", "0"))
        sent = 1
        members = [Member(name_server, handled) for _ in range(MEMBERS)]
        try:
            started = killed = time.monotonic()
            while (passed := time.monotonic() - started) < SECONDS:
                due = int(passed * SENDS_PER_S) + 1 - sent
                for answer in [producer.submit(Message("orders", str(sent + n))) for n in range(due)]:
                    answer.result()
                sent += max(0, due)
                if time.monotonic() >= killed + KILL_EVERY_S:
                    members.pop(0).kill()
                    members.append(Member(name_server, handled))
                    killed, kills = time.monotonic(), kills + 1
                time.sleep(0.005)
            deadline = time.monotonic() + 60
            while len(handled) < sent and time.monotonic() < deadline:
                time.sleep(0.2)
            time.sleep(INVISIBLE_S + 2)
        finally:
            for member in members:
                member.kill()
    lost = {str(number) for number in range(sent)} - handled.keys()
    repeated = sum(times - 1 for times in handled.values())
    print(f"{sent} messages, {kills} kills, {repeated} handled twice, bound {kills * IN_FLIGHT}")
    assert not lost
    assert kills
    assert repeated <= kills * IN_FLIGHT
