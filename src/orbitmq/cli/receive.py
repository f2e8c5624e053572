"""``orbitmq receive``: the messages of a topic on standard output."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import flag, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.formats import HELP, Format, FormatError, as_json
from orbitmq.cli.reading import read, reader_of
from orbitmq.cli.times import time_ms
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Line
from orbitmq.cli.where import Servers

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut
    from orbitmq.message.model import ReceivedMessage

app = make_app(
    "receive",
    "Print the messages of a topic.\n\n"
    "Without --group it only looks: it reads all queues up to their present ends, and no group's progress is "
    "touched. With --group it consumes as a member of that group until Ctrl-C or --count.",
    """
orbitmq receive orders
orbitmq receive orders --tags 'new || paid'
orbitmq receive orders --follow --format '%t[%p] %o %k %s\\n'
orbitmq receive orders --from 10m --json
orbitmq receive orders --sql "price > 5 AND region = 'eu'"
orbitmq receive orders --from 2026-11-21T14:00 --count 5
orbitmq receive orders --group billing --count 100
""",
)

# Tags, and the SQL92 expression that replaces them if it is set.
Wanted = tuple[str, str | None]


@app.default
@command
def receive(
    servers: Servers,
    topic: str,
    /,
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    begin: Annotated[str, Parameter(name=["--from"])] = "first",
    follow: Annotated[bool, flag(None, "--follow", "-f")] = False,
    count: Annotated[int | None, Parameter(name=["--count", "-c"])] = None,
    tags: str = "*",
    sql: str | None = None,
    format: Annotated[
        str, Parameter(name=["--format", "-F"], help=f"How to print a message: {HELP}.")
    ] = "%s\\n",
) -> Views:
    """Print the messages of a topic.

    Args:
        topic: Topic to read.
        group: Consume as a member of this group and commit its progress.
        begin: Where to begin: first, last, a time (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or how
            long ago (10m; s, m, h, d). With --group it counts only where the group has no progress yet.
        follow: Continue with messages that arrive later, until Ctrl-C.
        count: Most messages to read. Default: all stored messages.
        tags: Read only messages with one of these tags, as 'a || b'. Default: all messages.
        sql: Instead of tags: read only messages that this SQL92 expression over their properties matches.
    """
    try:
        form = Format(format)
    except FormatError as error:
        raise UsageError(str(error)) from error
    at_least(1, count=count)
    start = begin if begin in ("first", "last") else time_ms(begin, "--from", "first, last, ")
    if group is None:
        return _look(servers, topic, start, (tags, sql), count, follow=follow, form=form)
    return _consume(servers, topic, group, start, (tags, sql), count, form=form)


def _line(message: ReceivedMessage, form: Format) -> Line:
    return Line(as_json(message), form.render(message))


async def _look(
    servers: Servers,
    topic: str,
    begin: int | str,
    wanted: Wanted,
    count: int | None,
    *,
    follow: bool,
    form: Format,
) -> Views:
    """The messages of all queues, read without a group."""
    lost: list[LeftOut] = []
    reader, shown = reader_of(topic, begin, servers, tags=wanted[0], sql=wanted[1], follow=follow), 0
    async with aclosing(read(reader, lost)) as batches:
        async for batch in batches:
            for message in batch:
                yield _line(message, form)
                shown += 1
                if shown == count:
                    return
    for one in lost:
        yield Line(note=f"{one}; its messages are not shown", failed=True)


async def _consume(
    servers: Servers,
    topic: str,
    group: str,
    begin: int | str,
    wanted: Wanted,
    count: int | None,
    *,
    form: Format,
) -> Views:
    """The messages that a member of the group receives; each is acknowledged after it is printed.

    The topic may not exist until its first message is sent, so a group waits for it.
    """
    from orbitmq.admin import Admin
    from orbitmq.client.consumer.consumer import Consumer
    from orbitmq.client.consumer.shutdown import closing_on_signals
    from orbitmq.client.model import ConsumeFrom
    from orbitmq.durations import instant
    from orbitmq.errors import TopicNotFoundError

    async with Admin(**servers.options) as admin:
        try:
            await admin.topics.route(topic)
        except TopicNotFoundError as error:
            yield Line(note=f"{error}; waiting until one has it: Ctrl-C ends this")
    named = {"first": ConsumeFrom.FIRST, "last": ConsumeFrom.LAST}
    consumer = Consumer(
        group,
        **servers.options,
        consume_from=named[begin] if isinstance(begin, str) else ConsumeFrom.TIMESTAMP,
        consume_timestamp=instant(begin) if isinstance(begin, int) else None,
    )
    consumer.subscribe(topic, wanted[0], sql=wanted[1])
    read = 0
    # Ctrl-C closes the consumer: it commits its progress, leaves the group, and the loop ends.
    async with consumer, closing_on_signals(consumer.close, wanted=True):
        async for message in consumer.messages(auto_ack=False):
            yield _line(message, form)
            message.ack()
            read += 1
            if read == count:
                break
