"""``orbitmq dlq``: dead letters, looked at and sent again."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, UsageError
from orbitmq.cli.formats import as_json, date, shown
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.partial import done, plain_left_out, tell_not_done, tell_not_shown, told
from orbitmq.cli.redriving import Redriving
from orbitmq.cli.times import Between, time_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.admin import LeftOut, RedriveJob
    from orbitmq.admin.dead_letters import DeadLetters
    from orbitmq.message.model import ReceivedMessage

LETTERS = "its dead letters are"

app = make_app(
    "dlq",
    "Dead letters: messages that a group could not handle. List, show and export them; send them again.",
    """
orbitmq dlq list
orbitmq dlq show billing --count 10
orbitmq dlq export billing --filter "region = 'eu'" > dead.jsonl
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
        Only those that this SQL92 expression matches.
    begin
        Where to begin: first, a time (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or how long ago
        (10m; s, m, h, d).
    end
        Only those that became dead letters before.
    """

    sql: Annotated[str | None, Parameter(name=["--filter"])] = None
    begin: Annotated[str, Parameter(name=["--from"])] = "first"
    end: Annotated[str | None, Parameter(name=["--to"])] = None


@app.command(name="list")
def list_groups(*, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Print the groups that have dead letters, and how many."""
    found, left_out = run_async(_groups(common))
    if common.json:
        print_json(
            {
                "groups": [{**asdict(one), "newest": shown(one.newest)} for one in found],
                "leftOut": plain_left_out(left_out),
            }
        )
        return tell_not_shown(left_out, LETTERS)
    rows = [[one.group, one.count, shown(one.newest) or "-", ", ".join(one.brokers)]
            for one in found]  # fmt: skip
    print_table(["group", "dead letters", "newest", "brokers"], rows)
    return tell_not_shown(left_out, LETTERS)


async def _groups(common: Common) -> tuple[Sequence[DeadLetters], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.dead_letters.list())


@app.command
def show(
    group: str,
    /,
    *,
    letters: Letters = Letters(),
    count: Annotated[int, Parameter(name=["--count", "-c"])] = 20,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Print dead letters of a group, the oldest first. Nothing is consumed.

    Parameters
    ----------
    group
        Whose.
    count
        At most so many.
    """
    if count < 1:
        raise UsageError(f"--count {count}: expected 1 or more")
    messages: list[ReceivedMessage] = []

    def take(message: ReceivedMessage) -> bool:
        messages.append(message)
        return len(messages) < count

    code = run_async(_each(group, letters, take, common))
    if common.json:
        for message in messages:
            _print(message)
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
        Whose.
    """
    return run_async(_each(group, letters, _print, common))


async def _each(group: str, letters: Letters, take: Callable[[ReceivedMessage], bool], common: Common) -> int:
    """Give dead letters to ``take`` until it has enough, and says so with ``False``; the exit code."""
    from contextlib import aclosing

    from orbitmq.cli.peek import Peek
    from orbitmq.client.consumer.membership import sql_filter, tag_filter
    from orbitmq.message.reserved import dead_letter_topic

    sql, begin = letters.sql, letters.begin
    start: int | str = begin if begin == "first" else time_ms(begin, "--from", "first, ")
    before_ms = sys.maxsize if letters.end is None else time_ms(letters.end, "--to")
    async with Peek(common.addresses) as peek:
        now = peek.runtime.clock.now_ms()
        wanted = tag_filter("*", now) if sql is None else sql_filter(sql, now)
        messages = peek.messages(dead_letter_topic(group), start, wanted, follow=False)
        async with aclosing(messages) as pieces:
            async for piece in pieces:
                if not all(take(message) for message in piece if message.store_timestamp_ms < before_ms):
                    break
    return EXIT_FAILED if peek.lost else EXIT_OK


def _print(message: ReceivedMessage) -> bool:
    print_json({**as_json(message), "offsetMessageId": message.offset_message_id}, one_line=True)
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
def redrive(
    group: str,
    /,
    *,
    filter: str | None = None,
    between: Between = Between(),  # noqa: B008 - immutable
    how: Redriving = Redriving(),  # noqa: B008 - immutable
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Send dead letters again. The brokers keep the job; see status. None is sent twice.

    Parameters
    ----------
    group
        Whose.
    filter
        Only those that this SQL92 expression matches.
    """
    begin, end = between.times
    jobs, left_out = run_async(
        _redrive(group, {**how.options, "sql": filter, "begin": begin, "end": end}, common)
    )
    return max(_show(jobs, left_out, common), tell_not_done(left_out))


async def _redrive(
    group: str, options: dict[str, Any], common: Common
) -> tuple[Sequence[RedriveJob], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await done(admin.dead_letters.redrive(group, **options))


@app.command
def status(group: str | None = None, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Show the last redrive of each group, or of one. The exit code is 1 when one has failed, or a broker
    does not answer.

    Parameters
    ----------
    group
        Only this one's.
    """

    async def work() -> tuple[Sequence[RedriveJob], Sequence[LeftOut]]:
        from orbitmq.admin import Admin

        async with Admin(common.addresses) as admin:
            return await told(admin.dead_letters.redrives(group))

    jobs, left_out = run_async(work())
    return max(_show(jobs, left_out, common), tell_not_shown(left_out, "redrives there are"))


@app.command
def pause(group: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Let a redrive wait.

    Parameters
    ----------
    group
        Whose.
    """
    return _change(group, "pause", common)


@app.command
def resume(group: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Let a redrive that waits go on.

    Parameters
    ----------
    group
        Whose.
    """
    return _change(group, "resume", common)


@app.command
def stop(group: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """End a redrive. What it has sent stays sent; the next one goes on with the rest.

    Parameters
    ----------
    group
        Whose.
    """
    return _change(group, "stop", common)


def _change(group: str, action: str, common: Common) -> int:
    async def work() -> tuple[Sequence[RedriveJob], Sequence[LeftOut]]:
        from orbitmq.admin import Admin

        async with Admin(common.addresses) as admin:
            return await done(getattr(admin.dead_letters, action)(group))

    jobs, left_out = run_async(work())
    return max(_show(jobs, left_out, common), tell_not_done(left_out))


def _show(jobs: Sequence[RedriveJob], left_out: Sequence[LeftOut], common: Common) -> int:
    failed = any(job.state == "failed" for job in jobs)
    if common.json:
        plain = list(map(asdict, jobs))
        print_json({"jobs": plain, "leftOut": plain_left_out(left_out)})
        return EXIT_FAILED if failed else EXIT_OK
    rows = [
        [job.group, job.broker_name, "counted" if job.dry_run else job.state,
         job.sent, job.remaining, job.too_often, job.without_topic,
         job.too_large, job.passed_over]
        for job in jobs
    ]  # fmt: skip
    headings = [
        "group",
        "broker",
        "state",
        "sent",
        "left",
        "too often",
        "no topic",
        "too large",
        "passed over",
    ]
    print_table(headings, rows)
    for job in jobs:
        if job.problem:
            print(f"{job.broker_name}: {job.problem}", file=sys.stderr)
        if job.missing_topic:
            print(f"{job.broker_name}: topic {job.missing_topic} is not there", file=sys.stderr)
        if not job.complete:
            print(f"{job.broker_name}: there are more, counting took too long", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK
