"""``orbitmq send``: messages from the command line, from standard input or from a file."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.output import print_json
from orbitmq.message.model import Message

if TYPE_CHECKING:
    from orbitmq.client.model import SendResult

GROUP = "orbitmq-cli"
# Sends in flight while lines are read; what is read and not yet answered is bounded by it.
IN_FLIGHT = 256

app = make_app(
    "send",
    "Send messages to a topic.",
    """
orbitmq send orders '{"id": 17}' --tag new --key 17
orbitmq send orders --file invoice.pdf --property type=invoice
seq 1000 | orbitmq send numbers -          one message for each line
orbitmq send reminders 'in ten seconds' --delay-level 3
""",
)


@app.default
def send(
    topic: str,
    body: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    tag: Annotated[str | None, Parameter(name=["--tag", "-t"])] = None,
    key: Annotated[list[str] | None, Parameter(name=["--key", "-k"], negative=())] = None,
    property: Annotated[list[str] | None, Parameter(name=["--property", "-H"], negative=())] = None,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    count: int = 1,
    delay_level: int | None = None,
    ordering_key: str | None = None,
    timeout_ms: int = 3000,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Send messages and print where each was stored.

    Parameters
    ----------
    topic
        Where to send. Brokers create an unknown topic unless that is switched off.
    body
        The message. '-' sends one message for each line of standard input.
    tag
        One tag for filtering at the broker.
    key
        A key for look-up. May be given more than once.
    property
        NAME=VALUE. May be given more than once.
    file
        Send this file's bytes as one message.
    count
        Send it that often.
    delay_level
        Deliver later: 1 (1 s) to 18 (2 h), the broker's delay levels.
    ordering_key
        Messages of one key go to one queue, in order.
    timeout_ms
        For each message, all tries together.
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
            topic, content, tags=tag, keys=key or (), delay_level=delay_level, properties=properties
        )

    bodies = _bodies(body, file, count)
    return run_async(_send_all(map(make, bodies), ordering_key, timeout_ms, common, quiet=quiet))


def _properties(words: Sequence[str]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UsageError(f"--property {name}{equals}{value}: expected NAME=VALUE, neither empty")
    return {name: value for name, _, value in pairs}


def _bodies(body: str | None, file: Path | None, count: int) -> Iterator[bytes]:
    if body == "-":
        yield from _lines(sys.stdin.buffer)
        return
    # What the terminal gave that is not UTF-8 goes out as it came in.
    content = file.read_bytes() if file is not None else os.fsencode(body or "")
    for _ in range(count):
        yield content


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines that hold anything: RocketMQ has no empty messages."""
    return (line for line in (raw.rstrip(b"\r\n") for raw in stream) if line)


async def _send_all(
    messages: Iterator[Message], ordering_key: str | None, timeout_ms: int, common: Common, *, quiet: bool
) -> int:
    import asyncio

    from orbitmq.client.producer import Producer

    waiting: deque[asyncio.Task[SendResult]] = deque()

    async def drain(limit: int) -> None:
        while len(waiting) > limit:
            result = await waiting[0]
            waiting.popleft()
            if not quiet:
                _tell(result, as_json=common.json)

    # What shares an ordering key is sent one at a time.
    most = 0 if ordering_key is not None else IN_FLIGHT - 1
    async with Producer(GROUP, name_servers=common.addresses, timeout_ms=timeout_ms) as producer:
        try:
            for message in messages:
                waiting.append(asyncio.create_task(producer.send(message, ordering_key=ordering_key)))
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
                "messageId": result.message_id,
                "offsetMessageId": result.offset_message_id,
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "queueOffset": result.queue_offset,
            },
            one_line=True,
        )
    else:
        where = f"{queue.topic}[{queue.broker_name}:{queue.queue_id}] offset {result.queue_offset}"
        print(f"{result.status.name} {result.message_id} {where}")
