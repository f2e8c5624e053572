"""``orbitmq group reset | skip | clone``: where groups go on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, confirm, run_async
from orbitmq.cli.failures import UsageError
from orbitmq.cli.group import app
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.partial import done, of_all, plain_left_out, tell_not_done, tell_not_shown
from orbitmq.cli.times import time_ms
from orbitmq.durations import instant
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Admin, LeftOut, Partial
    from orbitmq.admin.groups import Move


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
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Move a group, whether members are online or not. Asks first, and writes down where the group was.

    Parameters
    ----------
    group
        Its name.
    topic
        Where to move it; not with --file and --undo, which name topics.
    to
        first, last, a time (2026-11-21T14:00, UTC, or milliseconds, 13 digits) or how long ago (10m; s, m, h,
        d): what was stored then comes next.
    offset
        The offset of one queue, see --queue.
    queue
        With --offset: which queue, BROKER:ID.
    file
        A JSON file with the new offsets, as --dry-run --json prints them: {"moves": [{"topic", "brokerName",
        "queueId", "to"}, ...]}. Only the brokers that it names are asked.
    undo
        A file that an earlier reset wrote: back to where the group was before. Queues in which it had
        committed nothing stay as they are.
    save
        Where to write down what was done. Default: GROUP-reset.json in this folder.
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

    return _carry_out(group, plan, save, dry_run, yes, common)


@app.command
def skip(
    group: str,
    topic: str,
    /,
    *,
    save: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Skip what has piled up: the same as reset --to last.

    Parameters
    ----------
    group
        Its name.
    topic
        Where.
    save
        Where to write down what was done, for reset --undo. Default: GROUP-reset.json in this folder.
    dry_run
        Only print from where to where each queue would be moved.
    yes
        Do not ask.
    """

    async def plan(admin: Admin) -> Partial[Sequence[Move]]:
        return await admin.groups.plan_to_last(group, topic)

    return _carry_out(group, plan, save, dry_run, yes, common)


@app.command
def clone(
    source: str,
    target: str,
    /,
    *,
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Give one group the offsets of another. Asks first.

    Parameters
    ----------
    source
        The group that has them.
    target
        The group that gets them; its own are lost.
    topic
        Only of this topic.
    yes
        Do not ask.
    """
    where = f"of {topic}" if topic else "of all its topics"
    confirm("Clone", f"the offsets of {source}, {where}, to {target}", yes=yes)

    async def work() -> tuple[Sequence[str], Sequence[LeftOut]]:
        from orbitmq.admin import Admin

        async with Admin(common.addresses) as admin:
            return await done(admin.groups.clone(source, target, topic=topic))

    brokers, left_out = run_async(work())
    if common.json:
        facts = {"source": source, "target": target, "topic": topic, "brokers": brokers}
        print_json({**facts, "leftOut": plain_left_out(left_out)})
    else:
        print(f"{target} has the offsets of {source}, {where}, on {', '.join(brokers)}")
    return tell_not_done(
        left_out, f"to finish, run it again when all answer; it moves {target} at the others once more, too"
    )


def _carry_out(group: str, plan: Any, save: Path | None, dry_run: bool, yes: bool, common: Common) -> int:
    if dry_run:
        return _tell(group, plan, common)
    moves = run_async(_planned(plan, common))
    if not moves:
        raise UsageError("no queue is to be moved")
    path = save or Path(f"{group}-reset.json")
    if not common.json:
        _print(moves)
    confirm("Move", f"group {group} in {counted(len(moves), 'queue')}", yes=yes)
    # Before anything is moved: a reset that ends halfway can be undone too.
    _write(path, group, moves)
    moved, left_out = run_async(_moved(group, moves, common))
    done = {move.queue for move in moved}
    left, left_path = [move for move in moves if move.queue not in done], None
    if left:
        left_path = path.with_name(f"{path.stem}-left.json")
        _write(left_path, group, left)
    if common.json:
        facts = {"group": group, "moves": list(map(plain, moved)), "file": str(path)}
        left_file = None if left_path is None else str(left_path)
        print_json({**facts, "leftFile": left_file, "leftOut": plain_left_out(left_out)})
    else:
        print(
            f"moved {group} in {counted(len(moved), 'queue')}; "
            f"undo with: orbitmq group reset {group} --undo {path}"
        )
    # With a file of its own, so that the one above undoes both.
    finish = f"orbitmq group reset {group} --file {left_path} --save {left_path}"
    return tell_not_done(
        left_out, f"to move the other {counted(len(left), 'queue')} when all answer: {finish}"
    )


def _tell(group: str, plan: Any, common: Common) -> int:
    moves, left_out = run_async(_told(plan, common))
    if not moves and not left_out:
        raise UsageError("no queue is to be moved")
    if common.json:
        print_json({"group": group, "moves": list(map(plain, moves)), "leftOut": plain_left_out(left_out)})
    else:
        _print(moves)
    return tell_not_shown(left_out, "its queues are")


def _write(path: Path, group: str, moves: Sequence[Move]) -> None:
    path.write_text(json.dumps({"group": group, "moves": list(map(plain, moves))}, indent=2) + "\n")


async def _planned(plan: Any, common: Common) -> Sequence[Move]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        moves: Sequence[Move] = await of_all(plan(admin))
        return moves


async def _told(plan: Any, common: Common) -> tuple[Sequence[Move], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        answer = await plan(admin)
        return answer.found, answer.left_out


async def _moved(
    group: str, moves: Sequence[Move], common: Common
) -> tuple[Sequence[Move], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await done(admin.groups.move(group, moves))


def plain(move: Move) -> dict[str, Any]:
    """A move as JSON has it."""
    topic, broker, queue_id = move.queue
    return {"topic": topic, "brokerName": broker, "queueId": queue_id, "from": move.before, "to": move.to}


def read_moves(path: Path, field: str) -> Mapping[MessageQueue, int]:
    """The offsets in a file: a list of moves, or what a reset wrote.

    Raises:
        UsageError: the file cannot be read, or is of another form.
    """
    try:
        content = json.loads(path.read_text())
        moves = content["moves"] if isinstance(content, dict) else content
        return {
            MessageQueue(str(one["topic"]), str(one["brokerName"]), int(one["queueId"])): int(one[field])
            for one in moves
            if one[field] is not None
        }
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f'{path}: expected [{{"topic", "brokerName", "queueId", "{field}"}}, ...]: {error!r}'
        ) from error


def _queue(topic: str, text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    queue_id = whole_number(number, INT32)
    if not broker or queue_id is None:
        raise UsageError(f"--queue {text}: expected BROKER:ID")
    return MessageQueue(topic, broker, queue_id)


def _print(moves: Sequence[Move]) -> None:
    rows = [
        [m.queue.topic, m.queue.broker_name, m.queue.queue_id, "-" if m.before is None else m.before, m.to,
         m.to - (m.before or 0)]
        for m in moves
    ]  # fmt: skip
    print_table(["topic", "broker", "queue", "from", "to", "change"], rows)
