"""``orbitmq send``: messages from the command line, from standard input or from a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq import _streams
from orbitmq.cli import standard_input
from orbitmq.cli.app import Faults, Flag, Timeout, make_app
from orbitmq.cli.broker_watch import BrokerWatch, producer_for, watch_of, watched
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.from_json import FromJson
from orbitmq.cli.output import progress
from orbitmq.cli.values import at_least, pairs
from orbitmq.cli.view import Line
from orbitmq.cli.where import Servers
from orbitmq.message.model import Message
from orbitmq.message.way import OF_THE_WAY
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.client.model import SendResult

GROUP = "orbitmq-cli"
# Most sends in flight while lines are read, which bounds the lines in memory.
IN_FLIGHT = 256
TELL_EVERY = 1000

app = make_app(
    "send",
    "Send messages to a topic.",
    """
orbitmq send orders '{"id": 17}' --tag new --key 17
orbitmq send orders --file invoice.pdf --property type=invoice
seq 1000 | orbitmq send numbers -          one message for each line
orbitmq send orders --file dead.jsonl --jsonl
orbitmq send reminders 'in ten seconds' --delay-level 3
tail -f app.log | orbitmq send log - --fault-tolerance 5.x --watch
""",
)


@app.default
@command
async def send(
    servers: Servers,
    topic: str,
    body: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    tag: str | None = None,
    key: Annotated[list[str] | None, Parameter(name=["--key", "-k"], negative=())] = None,
    property: Annotated[list[str] | None, Parameter(name=["--property", "-H"], negative=())] = None,
    file: Path | None = None,
    count: int = 1,
    delay_level: int | None = None,
    delay: float | None = None,
    ordering_key: str | None = None,
    timeout: Timeout = 3.0,
    quiet: Flag = False,
    jsonl: Flag = False,
    faults: Faults = Faults(),
) -> Views:
    """Send messages and print where each was stored; with --watch, print the brokers instead.

    Args:
        topic: Topic to send to. Brokers create an unknown topic unless that is switched off.
        body: Body of the message, as text. '-' sends one message for each line of standard input.
        tag: Tag of the message, by which consumers can filter.
        key: Key by which 'orbitmq message find' finds the message. May be given more than once.
        property: A property as NAME=VALUE. May be given more than once.
        file: File whose bytes are the body of one message.
        count: Number of times that the message is sent.
        delay_level: Deliver later: 1 (1 s) to 18 (2 h), the broker's delay levels. A higher one is refused.
        delay: Deliver after this many seconds, such as 0.5 or 86400. See 'orbitmq timer'.
        ordering_key: Messages of one key go to one queue, in order.
        quiet: Do not print the results of sends.
        jsonl: Each line of '-' or of --file is a message as 'receive --json' and 'dlq export' print it; tag,
            keys and properties are those of the line.
    """
    if (body is None) == (file is None):
        raise UsageError("expected a body, '-' for standard input, or --file, and only one of them")
    at_least(1, count=count)
    if jsonl:
        if body not in (None, "-"):
            raise UsageError("--jsonl reads '-' (standard input) or --file")
        own = {"--tag": tag, "--key": key, "--property": property, "--delay": delay}
        for name, value in {**own, "--delay-level": delay_level}.items():
            if value is not None:
                raise UsageError(f"--jsonl and {name}: the lines say that, leave out {name}")
    properties = pairs("--property", property, empty=False)
    for name in OF_THE_WAY.intersection(properties):
        raise UsageError(f"--property {name}: RocketMQ writes this one itself, no sender does; leave it out")
    bodies = _lines_of(file) if jsonl and file is not None else _bodies(body, file, count)
    watch = watch_of(faults)
    failure: BaseException | None = None

    def message(content: bytes) -> Message:
        return Message(
            topic,
            content,
            tags=tag,
            keys=key or (),
            delay_level=delay_level,
            delay=delay,
            properties=properties,
        )

    make = FromJson(topic) if jsonl else message
    work = _sent(servers, topic, bodies, make, ordering_key, timeout, faults, watch)
    try:
        async with aclosing(work) as results:
            async for result in results:
                if watch is None and not quiet:
                    yield _line(result)
    except (Exception, asyncio.CancelledError) as error:
        failure = error  # also after Ctrl-C: the table of the brokers is printed first
    if watch is not None and watch.rows:
        yield watch.view()
    if failure is not None:
        raise failure


def _bodies(body: str | None, file: Path | None, count: int) -> AsyncIterator[bytes]:
    if body == "-":
        if _streams.without(0):
            raise UsageError("standard input is closed: nothing can be read from '-'")
        return standard_input.lines()
    # An argument that is not UTF-8 is sent with its original bytes.
    return _repeated(file.read_bytes() if file is not None else os.fsencode(body or ""), count)


async def _lines_of(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as lines:
        for line in lines:
            yield line


async def _repeated(content: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield content


async def _sent(
    servers: Servers,
    topic: str,
    bodies: AsyncIterator[bytes],
    make: Callable[[bytes], Message],
    ordering_key: str | None,
    timeout: float,
    faults: Faults,
    watch: BrokerWatch | None,
) -> AsyncGenerator[SendResult, None]:
    """Send the bodies; returns their results in the same order."""
    from orbitmq.runtime.system import system_runtime

    waiting: deque[asyncio.Task[SendResult]] = deque()
    # Messages with an ordering key are sent one at a time.
    most = 0 if ordering_key is not None else IN_FLIGHT - 1
    runtime, sent = system_runtime(), 0
    refused: UsageError | None = None
    async with (
        producer_for(faults, watch, GROUP, servers, timeout, runtime) as producer,
        watched(watch, producer, topic, runtime),
    ):
        with progress(wanted=watch is None and not sys.stdout.isatty()) as tell:
            try:
                async for body in bodies:
                    try:
                        message = make(body)
                    except UsageError as error:
                        refused = error  # messages of earlier lines are sent all the same
                        break
                    waiting.append(asyncio.create_task(producer.send(message, ordering_key=ordering_key)))
                    while len(waiting) > most:
                        yield await waiting[0]
                        waiting.popleft()
                        sent += 1
                        if not sent % TELL_EVERY:
                            tell(f"{counted(sent, 'message')} sent")
                while waiting:
                    yield await waiting[0]
                    waiting.popleft()
                if refused is not None:
                    raise refused
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)


def _line(result: SendResult) -> Line:
    queue = result.queue
    facts = {
        "status": result.status.name,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "queue_offset": result.queue_offset,
        **({"recall_handle": result.recall_handle} if result.recall_handle else {}),
    }
    where = f"{queue.topic}[{queue.broker_name}:{queue.queue_id}] offset {result.queue_offset}"
    return Line(facts, f"{result.status.name} {result.message_id} {where}")
