"""``orbitmq dlq``: dead letters, looked at and sent again."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, Count, make_app, run_async
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.formats import as_json, date
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.partial import done
from orbitmq.cli.redriving import Redriving
from orbitmq.cli.times import Between, time_ms
from orbitmq.cli.view import Columns, Table, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.admin import Admin, LeftOut, RedriveJob
    from orbitmq.message.model import ReceivedMessage

GROUPS: Columns = {
    "group": "group",
    "dead letters": "count",
    "newest": "newest",
    "brokers": lambda row: list(row["brokers"]),
}
JOBS: Columns = {
    "group": "group",
    "broker": "broker",
    "state": lambda row: "counted" if row["dry_run"] else row["state"],
    "sent": "sent",
    "left": "remaining",
    "too often": "too_often",
    "no topic": "without_topic",
    "too large": "too_large",
    "passed over": "passed_over",
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
orbitmq dlq status
orbitmq dlq pause billing
""",
)


@Parameter(name="*")
@dataclass(frozen=True)
class Letters:
    """Which dead letters of a group are looked at.

    Parameters
    ----------
    sql
        Show only those that this SQL92 expression over their properties matches.
    begin
        Where to begin: first, a time (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or how long ago
        (10m; s, m, h, d).
    end
        Only those that became dead letters before.
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
def show(
    group: str,
    /,
    *,
    letters: Letters = Letters(),
    count: Count = 20,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Print dead letters of a group, the oldest first. Nothing is consumed.

    Parameters
    ----------
    group
        Consumer group whose dead letters are shown.
    count
        Most dead letters that are shown.
    """
    if count < 1:
        raise UsageError(f"--count {count}: expected 1 or more")
    messages: list[ReceivedMessage] = []

    def take(message: ReceivedMessage) -> bool:
        messages.append(message)
        return len(messages) < count

    code = run_async(_each(group, letters, take, common))
    if common.json:
        print_json({"group": group, "messages": list(map(_plain, messages))})
        return code
    headings = ["broker", "offset", "dead since", "from", "deliveries", "redrives", "id", "reason"]
    print_table(headings, [_row(message) for message in messages])
    return code


@app.command
def export(
    group: str,
    /,
    *,
    letters: Letters = Letters(),
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Write all dead letters of a group to standard output, one line of JSON each.

    Parameters
    ----------
    group
        Consumer group whose dead letters are written.
    """
    return run_async(_each(group, letters, _print, common))


async def _each(group: str, letters: Letters, take: Callable[[ReceivedMessage], bool], common: Common) -> int:
    """Give dead letters to ``take`` until it has enough, and says so with ``False``; the exit code."""
    from orbitmq.cli.reading import read, reader_of
    from orbitmq.message.reserved import dead_letter_topic

    sql, begin = letters.sql, letters.begin
    start: int | str = begin if begin == "first" else time_ms(begin, "--from", "first, ")
    before_ms = sys.maxsize if letters.end is None else time_ms(letters.end, "--to")

    def take_all(batch: list[ReceivedMessage]) -> bool:
        return all(take(message) for message in batch if message.store_timestamp_ms < before_ms)

    return await read(reader_of(dead_letter_topic(group), start, common, sql=sql), take_all)


def _plain(message: ReceivedMessage) -> dict[str, Any]:
    return {**as_json(message), "offset_message_id": message.offset_message_id}


def _print(message: ReceivedMessage) -> bool:
    print_json(_plain(message), one_line=True)
    return True


def _row(message: ReceivedMessage) -> list[object]:
    properties = message.properties
    return [
        message.broker_name,
        message.queue_offset,
        date(message.store_timestamp_ms),
        properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC") or "-",
        message.reconsume_times,
        properties.get("DLQ_REDRIVES", "0"),
        message.message_id,
        properties.get("DLQ_REASON", "-"),
    ]


@app.command
@command
async def redrive(
    admin: Admin,
    group: str,
    /,
    *,
    sql: str | None = None,
    between: Between = Between(),  # noqa: B008 - immutable
    how: Redriving = Redriving(),  # noqa: B008 - immutable
) -> View:
    """Send dead letters again. The brokers keep the job; see status. None is sent twice.

    Parameters
    ----------
    group
        Consumer group whose dead letters are sent again.
    sql
        Send only those that this SQL92 expression over their properties matches.
    """
    begin, end = between.times
    jobs, left_out = await done(
        admin.dead_letters.redrive(group, sql=sql, begin=begin, end=end, **how.options)
    )
    return _jobs(jobs, left_out)


@app.command
@command
async def status(admin: Admin, group: str | None = None, /) -> View:
    """Show the last redrive of each group, or of one. The exit code is 1 when one has failed, or a broker
    does not answer.

    Parameters
    ----------
    group
        Show only the redrive of this consumer group. Default: of all groups.
    """
    answer = await admin.dead_letters.redrives(group)
    return _jobs(answer.found, answer.left_out, missing="redrives there are")


@app.command
@command
async def pause(admin: Admin, group: str, /) -> View:
    """Pause a redrive; resume lets it go on.

    Parameters
    ----------
    group
        Consumer group whose redrive is paused.
    """
    return _jobs(*await done(admin.dead_letters.pause(group)))


@app.command
@command
async def resume(admin: Admin, group: str, /) -> View:
    """Let a paused redrive go on.

    Parameters
    ----------
    group
        Consumer group whose redrive goes on.
    """
    return _jobs(*await done(admin.dead_letters.resume(group)))


@app.command
@command
async def stop(admin: Admin, group: str, /) -> View:
    """End a redrive. What it has sent stays sent; the next one goes on with the rest.

    Parameters
    ----------
    group
        Consumer group whose redrive ends.
    """
    return _jobs(*await done(admin.dead_letters.stop(group)))


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
