"""``orbitmq bench``: how fast this client and that cluster are together."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common, Faults, make_app, run_async
from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, UsageError
from orbitmq.cli.output import print_json, print_table
from orbitmq.errors import SendError
from orbitmq.message.model import Message

if TYPE_CHECKING:
    from orbitmq.cli.broker_watch import BrokerWatch
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.client.producer.producer import Producer
    from orbitmq.runtime.seam import Clock

GROUP = "orbitmq-bench"

app = make_app(
    "bench",
    "Measure sending and receiving against a running cluster.\n\n"
    "It measures the Python client together with the brokers. What a broker alone can do is measured by "
    "'make bench' in the source tree, with a compiled load generator.",
    """
orbitmq bench
orbitmq bench --messages 1000000 --size 1024 --in-flight 512
orbitmq bench --batch 32 --json
orbitmq bench --seconds 60 --no-receive --fault-tolerance 4.x --watch
""",
)


@dataclass(frozen=True, slots=True)
class Result:
    """One measured phase. Times of single calls in milliseconds; ``lost``: brokers that gave not all."""

    phase: str
    messages: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    failed: int = 0
    last_failure: str = ""
    lost: Sequence[str] = ()

    @property
    def rate(self) -> int:
        return round(self.messages / self.seconds) if self.seconds else 0


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent, and how; see :func:`bench`."""

    topic: str
    messages: int | None
    seconds: float | None
    size: int
    in_flight: int
    batch: int
    timeout: float
    receive: bool

    @property
    def count(self) -> float:
        """Messages to send at most."""
        if self.messages is None:
            return 100_000 if self.seconds is None else math.inf
        return self.messages

    def check(self) -> None:
        numbers = {
            "messages": self.messages,
            "size": self.size,
            "in-flight": self.in_flight,
            "batch": self.batch,
        }
        for name, value in numbers.items():
            if value is not None and value < 1:
                raise UsageError(f"--{name} {value}: expected 1 or more")
        if self.seconds is not None and self.seconds <= 0:
            raise UsageError(f"--seconds {self.seconds}: expected more than 0")
        if self.seconds is not None and self.messages is not None:
            raise UsageError("expected --messages or --seconds, not both")


@app.default
def bench(
    topic: str = "orbitmq-bench",
    /,
    *,
    messages: Annotated[int | None, Parameter(name=["--messages", "-m"])] = None,
    seconds: float | None = None,
    size: Annotated[int, Parameter(name=["--size", "-s"])] = 128,
    in_flight: Annotated[int, Parameter(name=["--in-flight", "-i"])] = 256,
    batch: Annotated[int, Parameter(name=["--batch"])] = 1,
    timeout: float = 10.0,
    receive: bool = True,
    faults: Faults = Faults(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Send messages, then read the same ones back without a consumer group.

    Parameters
    ----------
    topic
        Topic to send to; it is created when it is not there. The messages stay in it.
    messages
        Messages to send. Default: 100000.
    seconds
        Seconds to send for, instead of a number of messages.
    size
        Size of each body in bytes.
    in_flight
        Most sends that wait for their answer at a time.
    batch
        Messages in one send.
    timeout
        Seconds for each send, all tries together.
    receive
        Read the messages back when they are sent.
    """
    load = Load(topic, messages, seconds, size, in_flight, batch, timeout, receive)
    load.check()
    watch = None
    if faults.watch:
        from orbitmq.cli.broker_watch import BrokerWatch

        watch = BrokerWatch(faults.fault_tolerance)
    try:
        results = run_async(_bench(load, faults, watch, common))
    finally:
        if watch is not None and watch.rows and not common.json:
            watch.print(as_json=False)
    _print(results, watch, common)
    return EXIT_FAILED if any(result.failed or result.lost for result in results) else EXIT_OK


def _print(results: list[Result], watch: BrokerWatch | None, common: Common) -> None:
    if common.json:
        brokers = {} if watch is None else watch.as_json()
        print_json({"phases": [_as_json(result) for result in results], **brokers})
    else:
        rows = [
            [r.phase, r.messages, f"{r.seconds:.2f}", r.rate, _ms(r.p50_ms), _ms(r.p99_ms), _ms(r.p999_ms)]
            for r in results
        ]
        print_table(["", "messages", "seconds", "per second", "p50 ms", "p99 ms", "p99.9 ms"], rows)
        for result in results:
            if result.failed:
                print(f"{result.failed} sends failed; the last one: {result.last_failure}")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _as_json(result: Result) -> dict[str, object]:
    return {
        "phase": result.phase,
        "messages": result.messages,
        "seconds": result.seconds,
        "per_second": result.rate,
        "p50_ms": result.p50_ms,
        "p99_ms": result.p99_ms,
        "p999_ms": result.p999_ms,
        "failed": result.failed,
    }


async def _bench(load: Load, faults: Faults, watch: BrokerWatch | None, common: Common) -> list[Result]:
    from orbitmq.admin import Admin
    from orbitmq.cli.broker_watch import producer_for, watched
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.runtime.system import system_runtime

    topic = load.topic
    async with Admin(common.addresses) as admin:
        if topic not in await admin.topics.list():
            await admin.topics.create(topic)
    runtime = system_runtime()
    async with producer_for(faults, watch, GROUP, common, load.timeout, runtime) as producer:
        await producer.send(Message(topic, b"warm-up"))
        async with Reader(topic, name_servers=common.addresses, runtime=runtime) as reader:
            ends = await reader.offsets()
        sender = _Sender(producer, runtime.clock, load, goes_on=watch is not None)
        async with watched(watch, producer, topic, runtime):
            results = [await sender.run()]
    if load.receive:
        async with Reader(topic, start=ends, name_servers=common.addresses, runtime=runtime) as reader:
            results.append(await _receive(reader, runtime.clock))
    return results


async def _receive(reader: Reader, clock: Clock) -> Result:
    from orbitmq.cli.reading import tell_left_out
    from orbitmq.errors import NotAllReadError

    begin = clock.monotonic()
    count, lost = 0, list[str]()
    try:
        async for batch in reader.batches():
            count += len(batch)
    except NotAllReadError as error:
        tell_left_out(error)
        lost += error.left_out
    return Result("receive", count, clock.monotonic() - begin, lost=lost)


class _Sender:
    """Sends the same message from many tasks and notes how long each call took.

    Args:
        goes_on: after a failed send; otherwise the first one ends the measurement.
    """

    def __init__(self, producer: Producer, clock: Clock, load: Load, *, goes_on: bool) -> None:
        self._producer = producer
        self._clock = clock
        self._load = load
        self._goes_on = goes_on
        self._body = b"x" * load.size
        self._left = load.count
        self._until = math.inf
        self._times = array("d")
        self._sent = 0
        self._failed = 0
        self._last_failure = ""

    async def run(self) -> Result:
        import asyncio

        begin = self._clock.monotonic()
        self._until = begin + (self._load.seconds or math.inf)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._load.in_flight):
                tasks.create_task(self._work())
        seconds = self._clock.monotonic() - begin
        times = sorted(self._times)

        def quantile(share: float) -> float | None:
            return times[min(len(times) - 1, int(len(times) * share))] * 1000 if times else None

        latencies = (quantile(0.5), quantile(0.99), quantile(0.999))
        return Result("send", self._sent, seconds, *latencies, self._failed, self._last_failure)

    async def _work(self) -> None:
        while self._left > 0 and self._clock.monotonic() < self._until:
            count = int(min(self._load.batch, self._left))
            self._left -= count
            begin = self._clock.monotonic()
            try:
                await self._send(count)
            except SendError as error:
                if not self._goes_on:
                    raise
                self._failed += 1
                self._last_failure = str(error)
                continue
            self._sent += count
            self._times.append(self._clock.monotonic() - begin)

    async def _send(self, count: int) -> None:
        # Each message gets an id of its own, so each is an object of its own.
        made = [Message(self._load.topic, self._body) for _ in range(count)]
        if self._load.batch > 1:
            await self._producer.send_batch(made)
        else:
            await self._producer.send(made[0])
