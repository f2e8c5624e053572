"""``orbitmq receive``: the messages of a topic on standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.formats import HELP, Format, FormatError, as_json
from orbitmq.cli.output import print_json
from orbitmq.cli.times import time_ms

if TYPE_CHECKING:
    from orbitmq.message.model import ReceivedMessage

app = make_app(
    "receive",
    "Print the messages of a topic.\n\n"
    "Without --group it only looks: it reads all queues up to their present ends, and no group's progress is "
    "touched. With --group it consumes as a member of that group until Ctrl-C or --count.",
    """
orbitmq receive orders
orbitmq receive orders --follow --tags 'new || paid' --format '%t[%p] %o %k %s\\n'
orbitmq receive orders --from 10m --json
orbitmq receive orders --sql "price > 5 AND region = 'eu'"
orbitmq receive orders --from 2026-11-21T14:00 --count 5
orbitmq receive orders --group billing --count 100
""",
)


# Tags, and an SQL92 expression instead of them.
Wanted = tuple[str, str | None]


@app.default
def receive(
    topic: str,
    /,
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    begin: Annotated[str, Parameter(name=["--from"])] = "first",
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=())] = False,
    count: Annotated[int | None, Parameter(name=["--count", "-c"])] = None,
    tags: Annotated[str, Parameter(name=["--tags"])] = "*",
    sql: str | None = None,
    format: Annotated[
        str, Parameter(name=["--format", "-F"], help=f"How to print a message: {HELP}.")
    ] = "%s\\n",
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Print messages.

    Parameters
    ----------
    topic
        Topic to read.
    group
        Consume as a member of this group and commit its progress.
    begin
        Where to begin: first, last, a time (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or how long
        ago (10m; s, m, h, d).
        With --group it counts only where the group has no progress yet.
    follow
        Go on with what is still to come, until Ctrl-C.
    count
        Most messages that are read. Default: all that are there.
    tags
        Read only messages with one of these tags, as 'a || b'. Default: all messages.
    sql
        Instead of tags: read only messages that this SQL92 expression over their properties matches.
    """
    try:
        printer = _Printer(Format(format), as_json=common.json)
    except FormatError as error:
        raise UsageError(str(error)) from error
    if count is not None and count < 1:
        raise UsageError(f"--count {count}: expected 1 or more")
    place = _place(begin)
    if group is None:
        return run_async(_look(topic, place, follow, count, (tags, sql), printer, common))
    return run_async(_consume(topic, group, place, count, (tags, sql), printer, common))


def _place(text: str) -> int | str:
    """``first``, ``last``, or milliseconds since the epoch."""
    if text in ("first", "last"):
        return text
    return time_ms(text, "--from", "first, last, ")


class _Printer:
    """Writes messages and counts them."""

    def __init__(self, form: Format, *, as_json: bool) -> None:
        self._format = form
        self._as_json = as_json
        self.count = 0

    def print(self, message: ReceivedMessage) -> None:
        if self._as_json:
            print_json(as_json(message), one_line=True)
        else:
            sys.stdout.buffer.write(self._format.render(message))
        self.count += 1


async def _look(
    topic: str,
    begin: int | str,
    follow: bool,
    count: int | None,
    wanted: Wanted,
    printer: _Printer,
    common: Common,
) -> int:
    from orbitmq.cli.reading import read, reader_of

    def take(batch: list[ReceivedMessage]) -> bool:
        for message in batch:
            printer.print(message)
            if printer.count == count:
                break
        sys.stdout.flush()
        return printer.count != count

    tags, sql = wanted
    return await read(reader_of(topic, begin, common, tags=tags, sql=sql, follow=follow), take)


async def _consume(
    topic: str,
    group: str,
    begin: int | str,
    count: int | None,
    wanted: Wanted,
    printer: _Printer,
    common: Common,
) -> int:
    import asyncio
    import signal

    from orbitmq.client.consumer.consumer import Consumer
    from orbitmq.client.model import ConsumeFrom
    from orbitmq.durations import instant

    named = {"first": ConsumeFrom.FIRST, "last": ConsumeFrom.LAST}
    consumer = Consumer(
        group,
        name_servers=common.addresses,
        consume_from=named[begin] if isinstance(begin, str) else ConsumeFrom.TIMESTAMP,
        consume_timestamp=instant(begin) if isinstance(begin, int) else None,
    )
    consumer.subscribe(topic, wanted[0], sql=wanted[1])
    loop = asyncio.get_running_loop()
    async with consumer:
        # Ctrl-C ends the loop below, so that the progress is committed and the group told.
        closing: list[asyncio.Task[None]] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: closing.append(loop.create_task(consumer.close())))
        async for message in consumer.messages(auto_ack=False):
            printer.print(message)
            sys.stdout.flush()
            message.ack()
            if printer.count == count:
                break
        await asyncio.gather(*closing)
    return EXIT_OK
