"""``orbitmq bench``: how fast this client and that cluster are together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.output import print_json, print_table
from orbitmq.message.model import Message

if TYPE_CHECKING:
    from orbitmq.cli.peek import Peek, Span
    from orbitmq.client.producer import Producer
    from orbitmq.message.model import MessageQueue
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
""",
)


@dataclass(frozen=True, slots=True)
class Result:
    """One measured phase. Times of single calls in milliseconds."""

    phase: str
    messages: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None

    @property
    def rate(self) -> int:
        return round(self.messages / self.seconds) if self.seconds else 0


@app.default
def bench(
    topic: str = "orbitmq-bench",
    /,
    *,
    messages: Annotated[int, Parameter(name=["--messages", "-m"])] = 100_000,
    size: Annotated[int, Parameter(name=["--size", "-s"])] = 128,
    in_flight: Annotated[int, Parameter(name=["--in-flight", "-i"])] = 256,
    batch: Annotated[int, Parameter(name=["--batch", "-b"])] = 1,
    receive: bool = True,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Send messages, then read the same ones back without a consumer group.

    Parameters
    ----------
    topic
        Where to; it is made when it is not there. The messages stay.
    messages
        How many.
    size
        Bytes of each body.
    in_flight
        Sends that wait for their answer at a time.
    batch
        Messages in one send.
    receive
        Read them back.
    """
    for name, value in (("messages", messages), ("size", size), ("in-flight", in_flight), ("batch", batch)):
        if value < 1:
            raise UsageError(f"--{name} {value}: expected 1 or more")
    results = run_async(_bench(topic, messages, size, in_flight, batch, receive, common))
    if common.json:
        print_json([_as_json(result) for result in results])
    else:
        rows = [
            [r.phase, r.messages, f"{r.seconds:.2f}", r.rate, _ms(r.p50_ms), _ms(r.p99_ms), _ms(r.p999_ms)]
            for r in results
        ]
        print_table(["", "messages", "seconds", "per second", "p50 ms", "p99 ms", "p99.9 ms"], rows)
    return EXIT_OK


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _as_json(result: Result) -> dict[str, object]:
    return {
        "phase": result.phase,
        "messages": result.messages,
        "seconds": result.seconds,
        "perSecond": result.rate,
        "p50Ms": result.p50_ms,
        "p99Ms": result.p99_ms,
        "p999Ms": result.p999_ms,
    }


async def _bench(
    topic: str, messages: int, size: int, in_flight: int, batch: int, receive: bool, common: Common
) -> list[Result]:
    from orbitmq.admin import Admin
    from orbitmq.cli.peek import Peek, Span
    from orbitmq.client.producer import Producer

    async with Admin(common.addresses) as admin:
        if topic not in await admin.topic_list():
            await admin.create_topic(topic)
    async with Peek(common.addresses) as peek:
        clock = peek.runtime.clock
        producer = Producer(GROUP, name_servers=common.addresses, timeout_ms=10_000, runtime=peek.runtime)
        async with producer:
            await producer.send(Message(topic, b"warm-up"))
            ends = await peek.spans(topic, "last", follow=True)
            sender = _Sender(producer, clock, Message(topic, b"x" * size), batch)
            results = [await sender.run(messages, in_flight)]
        if receive:
            spans = await peek.spans(topic, "first", follow=False)
            read = {queue: Span(ends[queue].begin, span.end) for queue, span in spans.items()}
            results.append(await _receive(peek, read, clock))
    return results


async def _receive(peek: Peek, spans: Mapping[MessageQueue, Span], clock: Clock) -> Result:
    from orbitmq.client.broker_calls import Filter

    begin = clock.monotonic()
    count = 0
    async for piece in peek.messages(spans, Filter()):
        count += len(piece)
    return Result("receive", count, clock.monotonic() - begin)


class _Sender:
    """Sends the same message from many tasks and notes how long each call took."""

    def __init__(self, producer: Producer, clock: Clock, message: Message, batch: int) -> None:
        self._producer = producer
        self._clock = clock
        self._message = message
        self._batch = batch
        self._left = 0
        self._times: list[float] = []

    async def run(self, messages: int, in_flight: int) -> Result:
        import asyncio

        self._left = messages
        begin = self._clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(in_flight):
                tasks.create_task(self._work())
        seconds = self._clock.monotonic() - begin
        times = sorted(self._times)

        def quantile(share: float) -> float:
            return times[min(len(times) - 1, int(len(times) * share))] * 1000

        return Result("send", messages, seconds, quantile(0.5), quantile(0.99), quantile(0.999))

    async def _work(self) -> None:
        original = self._message
        while self._left > 0:
            count = min(self._batch, self._left)
            self._left -= count
            # Each message gets an id of its own, so each is an object of its own.
            made = [Message(original.topic, original.body) for _ in range(count)]
            begin = self._clock.monotonic()
            if self._batch > 1:
                await self._producer.send_batch(made)
            else:
                await self._producer.send(made[0])
            self._times.append(self._clock.monotonic() - begin)
