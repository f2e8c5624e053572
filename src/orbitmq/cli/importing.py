"""``orbitmq import``: the topics and groups of an export, made at another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.cli.app import Cluster, DryRun, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError, text_of
from orbitmq.cli.partial import done, lost_masters
from orbitmq.cli.view import View
from orbitmq.errors import ValidationError
from orbitmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin import Admin, Change, Definitions, LeftOut

app = make_app(
    "import",
    "Make the topics and groups of an export at another cluster. What else is there stays as it is.",
    """
orbitmq import cluster.json --context staging --dry-run
orbitmq import cluster.json --context staging
orbitmq import cluster.json --cluster DefaultCluster --yes
""",
)


@app.default
@command
async def import_(
    admin: Admin, file: str, /, *, cluster: Cluster = None, dry_run: DryRun = False, yes: Yes = False
) -> View:
    """Create and change topics and groups. Asks first, with a list of what is to be done; nothing is deleted.

    Args:
        file: The file that 'orbitmq export' wrote.
    """
    plan = await admin.definitions.plan(_read(file), cluster=cluster)
    problems = [change for change in plan if change.problem]
    notes = [f"not possible: {change.text}: {change.problem}" for change in problems]
    lost = lost_masters(await admin.brokers.without_master(cluster=cluster))
    lines = [change.text for change in plan] or [f"nothing is to be done: all of {file} is there"]
    seen = View(
        {"file": file, "dry_run": dry_run, "changes": [_plain(change) for change in plan]},
        lines=lines,
        notes=[*notes, *lost],
        failed=bool(problems or lost),
    )
    if dry_run or not plan:
        return seen
    if problems:
        raise UsageError(f"nothing was done: {notes[0]}")
    question = View({}, lines=lines)
    await confirm("Make", counted(len(plan), "change"), yes=yes, plan=question)
    left_out: list[LeftOut] = []
    for change in plan:
        _, missing = await done(admin.definitions.make(change, cluster=cluster))
        left_out += missing
    return View(
        seen.facts,
        lines=[*(lines if yes else []), f"made {counted(len(plan), 'change')}"],
        notes=lost,
        left_out=_once(left_out),
        failed=bool(lost),
    )


def _read(file: str) -> Definitions:
    from orbitmq.admin.definitions import from_json

    try:
        return from_json(text_of(file))
    except ValidationError as error:
        raise UsageError(f"{file}: {error}") from error


def _plain(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "action": "change" if change.before else "create",
        "text": change.text,
        "problem": change.problem,
    }


def _once(left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """One entry per broker, however many changes were not made there."""
    return list({one.address: one for one in left_out}.values())
