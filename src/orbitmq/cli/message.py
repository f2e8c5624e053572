"""``orbitmq message``: stored messages by id and key, and their traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Count, OfTopic, Topic, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.finding import Wanted, by_index, by_reading
from orbitmq.cli.formats import as_json, body_of, date
from orbitmq.cli.times import Between
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Columns, Table, View, listed, plain, same
from orbitmq.cli.where import Servers

if TYPE_CHECKING:
    from orbitmq.admin import Admin
    from orbitmq.message.model import ReceivedMessage

app = make_app(
    "message",
    "Show a stored message by its id, find messages by key, tag or time, trace one, let a member handle one "
    "now. No group's progress is touched.",
    """
orbitmq message get 7F00000100002A9F0000000000000000
orbitmq message get 7F0000015E4B63947C6B4E1B3C4D0000 --topic orders
orbitmq message find orders --key 4711
orbitmq message find orders --key 4711 --from 2d --json
orbitmq message find orders --tag paid --from 10m
orbitmq message trace 7F0000015E4B63947C6B4E1B3C4D0000
orbitmq message consume 7F00000100002A9F0000000000000000 --group g --client c
""",
)


MESSAGES: Columns = {
    **same("broker", "queue"),
    "offset": "queue_offset",
    "stored": "stored_at",
    "tag": "tags",
    "bytes": "store_size",
    "id": "message_id",
}
STEPS: Columns = {
    "at": "at",
    "what": "kind",
    "group": "group",
    "client": "client",
    "result": "result",
    "took": lambda row: None if row["took"] is None else f"{row['took'] * 1000:.0f} ms",
    "deliveries before": "redeliveries",
    "topic": "topic",
    "broker": "broker_address",
}


@app.command
@command
async def get(admin: Admin, message_id: str, /, *, topic: OfTopic = None) -> View:
    """Show one message.

    Args:
        message_id: The broker's id of the message (offset_message_id of 'orbitmq send'), or its unique id
            (message_id).
        topic: Topic of the message. The broker's id names the place of the message and needs none; a unique
            id needs it.
    """
    message = await admin.messages.get(message_id, topic=topic)
    return View(_facts(message), lines=listed(_lines(message)))


@app.command
@command
async def find(
    servers: Servers,
    topic: Topic,
    /,
    *,
    key: Annotated[str | None, Parameter(name=["--key", "-k"])] = None,
    tag: str | None = None,
    between: Between = Between(),
    count: Count = 64,
) -> View:
    """List the messages that have a key, a tag, or were stored within some time.

    With a key the brokers look in their indexes. Without one the messages are read from --from on: a search
    ends after 100,000 messages or 10 s, and says so. The exit code is 1 when nothing is found, the search has
    not seen all, or a broker does not answer.

    Args:
        key: One of the keys that the sender gave the message.
        tag: The tag of the message.
        count: Most messages; with --key of each broker, its newest ones.
    """
    at_least(1, count=count)
    begin, end = between.times_ms
    if key is None and tag is None and begin is None:
        raise UsageError("give --key, --tag or --from: which messages are looked for?")
    wanted = Wanted(topic, key, tag, begin, end, count)
    found = await (by_index if key is not None else by_reading)(servers, wanted)
    where = " at the brokers that answer" if found.left_out else ""
    notes = [] if found.messages else [f"no message of {topic} {wanted.text}{where}"]
    return View(
        {"topic": topic, "key": key, "tag": tag, "complete": not found.why_not_all},
        [Table("messages", list(map(_facts, found.messages)), MESSAGES, optional=True)],
        notes=[*notes, *([found.why_not_all] if found.why_not_all else [])],
        left_out=found.left_out,
        missing="its messages are",
        failed=bool(not found.messages or found.why_not_all),
    )


@app.command
@command
async def trace(admin: Admin, message_id: str, /, *, trace_topic: str = "RMQ_SYS_TRACE_TOPIC") -> View:
    """Show the trace of a message that was sent with message trace on: who sent it, who received it, the
    results.

    Args:
        message_id: The message's unique id (message_id of 'orbitmq send').
        trace_topic: Topic to which the clients send their traces.
    """
    answer = await admin.messages.trace(message_id, trace_topic=trace_topic)
    return View(
        {"message_id": message_id},
        [Table("steps", answer.found, STEPS)],
        left_out=answer.left_out,
        missing="traces that lie there are",
    )


@app.command
@command
async def consume(
    admin: Admin,
    message_id: str,
    /,
    *,
    group: Annotated[str, Parameter(name=["--group", "-g"])],
    client: str,
    topic: OfTopic = None,
) -> View:
    """Let one member of a group handle a stored message now, and show the result. No progress changes. The
    exit code is 1 if the handling failed.

    Args:
        message_id: The broker's id of the message, or its unique id.
        group: The consumer group.
        client: The member's client id, as 'orbitmq group show' prints it.
        topic: Topic of the message; a unique id needs it.
    """
    done = await admin.messages.consume(message_id, group, client, topic=topic)
    facts = {"message_id": message_id, "group": group, "client_id": client, **plain(done)}
    says = f": {done.remark}" if done.remark else ""
    line = f"{client} answers after {done.took:,.3f} s: {done.outcome}{says}"
    return View(facts, lines=[line], failed=not done.succeeded)


def _facts(message: ReceivedMessage) -> dict[str, Any]:
    return {
        **as_json(message),
        "offset_message_id": message.offset_message_id,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "store_size": message.store_size_bytes,
    }


def _lines(message: ReceivedMessage) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queue": f"{message.broker_name}[{message.queue_id}]",
        "offset": message.queue_offset,
        "id": message.message_id,
        "broker's id": message.offset_message_id,
        "tag": message.tags,
        "keys": " ".join(message.keys),
        "born": f"{date(message.born_timestamp_ms)} at {message.born_host}",
        "stored": f"{date(message.store_timestamp_ms)} at {message.store_host}",
        "deliveries": message.reconsume_times + 1,
        "size": f"{message.store_size_bytes} bytes stored",
        "properties": " ".join(f"{name}={value}" for name, value in sorted(message.properties.items())),
        **body_of(message),
    }
