"""``orbitmq dlq``: shows dead letters and sends them again."""

from __future__ import annotations

import sys
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from orbitmq.cli.app import Count, Group, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.formats import as_json
from orbitmq.cli.output import json_text, progress
from orbitmq.cli.partial import done
from orbitmq.cli.reading import read, reader_of
from orbitmq.cli.redriving import Redriving
from orbitmq.cli.times import Between, time_ms
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Columns, Line, Row, Table, View, same
from orbitmq.cli.where import Servers
from orbitmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence

    from orbitmq.admin import Admin, LeftOut, RedriveJob
    from orbitmq.message.model import ReceivedMessage

T = TypeVar("T")
GROUPS: Columns = {
    "group": "group",
    "dead letters": "count",
    "newest": "newest",
    "brokers": lambda row: list(row["brokers"]),
}
LETTERS: Columns = {
    "broker": "broker",
    "offset": "queue_offset",
    "dead since": "stored_at",
    "from": lambda row: _property(row, "DLQ_ORIGIN_TOPIC") or _property(row, "RETRY_TOPIC"),
    "deliveries": "reconsume_times",
    "redrives": lambda row: _property(row, "DLQ_REDRIVES") or "0",
    "id": "message_id",
    "reason": lambda row: _property(row, "DLQ_REASON"),
}
JOBS: Columns = {
    **same("group", "broker"),
    "state": lambda row: "counted" if row["dry_run"] else row["state"],
    "sent": "sent",
    "left": "remaining",
    **same("too often"),
    "no topic": "without_topic",
    **same("too large", "passed over"),
}

app = make_app(
    "dlq",
    "Dead letters: messages that a group could not handle. List, show and export them; send them again.",
    """
orbitmq dlq list
orbitmq dlq show billing --count 10
orbitmq dlq export billing --sql "region = 'eu'" > dead.jsonl
orbitmq dlq redrive billing --dry-run
orbitmq dlq redrive billing --from 2h --rate 500/s
orbitmq dlq redrive billing --id 0A0000090000300800004710000F
orbitmq dlq status
orbitmq dlq pause billing
""",
)


@Parameter(name="*")
@dataclass(frozen=True)
class Letters:
    """Options that choose dead letters.

    Attributes:
        sql: Show only those that this SQL92 expression over their properties matches.
        begin: Where to begin: first, a time (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or how long
            ago (10m; s, m, h, d).
        end: Show only those that became dead letters before this time, in the form of --from.
    """

    sql: str | None = None
    begin: Annotated[str, Parameter(name=["--from"])] = "first"
    end: Annotated[str | None, Parameter(name=["--to"])] = None


@app.command(name="list")
@command
async def list_groups(admin: Admin, /) -> View:
    """Print the groups that have dead letters, and how many."""
    answer = await admin.dead_letters.list()
    return View(
        {},
        [Table("groups", answer.found, GROUPS)],
        left_out=answer.left_out,
        missing="its dead letters are",
    )


@app.command
@command
async def show(servers: Servers, group: Group, /, *, letters: Letters = Letters(), count: Count = 20) -> View:
    """Print dead letters of a group, the oldest first. Nothing is consumed.

    Args:
        count: Most dead letters that are shown.
    """
    at_least(1, count=count)
    messages: list[ReceivedMessage] = []
    lost: list[LeftOut] = []
    async with aclosing(_letters(servers, group, letters, lost)) as found:
        async for message in found:
            messages.append(message)
            if len(messages) == count:
                break
    rows = list(map(_plain, messages))
    return View(
        {"group": group}, [Table("messages", rows, LETTERS)], left_out=lost, missing="its messages are"
    )


@app.command
@command
async def export(servers: Servers, group: Group, /, *, letters: Letters = Letters()) -> Views:
    """Write all dead letters of a group to standard output, one line of JSON each."""
    lost: list[LeftOut] = []
    with progress(wanted=not sys.stdout.isatty()) as tell:
        number = 0
        async for message in _letters(servers, group, letters, lost):
            facts = _plain(message)
            number += 1
            tell(f"{counted(number, 'dead letter')} of {group}")
            yield Line(facts, json_text(facts, one_line=True))
    for one in lost:
        yield Line(note=f"{one}; its messages are not shown", failed=True)


async def _letters(
    servers: Servers, group: str, letters: Letters, lost: list[LeftOut]
) -> AsyncGenerator[ReceivedMessage, None]:
    """The dead letters. Brokers whose dead letters could not all be read are added to ``lost``."""
    from orbitmq.errors import OrbitError, TopicNotFoundError
    from orbitmq.message.reserved import dead_letter_topic

    begin = letters.begin
    start: int | str = begin if begin == "first" else time_ms(begin, "--from", "first, ")
    before_ms = None if letters.end is None else time_ms(letters.end, "--to")
    reader = reader_of(dead_letter_topic(group), start, servers, sql=letters.sql)
    try:
        async with aclosing(read(reader, lost)) as batches:
            async for batch in batches:
                for message in batch:
                    if before_ms is None or message.store_timestamp_ms < before_ms:
                        yield message
    except TopicNotFoundError as error:
        raise OrbitError(f"group {group} has no dead letters ({error})") from error


def _property(row: Row, name: str) -> str | None:
    return row["properties"].get(name)  # type: ignore[no-any-return]


def _plain(message: ReceivedMessage) -> dict[str, Any]:
    return {**as_json(message), "offset_message_id": message.offset_message_id}


@app.command
@command
async def redrive(
    admin: Admin,
    group: Group,
    /,
    *,
    sql: str | None = None,
    ids: Annotated[list[str] | None, Parameter(name="--id", negative=())] = None,
    between: Between = Between(),
    how: Redriving = Redriving(),
) -> View:
    """Send dead letters again, none of them twice. The brokers do it on their own: see 'orbitmq dlq status'.

    Args:
        sql: Send only those that this SQL92 expression over their properties matches.
        ids: Send only the dead letter with this id, of 'orbitmq dlq show'. May be given more than once.
    """
    begin, end = between.times
    only = None if ids is None else await _places(admin, group, ids)
    work = admin.dead_letters.redrive(group, sql=sql, begin=begin, end=end, only=only, **how.options)
    return _jobs(*await done(_offered(work)))


async def _places(admin: Admin, group: str, ids: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """The queue offsets of the dead letters with these ids, by broker, as sorted ranges.

    Raises:
        OrbitError: a dead letter does not exist.
    """
    from orbitmq.errors import MessageNotFoundError, OrbitError, TopicNotFoundError, ValidationError
    from orbitmq.message.reserved import dead_letter_topic

    topic = dead_letter_topic(group)
    found: dict[str, set[int]] = {}
    for one in ids:
        try:
            messages = await admin.messages.by_unique_id(topic, one)
            if not messages:
                messages = [await admin.messages.get(one)]
        except TopicNotFoundError as error:
            raise OrbitError(f"group {group} has no dead letters ({error})") from error
        except (MessageNotFoundError, ValidationError) as error:
            raise OrbitError(f"--id {one}: group {group} has no such dead letter ({error})") from error
        if messages[0].topic != topic:
            raise OrbitError(f"--id {one}: this message is in topic {messages[0].topic}, no dead letter")
        for message in messages:
            found.setdefault(message.broker_name, set()).add(message.queue_offset)
    return {broker: [(offset, offset + 1) for offset in sorted(own)] for broker, own in found.items()}


@app.command
@command
async def status(admin: Admin, group: str | None = None, /) -> View:
    """Show the last redrive of each group, or of one. The exit code is 1 when one has failed, or a broker
    does not answer.

    Args:
        group: Show only the redrive of this consumer group. Default: of all groups.
    """
    answer = await _offered(admin.dead_letters.redrives(group))
    return _jobs(answer.found, answer.left_out, missing="redrives there are")


@app.command
@command
async def pause(admin: Admin, group: Group, /) -> View:
    """Pause a redrive; 'orbitmq dlq resume' continues it."""
    return _jobs(*await done(_offered(admin.dead_letters.pause(group))))


@app.command
@command
async def resume(admin: Admin, group: Group, /) -> View:
    """Continue a paused redrive."""
    return _jobs(*await done(_offered(admin.dead_letters.resume(group))))


@app.command
@command
async def stop(admin: Admin, group: Group, /) -> View:
    """End a redrive. Messages already sent stay sent; the next redrive continues with the rest."""
    return _jobs(*await done(_offered(admin.dead_letters.stop(group))))


async def _offered(work: Awaitable[T]) -> T:
    """The result of a question or change about redrives.

    Raises:
        OrbitError: Apache's brokers have no redrive; it says what sends their dead letters again.
    """
    from orbitmq.errors import BrokerError, OrbitError
    from orbitmq.wire.refusals import is_not_offered

    try:
        return await work
    except BrokerError as error:
        if not is_not_offered(error):
            raise
        raise OrbitError(
            f"{error}; 'orbitmq spark redrive' sends dead letters of any broker again"
        ) from error


def _jobs(jobs: Sequence[RedriveJob], left_out: Sequence[LeftOut], *, missing: str | None = None) -> View:
    notes: list[str] = []
    for job in jobs:
        if job.problem:
            notes.append(f"{job.broker_name}: {job.problem}")
        if job.missing_topic:
            gone = f"{job.broker_name}: topic {job.missing_topic} is not there"
            notes.append(f"{gone}; create it, or send to another one with --to-topic")
        if not job.complete:
            more = f"{job.broker_name}: there are more, counting took too long"
            notes.append(f"{more}; count those of a shorter time (--from, --to)")
    return View(
        {},
        [Table("jobs", jobs, JOBS)],
        notes=notes,
        left_out=left_out,
        missing=missing,
        failed=any(job.state == "failed" for job in jobs),
    )
