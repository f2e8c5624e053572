"""``orbitmq group``: consumer groups, their members and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import All, Cluster, DryRun, Flag, Group, OfTopic, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.partial import done, lost_masters, whole, without
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Columns, Table, View, plain, same
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Admin, GroupDetails, LeftOut

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

MEMBERS: Columns = {"client": "client_id", "address": "address", "language": "language"}
SUBSCRIPTIONS: Columns = {"topic": "topic", "type": "kind", "expression": "expression"}
CONFLICTS: Columns = {
    "topic": "topic",
    "client": "client_id",
    "wants": lambda row: _wanted(row["wanted"]),
    "other client": "other_client_id",
    "other wants": lambda row: _wanted(row["other_wanted"]),
}
LAGS = {**same("topic", "broker", "queue", "committed", "end", "lag", "in flight"), "age s": "age"}


@app.command(name="list")
@command
async def list_groups(admin: Admin, /, *, all: All = False, cluster: Cluster = None) -> View:
    """Print the names of the groups.

    Args:
        all: List RocketMQ's own groups, too.
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
async def show(admin: Admin, group: Group, /) -> View:
    """Show a group's settings, members, subscriptions and conflicts, how far it is behind, and why. The exit
    code is 1 when there are conflicts, or a broker does not answer.
    """
    answer = await admin.groups.why(group)
    details = answer.found.details
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
            "lag": answer.found.lag,
            "in_flight": answer.found.in_flight,
            "age": answer.found.age,
            "why": answer.found.causes,
        },
        [
            Table("members", details.members, MEMBERS, optional=True),
            Table("subscriptions", subscriptions, SUBSCRIPTIONS, optional=True),
            Table("conflicts", details.conflicts, CONFLICTS, optional=True),
        ],
        before=[*_summary(details), answer.found.text],
        lines=[conflicts] if details.conflicts else [],
        left_out=answer.left_out,
        missing="members and queues that only it knows are",
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
async def lag(admin: Admin, group: Group, /, *, topic: OfTopic = None) -> View:
    """Show how far a group is behind in each queue, and how many of these messages are in flight: fetched or
    popped, and neither committed nor acknowledged. RocketMQ's own brokers do not report popped messages.

    A queue is shown once the group has committed an offset in it.

    Args:
        topic: Show only this topic. Default: all topics that the group reads.
    """
    answer = await admin.groups.lag(group, topic=topic)
    total, queues = sum(one.lag for one in answer.found), counted(len(answer.found), "queue")
    in_flight, behind = sum(one.in_flight for one in answer.found), counted(total, "message")
    flying = f", {in_flight:,} of them in flight" if in_flight else ""
    return View(
        {"group": group, "lag": total, "in_flight": in_flight},
        [Table("queues", [{**plain(one), "lag": one.lag} for one in answer.found], LAGS)],
        lines=[f"{behind} behind in {queues}{flying}{without(answer.left_out)}"],
        left_out=answer.left_out,
        missing="its queues are",
    )


@app.command
@command
async def create(
    admin: Admin,
    group: Group,
    /,
    *,
    retries: int = 16,
    retry_queues: int = 1,
    consume: bool = True,
    broadcast: bool = True,
    orderly: Flag = False,
    cluster: Cluster = None,
) -> View:
    """Create a group, or replace the settings of one that exists.

    Args:
        retries: Deliveries after the first before a message becomes a dead letter.
        retry_queues: Queues of the group's retry topic on each broker.
        consume: Let the group consume. Without it the brokers refuse its pulls.
        broadcast: Let the members of the group consume by broadcast, each of them all messages.
        orderly: Let the group consume in order: a member holds the lock of each queue that it reads.
    """
    from orbitmq.admin import GroupSettings

    at_least(0, retries=retries, retry_queues=retry_queues)
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
    group: Group,
    /,
    *more: Annotated[str, Parameter(help="Further groups to delete.")],
    offsets: Flag = False,
    cluster: Cluster = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> View:
    """Delete groups. Asks once, for all of them.

    Args:
        offsets: Forget the committed offsets of the groups, too.
    """
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for name in dict.fromkeys((group, *more)):
        members = len(whole(await admin.groups.show(name, cluster=cluster)).members)
        rows.append({"group": name, "members": members, "brokers": []})
        kept = ", with its offsets" if offsets else ""
        texts.append(f"group {name}, {counted(members, 'member')} online{kept}")
    if dry_run:
        return View({"deleted": False, "groups": rows}, lines=[f"would delete {text}" for text in texts])
    await confirm("Delete", "; ".join(texts), yes=yes)
    lines: list[str] = []
    missing: dict[str, LeftOut] = {}
    for row, text in zip(rows, texts, strict=True):
        deleting = admin.groups.delete(row["group"], clean_offsets=offsets, cluster=cluster)
        row["brokers"], left_out = await done(deleting)
        on = f"group {row['group']} on {', '.join(row['brokers'])}"
        lines.append(f"deleted {on if left_out else text}")
        missing |= {one.address: one for one in left_out}
    return View({"deleted": True, "groups": rows}, lines=lines, left_out=list(missing.values()))
