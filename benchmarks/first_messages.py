"""Measures waits in a group: a new member's wait for its first message, and a killed member's queue's for its
next one.

`python -m benchmarks.first_messages [--rounds 5]`; a part of `make bench-client`. Members are processes;
every queue gets a message every 20 ms. With Apache's clients both take up to 20 s, the interval of their
rebalance.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import table
from benchmarks.remoting import Client
from benchmarks.servers import ROOT, Ours, Server, child_settings, wait_for_route

from orbitmq import ConsumeFrom, Consumer, Message, MessageQueue, Producer, ReceivedMessage

TOPIC, GROUP, QUEUES = "first_messages", "first_messages_group", 8
PAUSE_S = 0.02
LIMIT_S = 30.0
AIMS = {"new member": 0.5, "owner killed": 1.5}
TITLES = {
    "new member": "a new member, from start() to its first message",
    "owner killed": "a queue whose owner was killed with -9, to its next message",
}


class Member:
    """A consumer in a separate process.

    Attributes:
        began: the times of its start and of its first message, on the clock that all processes share.
        handled: for each queue, the times of its messages.
    """

    def __init__(self, name_server: str) -> None:
        command = [sys.executable, "-m", "benchmarks.first_messages", "--member", name_server]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=child_settings
        )
        self.began: float | None = None
        self.handled: dict[int, list[float]] = {}
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, *numbers = line.split()
            if what == "began":
                self.began = float(numbers[0])
            else:
                self.handled.setdefault(int(numbers[0]), []).append(float(numbers[1]))

    @property
    def first(self) -> float | None:
        return min((times[0] for times in self.handled.values()), default=None)

    def kill(self) -> float:
        """Kill the member with SIGKILL; returns the time."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        self._reading.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return at


def measure(name_server: Server, broker: Server, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by the keys of :data:`TITLES`; for killed owners the worst queue counts."""
    with Client(broker.port) as client:
        client.create_topic(TOPIC, QUEUES)
    wait_for_route(name_server, TOPIC)
    found: dict[str, list[float]] = {key: [] for key in TITLES}
    with _load(name_server.address):
        members = [Member(name_server.address)]
        try:
            _until(lambda: len(members[0].handled) == QUEUES)
            for _ in range(rounds):
                new = Member(name_server.address)
                members.append(new)
                _until(lambda new=new: new.first is not None)
                assert new.began is not None
                assert new.first is not None
                found["new member"].append(new.first - new.began)
                time.sleep(2)
                owned, old = set(new.handled), members[0]
                at = members.pop().kill()
                _until(lambda: all(_next(old, queue, at) for queue in owned))  # noqa: B023
                found["owner killed"].append(max(_next(old, queue, at) - at for queue in owned))
                time.sleep(1)
        finally:
            for member in members:
                member.kill()
    return found


def _next(member: Member, queue: int, at: float) -> float:
    """The time at which the member handled the first message of a queue after ``at``; 0 if it has not yet."""
    return next((time for time in member.handled.get(queue, ()) if time > at), 0.0)


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a message did not come")
        time.sleep(0.01)


@contextlib.contextmanager
def _load(name_server: str) -> Iterator[None]:
    """Send messages to every queue from a thread, while the block runs."""
    ended = threading.Event()

    async def send() -> None:
        async with Producer("first_messages", name_servers=name_server) as producer:
            queues: list[MessageQueue] = await producer.queues(TOPIC)
            while not ended.is_set():
                await asyncio.gather(*(producer.send(Message(TOPIC, b"x"), queue=queue) for queue in queues))
                await asyncio.sleep(PAUSE_S)

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def report(found: dict[str, list[float]]) -> str:
    rows = [
        [
            title,
            f"{statistics.median(found[key]):.2f} s",
            f"{max(found[key]):.2f} s",
            f"{AIMS[key]} s",
            "yes" if max(found[key]) <= AIMS[key] else "NO",
        ]
        for key, title in TITLES.items()
    ]
    return table(["waiting", "median", "worst", "aim", "met"], rows)


async def _consume(name_server: str) -> None:
    """Run one member; :class:`Member` reads its output."""

    async def handle(message: ReceivedMessage) -> None:
        print(f"got {message.queue_id} {time.monotonic()}", flush=True)

    consumer = Consumer(GROUP, name_servers=name_server, consume_from=ConsumeFrom.LAST)
    consumer.subscribe(TOPIC)
    print(f"began {time.monotonic()}", flush=True)
    async with consumer:
        await consumer.run(handle)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.first_messages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.member:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_consume(options.member))
        return 0
    with tempfile.TemporaryDirectory(prefix="orbitmq-first-") as made:
        maker = Ours()
        name_server = maker.name_server(Path(made))
        broker = maker.broker(Path(made), name_server.address)
        try:
            print(report(measure(name_server, broker, options.rounds)))
        finally:
            broker.stop()
            name_server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
