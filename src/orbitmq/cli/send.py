"""``orbitmq send``: messages from the command line, from standard input or from a file."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq import _streams
from orbitmq.cli.app import Common, Faults, make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.output import print_json
from orbitmq.message.model import Message
from orbitmq.message.way import OF_THE_WAY

if TYPE_CHECKING:
    from orbitmq.cli.broker_watch import BrokerWatch
    from orbitmq.client.model import SendResult

GROUP = "orbitmq-cli"
# Sends in flight while lines are read; what is read and not yet answered is bounded by it.
IN_FLIGHT = 256
READ_BYTES = 65536

app = make_app(
    "send",
    "Send messages to a topic.",
    """
orbitmq send orders '{"id": 17}' --tag new --key 17
orbitmq send orders --file invoice.pdf --property type=invoice
seq 1000 | orbitmq send numbers -          one message for each line
orbitmq send reminders 'in ten seconds' --delay-level 3
tail -f app.log | orbitmq send log - --fault-tolerance 5.x --watch
""",
)


@app.default
def send(
    topic: str,
    body: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    tag: Annotated[str | None, Parameter(name=["--tag"])] = None,
    key: Annotated[list[str] | None, Parameter(name=["--key", "-k"], negative=())] = None,
    property: Annotated[list[str] | None, Parameter(name=["--property", "-H"], negative=())] = None,
    file: Annotated[Path | None, Parameter(name=["--file"])] = None,
    count: int = 1,
    delay_level: int | None = None,
    delay: float | None = None,
    ordering_key: str | None = None,
    timeout: float = 3.0,
    quiet: Annotated[bool, Parameter(name=["--quiet"], negative=())] = False,
    faults: Faults = Faults(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Send messages and print where each was stored; with --watch, print the brokers instead.

    Parameters
    ----------
    topic
        Topic to send to. Brokers create an unknown topic unless that is switched off.
    body
        Body of the message. '-' sends one message for each line of standard input.
    tag
        One tag for filtering at the broker.
    key
        A key for look-up. May be given more than once.
    property
        A property as NAME=VALUE. May be given more than once.
    file
        Send this file's bytes as one message.
    count
        Times that the message is sent.
    delay_level
        Deliver later: 1 (1 s) to 18 (2 h), the broker's delay levels. A higher one is refused.
    delay
        Seconds after which it is delivered, such as 0.5 or 86400. See 'orbitmq timer'.
    ordering_key
        Messages of one key go to one queue, in order.
    timeout
        Seconds for each message, all tries together.
    quiet
        Print nothing.
    """
    if (body is None) == (file is None):
        raise UsageError("expected a body, '-' for standard input, or --file, and only one of them")
    if count < 1:
        raise UsageError(f"--count {count}: expected 1 or more")
    properties = _properties(property or [])

    def make(content: bytes) -> Message:
        return Message(
            topic,
            content,
            tags=tag,
            keys=key or (),
            delay_level=delay_level,
            delay=delay,
            properties=properties,
        )

    watch = None
    if faults.watch:
        from orbitmq.cli.broker_watch import BrokerWatch

        watch = BrokerWatch(faults.fault_tolerance)
    work = _Sending(topic, ordering_key, timeout, common, faults, quiet, watch)
    try:
        return run_async(work.run(_bodies(body, file, count), make))
    finally:
        if watch is not None and watch.rows:
            watch.print(as_json=common.json)


def _properties(words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UsageError(f"--property {name}{equals}{value}: expected NAME=VALUE, neither empty")
        if name in OF_THE_WAY:
            raise UsageError(
                f"--property {name}: RocketMQ writes this one itself, no sender does; leave it out"
            )
    return {name: value for name, _, value in pairs}


def _bodies(body: str | None, file: Path | None, count: int) -> AsyncIterator[bytes]:
    if body == "-":
        if _streams.without(0):
            raise UsageError("standard input is closed: nothing can be read from '-'")
        return _lines(sys.stdin.fileno())
    # What the terminal gave that is not UTF-8 goes out as it came in.
    return _repeated(file.read_bytes() if file is not None else os.fsencode(body or ""), count)


async def _repeated(content: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield content


async def _lines(fd: int) -> AsyncIterator[bytes]:
    """The lines that hold anything, as they come: RocketMQ has no empty messages."""
    begun = b""
    while chunk := await _read(fd):
        *lines, begun = (begun + chunk).split(b"\n")
        for line in lines:
            if content := line.rstrip(b"\r"):
                yield content
    if content := begun.rstrip(b"\r"):
        yield content


async def _read(fd: int) -> bytes:
    """What there is to read, as soon as there is something; sends under way go on meanwhile."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return os.read(fd, READ_BYTES)  # a file: always ready, and nothing that can be waited for
    try:
        await ready.wait()
        return os.read(fd, READ_BYTES)
    finally:
        loop.remove_reader(fd)


@dataclass(frozen=True)
class _Sending:
    topic: str
    ordering_key: str | None
    timeout: float
    common: Common
    faults: Faults
    quiet: bool
    watch: BrokerWatch | None

    async def run(self, bodies: AsyncIterator[bytes], make: Callable[[bytes], Message]) -> int:
        import asyncio

        from orbitmq.cli.broker_watch import producer_for, watched
        from orbitmq.runtime.system import system_runtime

        waiting: deque[asyncio.Task[SendResult]] = deque()
        tells = not self.quiet and self.watch is None

        async def drain(limit: int) -> None:
            while len(waiting) > limit:
                result = await waiting[0]
                waiting.popleft()
                if tells:
                    _tell(result, as_json=self.common.json)

        # What shares an ordering key is sent one at a time.
        most = 0 if self.ordering_key is not None else IN_FLIGHT - 1
        runtime = system_runtime()
        async with (
            producer_for(self.faults, self.watch, GROUP, self.common, self.timeout, runtime) as producer,
            watched(self.watch, producer, self.topic, runtime),
        ):
            try:
                async for body in bodies:
                    waiting.append(
                        asyncio.create_task(producer.send(make(body), ordering_key=self.ordering_key))
                    )
                    await drain(most)
                await drain(0)
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        return EXIT_OK


def _tell(result: SendResult, *, as_json: bool) -> None:
    queue = result.queue
    if as_json:
        print_json(
            {
                "status": result.status.name,
                "message_id": result.message_id,
                "offset_message_id": result.offset_message_id,
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "queue_offset": result.queue_offset,
                **({"recall_handle": result.recall_handle} if result.recall_handle else {}),
            },
            one_line=True,
        )
    else:
        where = f"{queue.topic}[{queue.broker_name}:{queue.queue_id}] offset {result.queue_offset}"
        print(f"{result.status.name} {result.message_id} {where}")
