"""``orbitmq group reset | skip | clone``: changes the offsets of groups."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import DryRun, Group, OfTopic, Topic, Yes, confirm
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.group import app
from orbitmq.cli.partial import done, whole
from orbitmq.cli.times import time_ms
from orbitmq.cli.view import Columns, Table, View, same
from orbitmq.durations import instant
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Admin, Move, Partial

MOVES: Columns = {
    **same("topic", "broker", "queue", "from", "to"),
    "change": lambda row: row["to"] - (row["from"] or 0),
}
Save = Annotated[
    Path | None,
    Parameter(help="File for the moves, which reset --undo reads. Default: GROUP-reset.json in this folder."),
]


@app.command
@command
async def reset(
    admin: Admin,
    group: Group,
    topic: str | None = None,
    /,
    *,
    to: str | None = None,
    offset: int | None = None,
    queue: str | None = None,
    file: Path | None = None,
    undo: Path | None = None,
    save: Save = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> View:
    """Move a group, whether members are online or not. Asks first, and writes down where the group was.

    Args:
        topic: Topic in which the group is moved; not with --file and --undo, which name topics.
        to: Where the group continues: first, last, or at the first message stored at or after a time
            (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or a span before now (10m; s, m, h, d).
        offset: New offset of one queue, see --queue.
        queue: The queue of --offset, as BROKER:ID.
        file: A JSON file with the new offsets, as --dry-run --json prints them: {"moves": [{"topic",
            "broker", "queue", "to"}, ...]}. Only the brokers that it names are asked.
        undo: A file that an earlier reset wrote: the group goes back to where it was before. Queues in which
            it had committed nothing stay as they are.
    """
    if sum(way is not None for way in (to, offset, file, undo)) != 1:
        raise UsageError("give one of --to, --offset, --file and --undo")
    if (topic is None) != (file is not None or undo is not None):
        raise UsageError("a topic is needed with --to and --offset, and with them only")
    if (offset is None) != (queue is None):
        raise UsageError("--offset and --queue belong together")
    planned: Awaitable[Partial[Sequence[Move]]]
    if topic is None:
        source = file or undo
        assert source is not None
        planned = admin.groups.plan(group, read_moves(source, "to" if undo is None else "from"))
    elif offset is not None:
        planned = admin.groups.plan(group, {_queue(topic, queue or ""): offset})
    elif to == "first":
        planned = admin.groups.plan_to_first(group, topic)
    elif to == "last":
        planned = admin.groups.plan_to_last(group, topic)
    else:
        at_ms = time_ms(to or "", "--to", "first, last, ")
        planned = admin.groups.plan_to_time(group, topic, instant(at_ms))
    return await _moved(admin, group, planned, save, dry_run=dry_run, yes=yes)


@app.command
@command
async def skip(
    admin: Admin,
    group: Group,
    topic: Topic,
    /,
    *,
    save: Save = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> View:
    """Skip the messages that wait in a topic: the same as reset --to last."""
    planned = admin.groups.plan_to_last(group, topic)
    return await _moved(admin, group, planned, save, dry_run=dry_run, yes=yes)


@app.command
@command
async def clone(
    admin: Admin, source: str, target: str, /, *, topic: OfTopic = None, yes: Yes = False
) -> View:
    """Give one group the offsets of another. Asks first.

    Args:
        source: The group that has the offsets.
        target: The group that gets them; its own are lost.
        topic: Only the offsets of this topic. Default: of all topics.
    """
    where = f"of {topic}" if topic else "of all its topics"
    await confirm("Clone", f"the offsets of {source}, {where}, to {target}", yes=yes)
    brokers, left_out = await done(admin.groups.clone(source, target, topic=topic))
    return View(
        {"source": source, "target": target, "topic": topic, "brokers": brokers},
        lines=[f"{target} has the offsets of {source}, {where}, on {', '.join(brokers)}"],
        left_out=left_out,
        finish=f"to finish, run it again when all answer; it moves {target} at the others once more, too",
    )


async def _moved(
    admin: Admin,
    group: str,
    planned: Awaitable[Partial[Sequence[Move]]],
    save: Path | None,
    *,
    dry_run: bool,
    yes: bool,
) -> View:
    """Carry out the planned moves after a confirmation; with ``dry_run`` only show them."""
    answer = await planned
    if not answer.found and not answer.left_out:
        raise UsageError("no queue is to be moved")
    plan = View({"group": group}, [_table(answer.found)], left_out=answer.left_out, missing="its queues are")
    if dry_run:
        return plan
    moves = whole(answer)
    await confirm("Move", f"group {group} in {counted(len(moves), 'queue')}", yes=yes, plan=plan)
    path = save or Path(f"{group}-reset.json")
    # Save the plan before the first move, so that an interrupted reset can be undone, too.
    _write(path, group, moves)
    moved, left_out = await done(admin.groups.move(group, moves))
    queues = {move.queue for move in moved}
    left, left_path = [move for move in moves if move.queue not in queues], None
    if left:
        left_path = path.with_name(f"{path.stem}-left.json")
        _write(left_path, group, left)
    # The suggested command saves to another file, so that --undo with the first file undoes both resets.
    finish = f"orbitmq group reset {group} --file {left_path} --save {left_path}"
    return View(
        {
            "group": group,
            "moves": list(map(plain, moved)),
            "file": str(path),
            "left_file": None if left_path is None else str(left_path),
        },
        [_table(moved)] if yes else [],  # without --yes the confirmation has already shown the table
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
    """A move in the form of the JSON output."""
    topic, broker, queue_id = move.queue
    return {"topic": topic, "broker": broker, "queue": queue_id, "from": move.before, "to": move.to}


def read_moves(path: Path, field: str) -> Mapping[MessageQueue, int]:
    """The offsets in a file: a list of moves, or the file that a reset wrote.

    Raises:
        UsageError: the file cannot be read, or has another form.
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
        fields = f"topic, broker, queue and {field}"
        raise UsageError(f"{path}: expected the JSON of a reset: moves, each with {fields}") from error


def _queue(topic: str, text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    queue_id = whole_number(number, INT32)
    if not broker or queue_id is None:
        raise UsageError(f"--queue {text}: expected BROKER:ID")
    return MessageQueue(topic, broker, queue_id)
