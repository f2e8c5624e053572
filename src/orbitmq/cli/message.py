"""``orbitmq message``: stored messages, by id and by key, and what became of them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, UsageError
from orbitmq.cli.formats import as_json, body_of, date, shown
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.partial import plain_left_out, tell_not_shown, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin import LeftOut, TraceStep
    from orbitmq.message.model import ReceivedMessage

TRACES = "traces that lie there are"

app = make_app(
    "message",
    "Show a stored message by its id, find messages by key, trace one. No group's progress is touched.",
    """
orbitmq message get 7F00000100002A9F0000000000000000
orbitmq message get 7F0000015E4B63947C6B4E1B3C4D0000 --topic orders
orbitmq message find orders --key 4711
orbitmq message find orders --key 4711 --json
orbitmq message trace 7F0000015E4B63947C6B4E1B3C4D0000
""",
)


@app.command
def get(
    message_id: str,
    /,
    *,
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Show one message.

    Parameters
    ----------
    message_id
        The broker's id of it (offsetMessageId of 'orbitmq send'), or its unique id (messageId).
    topic
        Its topic. The broker's id names the place of the message and needs none; a unique id needs it.
    """
    message = run_async(_get(message_id, topic, common))
    if common.json:
        print_json(_facts(message))
        return EXIT_OK
    lines = _lines(message)
    width = max(map(len, lines))
    for name, value in lines.items():
        print(f"{name:<{width}}  {value}")
    return EXIT_OK


async def _get(message_id: str, topic: str | None, common: Common) -> ReceivedMessage:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await admin.messages.get(message_id, topic=topic)


@app.command
def find(
    topic: str,
    /,
    *,
    key: Annotated[str, Parameter(name=["--key", "-k"])],
    count: Annotated[int, Parameter(name=["--count", "-c"])] = 64,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """List the messages that have a key. The exit code is 1 when there are none, or a broker does not answer.

    Parameters
    ----------
    topic
        Where to look.
    key
        One of the keys that the sender gave the message.
    count
        At most so many of each broker, its newest ones.
    """
    if count < 1:
        raise UsageError(f"--count {count}: expected 1 or more")
    messages, left_out = run_async(_find(topic, key, count, common))
    if common.json:
        print_json({"messages": list(map(_facts, messages)), "leftOut": plain_left_out(left_out)})
    elif messages:
        headings = ["broker", "queue", "offset", "stored", "tag", "bytes", "id"]
        print_table(headings, [_row(message) for message in messages])
    else:
        where = " at the brokers that answer" if left_out else ""
        print(f"no message of {topic} has the key {key}{where}", file=sys.stderr)
    code = tell_not_shown(left_out, "its messages are")
    return code if messages else EXIT_FAILED


async def _find(
    topic: str, key: str, count: int, common: Common
) -> tuple[Sequence[ReceivedMessage], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.messages.find(topic, key=key, max_messages=count))


@app.command
def trace(
    message_id: str,
    /,
    *,
    topic: Annotated[str, Parameter(name=["--trace-topic"])] = "RMQ_SYS_TRACE_TOPIC",
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Show who sent a message, who got it, and how that ended: what clients with message trace told.

    Parameters
    ----------
    message_id
        Its unique id (messageId of 'orbitmq send').
    topic
        Where the clients put their traces.
    """
    steps, left_out = run_async(_trace(message_id, topic, common))
    if common.json:
        print_json(
            {
                "steps": list(map(asdict, steps)),
                "leftOut": plain_left_out(left_out),
            }
        )
        return tell_not_shown(left_out, TRACES)
    headings = ["at", "what", "group", "client", "result", "took", "deliveries before", "topic", "broker"]
    print_table(headings, [_step(step) for step in steps])
    return tell_not_shown(left_out, TRACES)


async def _trace(
    message_id: str, topic: str, common: Common
) -> tuple[Sequence[TraceStep], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.messages.trace(message_id, trace_topic=topic))


def _step(step: TraceStep) -> list[object]:
    return [
        shown(step.at) or "-",
        step.kind,
        step.group,
        step.client,
        step.result,
        "-" if step.took is None else f"{step.took * 1000:.0f} ms",
        "-" if step.redeliveries is None else step.redeliveries,
        step.topic or "-",
        step.broker or "-",
    ]


def _facts(message: ReceivedMessage) -> dict[str, Any]:
    return {
        **as_json(message),
        "offsetMessageId": message.offset_message_id,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "storeSize": message.store_size_bytes,
    }


def _lines(message: ReceivedMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queue": f"{message.broker_name}[{message.queue_id}]",
        "offset": message.queue_offset,
        "id": message.message_id,
        "broker's id": message.offset_message_id,
        "tag": message.tags or "-",
        "keys": " ".join(message.keys) or "-",
        "born": f"{date(message.born_timestamp_ms)} at {message.born_host}",
        "stored": f"{date(message.store_timestamp_ms)} at {message.store_host}",
        "deliveries": message.reconsume_times + 1,
        "size": f"{message.store_size_bytes} bytes stored",
        "properties": " ".join(f"{name}={value}" for name, value in sorted(message.properties.items())),
        **body_of(message),
    }


def _row(message: ReceivedMessage) -> list[object]:
    return [
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        date(message.store_timestamp_ms),
        message.tags or "-",
        message.store_size_bytes,
        message.message_id,
    ]
