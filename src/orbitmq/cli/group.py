"""``orbitmq group``: consumer groups, who is in them, how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import DryRun, Topic, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.output import lost_masters
from orbitmq.cli.partial import done, of_all, without
from orbitmq.cli.view import Columns, Table, View, plain
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Admin, GroupDetails

app = make_app(
    "group",
    "List, create, change and delete consumer groups; show members, conflicts and lag; move groups.",
    """
orbitmq group list
orbitmq group show billing
orbitmq group lag billing --json
orbitmq group create billing --retries 5
orbitmq group reset billing orders --to 2h --dry-run
orbitmq group reset billing --undo billing-reset.json
orbitmq group skip billing orders
orbitmq group clone billing billing-test
""",
)


Flag = Annotated[bool, Parameter(negative=())]
MEMBERS: Columns = {"client": "client_id", "address": "address", "language": "language"}
SUBSCRIPTIONS: Columns = {"topic": "topic", "type": "kind", "expression": "expression"}
CONFLICTS: Columns = {
    "topic": "topic",
    "client": "client_id",
    "wants": lambda row: _wanted(row["wanted"]),
    "other client": "other_client_id",
    "other wants": lambda row: _wanted(row["other_wanted"]),
}
LAGS: Columns = {
    "topic": "topic",
    "broker": "broker",
    "queue": "queue",
    "committed": "committed",
    "end": "end",
    "lag": "lag",
    "in flight": "in_flight",
    "age s": "age",
}


@app.command(name="list")
@command
async def list_groups(
    admin: Admin,
    /,
    *,
    all: Annotated[bool, Parameter(name=["--all", "-a"], negative=())] = False,
    cluster: str | None = None,
) -> View:
    """Print the names of the groups.

    Parameters
    ----------
    all
        List RocketMQ's own groups, too.
    cluster
        List only groups of the brokers of this cluster. Default: of all clusters.
    """
    answer = await admin.groups.list(cluster=cluster, system=all)
    return View(
        {"groups": [{"group": name, "brokers": brokers} for name, brokers in answer.found.items()]},
        lines=list(answer.found),
        left_out=answer.left_out,
        missing="groups that only it knows are",
    )


@app.command
@command
async def show(admin: Admin, group: str, /) -> View:
    """Show a group's settings, members, subscriptions and conflicts. The exit code is 1 when there are
    conflicts, or a broker does not answer.

    Parameters
    ----------
    group
        Name of the consumer group.
    """
    answer = await admin.groups.show(group)
    details = answer.found
    subscriptions = [
        {"topic": topic, "kind": one.kind, "expression": one.expression}
        for topic, one in details.subscriptions.items()
    ]
    conflicts = (
        f"\nCONFLICTS, messages are lost to a member ({details.conflict_count} since the brokers' start); "
        "give all members of the group the same subscriptions"
    )
    return View(
        {
            "group": details.group,
            "settings": details.settings,
            "consume_type": details.consume_type or None,
            "message_model": details.message_model or None,
            "conflict_count": details.conflict_count,
        },
        [
            Table("members", details.members, MEMBERS, optional=True),
            Table("subscriptions", subscriptions, SUBSCRIPTIONS, optional=True),
            Table("conflicts", details.conflicts, CONFLICTS, optional=True),
        ],
        before=_summary(details),
        lines=[conflicts] if details.conflicts else [],
        left_out=answer.left_out,
        missing="members that only it knows are",
        failed=bool(details.conflicts),
    )


def _summary(details: GroupDetails) -> list[str]:
    settings = next(iter(details.settings.values()))
    online = (
        f"{counted(len(details.members), 'member')} online, {details.message_model}, {details.consume_type}"
    )
    return [
        f"{details.group} on {', '.join(details.settings)}: {settings.max_retries} redeliveries, "
        f"{settings.retry_queues} retry queues, consuming {'on' if settings.consume else 'off'}",
        online if details.members else "no member is online",
    ]


def _wanted(expression: str | None) -> str:
    return "(not subscribed)" if expression is None else expression


@app.command
@command
async def lag(admin: Admin, group: str, /, *, topic: Topic = None) -> View:
    """Show how far a group is behind in each queue.

    Parameters
    ----------
    group
        Name of the consumer group.
    topic
        Show only this topic. Default: all topics that the group reads.
    """
    answer = await admin.groups.lag(group, topic=topic)
    total, queues = sum(one.lag for one in answer.found), counted(len(answer.found), "queue")
    return View(
        {"group": group, "lag": total},
        [Table("queues", [{**plain(one), "lag": one.lag} for one in answer.found], LAGS)],
        lines=[f"{counted(total, 'message')} behind in {queues}{without(answer.left_out)}"],
        left_out=answer.left_out,
        missing="its queues are",
    )


@app.command
@command
async def create(
    admin: Admin,
    group: str,
    /,
    *,
    retries: int = 16,
    retry_queues: int = 1,
    consume: bool = True,
    broadcast: bool = True,
    orderly: Flag = False,
    cluster: str | None = None,
) -> View:
    """Create a group, or replace the settings of one that exists.

    Parameters
    ----------
    group
        Name of the consumer group.
    retries
        Deliveries after the first before a message becomes a dead letter.
    retry_queues
        Queues of the group's retry topic on each broker.
    consume
        Whether the group may consume.
    broadcast
        Whether the group may consume by broadcast.
    orderly
        The members of the group consume in order.
    cluster
        Create it only on the brokers of this cluster. Default: on those of all clusters.
    """
    from orbitmq.admin import GroupSettings

    if retries < 0 or retry_queues < 0:
        raise UsageError("--retries and --retry-queues: expected 0 or more")
    settings = GroupSettings(consume, broadcast, orderly, retries, retry_queues)
    brokers, left_out = await done(admin.groups.create(group, settings, cluster=cluster))
    lost = lost_masters(await admin.brokers.without_master(cluster=cluster))
    return View(
        {"group": group, "settings": settings, "brokers": brokers},
        lines=[f"{group}: {retries} redeliveries, on {', '.join(brokers)}"],
        notes=lost,
        left_out=left_out,
        failed=bool(lost),
    )


@app.command
@command
async def delete(
    admin: Admin,
    group: str,
    /,
    *,
    offsets: Flag = False,
    cluster: str | None = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> View:
    """Delete a group. Asks first.

    Parameters
    ----------
    group
        Name of the consumer group.
    offsets
        Forget the committed offsets of the group, too.
    cluster
        Delete it only on the brokers of this cluster. Default: on those of all clusters.
    dry_run
        Only print what would be deleted.
    yes
        Do not ask.
    """
    details = await of_all(admin.groups.show(group, cluster=cluster))
    what = f"group {group}, {counted(len(details.members), 'member')} online"
    what += ", with its offsets" if offsets else ""
    facts = {"group": group, "members": len(details.members), "deleted": not dry_run}
    if dry_run:
        return View({**facts, "brokers": []}, lines=[f"would delete {what}"])
    confirm("Delete", what, yes=yes)
    brokers, left_out = await done(admin.groups.delete(group, clean_offsets=offsets, cluster=cluster))
    line = f"deleted group {group} on {', '.join(brokers)}" if left_out else f"deleted {what}"
    return View({**facts, "brokers": brokers}, lines=[line], left_out=left_out)
