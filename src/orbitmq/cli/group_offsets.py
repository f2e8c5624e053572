"""``orbitmq group reset | skip | clone``: where groups go on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitmq.cli.app import Common, DryRun, Topic, Yes, confirm
from orbitmq.cli.command import asked, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.group import app
from orbitmq.cli.partial import done, of_all
from orbitmq.cli.times import time_ms
from orbitmq.cli.view import Columns, Table, View
from orbitmq.durations import instant
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.admin import Admin, Move, Partial

    Plan = Callable[[Admin], Awaitable[Partial[Sequence[Move]]]]

MOVES: Columns = {
    "topic": "topic",
    "broker": "broker",
    "queue": "queue",
    "from": "from",
    "to": "to",
    "change": lambda row: row["to"] - (row["from"] or 0),
}


@app.command
def reset(
    group: str,
    topic: str | None = None,
    /,
    *,
    to: str | None = None,
    offset: int | None = None,
    queue: str | None = None,
    file: Path | None = None,
    undo: Path | None = None,
    save: Path | None = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Move a group, whether members are online or not. Asks first, and writes down where the group was.

    Parameters
    ----------
    group
        Name of the consumer group.
    topic
        Topic in which the group is moved; not with --file and --undo, which name topics.
    to
        What comes next: first, last, or what was stored at a time (2026-11-21T14:00, UTC, or milliseconds, 13
        digits) or so long ago (10m; s, m, h, d).
    offset
        New offset of one queue, see --queue.
    queue
        The queue of --offset, as BROKER:ID.
    file
        A JSON file with the new offsets, as --dry-run --json prints them: {"moves": [{"topic", "broker",
        "queue", "to"}, ...]}. Only the brokers that it names are asked.
    undo
        A file that an earlier reset wrote: the group goes back to where it was before. Queues in which it had
        committed nothing stay as they are.
    save
        File in which the moves are written down, for --undo. Default: GROUP-reset.json in this folder.
    dry_run
        Only print from where to where each queue would be moved.
    yes
        Do not ask.
    """
    ways = [to is not None, offset is not None, file is not None, undo is not None]
    if sum(ways) != 1:
        raise UsageError("give one of --to, --offset, --file and --undo")
    if (topic is None) != (file is not None or undo is not None):
        raise UsageError("a topic is needed with --to and --offset, and with them only")
    if (offset is None) != (queue is None):
        raise UsageError("--offset and --queue belong together")
    source = file or undo
    if source is not None:
        targets = read_moves(source, "to" if undo is None else "from")
    elif offset is not None and topic is not None:
        targets = {_queue(topic, queue or ""): offset}
    else:
        targets = {}
    at_ms = time_ms(to, "--to", "first, last, ") if to not in (None, "first", "last") else 0

    async def plan(admin: Admin) -> Partial[Sequence[Move]]:
        if to is None or topic is None:
            return await admin.groups.plan(group, targets)
        if to == "first":
            return await admin.groups.plan_to_first(group, topic)
        if to == "last":
            return await admin.groups.plan_to_last(group, topic)
        return await admin.groups.plan_to_time(group, topic, instant(at_ms))

    return _moved(group, plan, save, dry_run, yes, common)


@app.command
def skip(
    group: str,
    topic: str,
    /,
    *,
    save: Path | None = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Skip what has piled up: the same as reset --to last.

    Parameters
    ----------
    group
        Name of the consumer group.
    topic
        Topic whose messages are skipped.
    save
        File in which the moves are written down, for reset --undo. Default: GROUP-reset.json in this folder.
    dry_run
        Only print from where to where each queue would be moved.
    yes
        Do not ask.
    """

    async def plan(admin: Admin) -> Partial[Sequence[Move]]:
        return await admin.groups.plan_to_last(group, topic)

    return _moved(group, plan, save, dry_run, yes, common)


@app.command
@command
async def clone(admin: Admin, source: str, target: str, /, *, topic: Topic = None, yes: Yes = False) -> View:
    """Give one group the offsets of another. Asks first.

    Parameters
    ----------
    source
        The group that has the offsets.
    target
        The group that gets them; its own are lost.
    topic
        Only the offsets of this topic. Default: of all topics.
    yes
        Do not ask.
    """
    where = f"of {topic}" if topic else "of all its topics"
    confirm("Clone", f"the offsets of {source}, {where}, to {target}", yes=yes)
    brokers, left_out = await done(admin.groups.clone(source, target, topic=topic))
    return View(
        {"source": source, "target": target, "topic": topic, "brokers": brokers},
        lines=[f"{target} has the offsets of {source}, {where}, on {', '.join(brokers)}"],
        left_out=left_out,
        finish=f"to finish, run it again when all answer; it moves {target} at the others once more, too",
    )


def _moved(group: str, plan: Plan, save: Path | None, dry_run: bool, yes: bool, common: Common) -> int:
    """Show the moves that are planned, and carry them out unless it is a dry run; the exit code."""

    async def work(admin: Admin) -> View:
        answer = await plan(admin)
        moves = answer.found if dry_run else await of_all(_given(answer))
        if not moves and not answer.left_out:
            raise UsageError("no queue is to be moved")
        planned = View({"group": group}, [_table(moves)], left_out=answer.left_out, missing="its queues are")
        if dry_run:
            return planned
        if not common.json:
            planned.show(as_json=False)
        return await _carried_out(admin, group, moves, save, yes=yes)

    view = asked(common, work)
    return view.show(as_json=common.json)


async def _given(answer: Partial[Sequence[Move]]) -> Partial[Sequence[Move]]:
    return answer


async def _carried_out(
    admin: Admin, group: str, moves: Sequence[Move], save: Path | None, *, yes: bool
) -> View:
    confirm("Move", f"group {group} in {counted(len(moves), 'queue')}", yes=yes)
    path = save or Path(f"{group}-reset.json")
    # Before anything is moved: a reset that ends halfway can be undone too.
    _write(path, group, moves)
    moved, left_out = await done(admin.groups.move(group, moves))
    queues = {move.queue for move in moved}
    left, left_path = [move for move in moves if move.queue not in queues], None
    if left:
        left_path = path.with_name(f"{path.stem}-left.json")
        _write(left_path, group, left)
    # With a file of its own, so that the one above undoes both.
    finish = f"orbitmq group reset {group} --file {left_path} --save {left_path}"
    return View(
        {
            "group": group,
            "moves": list(map(plain, moved)),
            "file": str(path),
            "left_file": None if left_path is None else str(left_path),
        },
        lines=[
            f"moved {group} in {counted(len(moved), 'queue')}; "
            f"undo with: orbitmq group reset {group} --undo {path}"
        ],
        left_out=left_out,
        finish=f"to move the other {counted(len(left), 'queue')} when all answer: {finish}",
    )


def _table(moves: Sequence[Move]) -> Table:
    return Table("moves", list(map(plain, moves)), MOVES)


def _write(path: Path, group: str, moves: Sequence[Move]) -> None:
    path.write_text(json.dumps({"group": group, "moves": list(map(plain, moves))}, indent=2) + "\n")


def plain(move: Move) -> dict[str, Any]:
    """A move as JSON has it."""
    topic, broker, queue_id = move.queue
    return {"topic": topic, "broker": broker, "queue": queue_id, "from": move.before, "to": move.to}


def read_moves(path: Path, field: str) -> Mapping[MessageQueue, int]:
    """The offsets in a file: a list of moves, or what a reset wrote.

    Raises:
        UsageError: the file cannot be read, or is of another form.
    """
    try:
        content = json.loads(path.read_text())
        moves = content["moves"] if isinstance(content, dict) else content
        return {
            MessageQueue(str(one["topic"]), str(one["broker"]), int(one["queue"])): int(one[field])
            for one in moves
            if one[field] is not None
        }
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f'{path}: expected [{{"topic", "broker", "queue", "{field}"}}, ...]: {error!r}'
        ) from error


def _queue(topic: str, text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    queue_id = whole_number(number, INT32)
    if not broker or queue_id is None:
        raise UsageError(f"--queue {text}: expected BROKER:ID")
    return MessageQueue(topic, broker, queue_id)
