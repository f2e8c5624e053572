"""``orbitmq bench``: the speed of this client with a running cluster."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Faults, Timeout, make_app
from orbitmq.cli.broker_watch import BrokerWatch, producer_for, watch_of, watched
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.output import Tell, progress
from orbitmq.cli.reading import read
from orbitmq.cli.tls_words import as_options
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Columns, Table, View
from orbitmq.cli.where import Servers
from orbitmq.errors import SendError
from orbitmq.message.model import Message
from orbitmq.runtime.tasks import Background, every
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.client.producer.producer import Producer
    from orbitmq.runtime.seam import Clock

Quantiles = tuple[float | None, float | None, float | None]

GROUP = "orbitmq-bench"
TELL_S = 0.25

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
class Load:
    """The load to send; see :func:`bench`. ``messages`` and ``seconds`` may be infinite."""

    topic: str
    messages: float
    seconds: float
    size: int
    in_flight: int
    batch: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One measured phase. Times are in seconds; those of single calls are quantiles."""

    phase: str
    messages: int
    seconds: float
    per_second: int
    p50: float | None
    p99: float | None
    p999: float | None
    failed: int


@dataclass(slots=True)
class Measured:
    """The measurements; ``lost``: the brokers whose messages could not all be read back."""

    phases: list[Phase] = field(default_factory=list)
    lost: list[LeftOut] = field(default_factory=list)
    failed: int = 0
    last_failure: str = ""

    def add(
        self, phase: str, messages: int, seconds: float, quantiles: Quantiles = (None, None, None)
    ) -> None:
        rate = round(messages / seconds) if seconds else 0
        failed = self.failed if phase == "send" else 0
        self.phases.append(Phase(phase, messages, seconds, rate, *quantiles, failed))


def _ms(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    return lambda row: None if row[name] is None else f"{row[name] * 1000:.2f}"


COLUMNS: Columns = {
    "": "phase",
    "messages": "messages",
    "seconds": lambda row: f"{row['seconds']:.2f}",
    "per second": "per_second",
    "p50 ms": _ms("p50"),
    "p99 ms": _ms("p99"),
    "p99.9 ms": _ms("p999"),
}


@app.default
@command
async def bench(
    servers: Servers,
    topic: str = "orbitmq-bench",
    /,
    *,
    messages: Annotated[int | None, Parameter(name=["--messages", "-m"])] = None,
    seconds: float | None = None,
    size: Annotated[int, Parameter(name=["--size", "-s"])] = 128,
    in_flight: Annotated[int, Parameter(name=["--in-flight", "-i"])] = 256,
    batch: int = 1,
    timeout: Timeout = 10.0,
    receive: bool = True,
    faults: Faults = Faults(),
) -> Views:
    """Send messages, then read the same ones back without a consumer group.

    Args:
        topic: Topic to send to; it is created if it does not exist. The messages stay in it.
        messages: Messages to send. Default: 100000.
        seconds: Seconds to send for, instead of a number of messages.
        size: Size of each body in bytes.
        in_flight: Most sends that wait for their answer at a time.
        batch: Messages in one send.
        receive: Read the messages back after they are sent.
    """
    at_least(1, messages=messages, size=size, in_flight=in_flight, batch=batch)
    if seconds is not None and seconds <= 0:
        raise UsageError(f"--seconds {seconds}: expected more than 0")
    if seconds is not None and messages is not None:
        raise UsageError("expected --messages or --seconds, not both")
    load = Load(
        topic, messages or (math.inf if seconds else 100_000), seconds or math.inf, size, in_flight, batch
    )
    watch, measured = watch_of(faults), Measured()
    failure: BaseException | None = None
    try:
        with progress(wanted=watch is None) as tell:
            await _bench(servers, load, timeout, faults, watch, measured, tell, receive=receive)
    except (Exception, asyncio.CancelledError) as error:
        failure = error  # also after Ctrl-C: the table of the brokers is printed first
    if failure is not None:
        if watch is not None and watch.rows:
            yield watch.view()
        raise failure
    failed = measured.failed
    yield View(
        {},
        [Table("phases", measured.phases, COLUMNS), *([] if watch is None else [watch.table()])],
        lines=[f"{counted(failed, 'send')} failed; the last one: {measured.last_failure}"] if failed else [],
        left_out=measured.lost,
        missing="its messages are",
        failed=failed > 0,
    )


async def _bench(
    servers: Servers,
    load: Load,
    timeout: float,
    faults: Faults,
    watch: BrokerWatch | None,
    measured: Measured,
    tell: Tell,
    *,
    receive: bool,
) -> None:
    from orbitmq.admin import Admin
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.runtime.system import system_runtime

    topic = load.topic
    tell("preparing the topic")
    async with Admin(**servers.options) as admin:
        if topic not in await admin.topics.list():
            await admin.topics.create(topic)
    runtime = system_runtime()
    async with producer_for(faults, watch, GROUP, servers, timeout, runtime) as producer:
        await producer.send(Message(topic, b"warm-up"))
        async with Reader(topic, runtime=runtime, **servers.options) as reader:
            ends = await reader.offsets()
        sender = _Sender(producer, runtime.clock, load, measured, tell, goes_on=watch is not None)
        async with watched(watch, producer, topic, runtime):
            await sender.run()
    if receive:
        reader = Reader(topic, start=ends, runtime=runtime, **servers.options)
        await _receive(reader, runtime.clock, measured, tell)


async def _receive(reader: Reader, clock: Clock, measured: Measured, tell: Tell) -> None:
    begin = clock.monotonic()
    count = 0
    async for batch in read(reader, measured.lost):
        count += len(batch)
        tell(f"{counted(count, 'message')} received")
    measured.add("receive", count, clock.monotonic() - begin)


class _Sender:
    """Sends the same message from many tasks and records the duration of each call.

    Args:
        goes_on: count failed sends and continue; otherwise the first failure ends the measurement.
    """

    def __init__(
        self, producer: Producer, clock: Clock, load: Load, measured: Measured, tell: Tell, *, goes_on: bool
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._load = load
        self._measured = measured
        self._tell = tell
        self._goes_on = goes_on
        self._body = b"x" * load.size
        self._left = load.messages
        self._until = math.inf
        self._times = array("d")
        self._sent = 0

    async def run(self) -> None:
        begin = self._clock.monotonic()
        self._until = begin + self._load.seconds
        background = Background("bench")
        background.spawn(every(self._clock, TELL_S, self._tell_sent), "progress")
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._load.in_flight):
                    tasks.create_task(self._work())
        finally:
            await background.stop()
        seconds = self._clock.monotonic() - begin
        times = sorted(self._times)
        p50, p99, p999 = (
            times[min(len(times) - 1, int(len(times) * share))] if times else None
            for share in (0.5, 0.99, 0.999)
        )
        self._measured.add("send", self._sent, seconds, (p50, p99, p999))

    async def _tell_sent(self) -> None:
        self._tell(f"{counted(self._sent, 'message')} sent")

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
                self._measured.failed += 1
                self._measured.last_failure = as_options(str(error))
                continue
            self._sent += count
            self._times.append(self._clock.monotonic() - begin)

    async def _send(self, count: int) -> None:
        # A send writes an id into its message, so no object can be sent twice.
        made = [Message(self._load.topic, self._body) for _ in range(count)]
        if self._load.batch > 1:
            await self._producer.send_batch(made)
        else:
            await self._producer.send(made[0])
