"""``orbitmq group``: consumer groups, who is in them, how far they are."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, confirm, make_app, run_async
from orbitmq.cli.failures import EXIT_FAILED, UsageError
from orbitmq.cli.output import print_json, print_table, tell_lost_masters
from orbitmq.cli.partial import done, of_all, plain_left_out, tell_not_done, tell_not_shown, told, without
from orbitmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.admin import LeftOut
    from orbitmq.admin.groups import GroupDetails, QueueLag

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


@app.command(name="list")
def list_groups(
    *,
    all: Annotated[bool, Parameter(name=["--all", "-a"], negative=())] = False,
    cluster: str | None = None,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Print the names of the groups.

    Parameters
    ----------
    all
        RocketMQ's own groups too.
    cluster
        Only groups of this cluster's brokers.
    """
    names, left_out = run_async(_names(all, cluster, common))
    if common.json:
        groups = [{"group": name, "brokers": brokers} for name, brokers in names.items()]
        print_json({"groups": groups, "leftOut": plain_left_out(left_out)})
    else:
        for name in names:
            print(name)
    return tell_not_shown(left_out, "groups that only it knows are")


async def _names(
    everything: bool, cluster: str | None, common: Common
) -> tuple[Mapping[str, Sequence[str]], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.groups.list(cluster=cluster, system=everything))


@app.command
def show(group: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Show a group's settings, members, subscriptions and conflicts. The exit code is 1 when there are
    conflicts, or a broker does not answer.

    Parameters
    ----------
    group
        Its name.
    """
    details, left_out = run_async(_show(group, common))
    if common.json:
        print_json({**_facts(details), "leftOut": plain_left_out(left_out)})
    else:
        _print(details)
    code = tell_not_shown(left_out, "members that only it knows are")
    return EXIT_FAILED if details.conflicts else code


async def _show(group: str, common: Common) -> tuple[GroupDetails, Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.groups.show(group))


def _facts(details: GroupDetails) -> dict[str, Any]:
    return {
        "group": details.group,
        "brokers": {name: asdict(settings) for name, settings in details.settings.items()},
        "consumeType": details.consume_type or None,
        "messageModel": details.message_model or None,
        "members": [
            {
                "clientId": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
            }
            for one in details.members
        ],
        "subscriptions": {topic: asdict(one) for topic, one in details.subscriptions.items()},
        "conflicts": [asdict(conflict) for conflict in details.conflicts],
        "conflictCount": details.conflict_count,
    }


def _print(details: GroupDetails) -> None:
    settings = next(iter(details.settings.values()))
    print(
        f"{details.group} on {', '.join(details.settings)}: {settings.max_retries} redeliveries, "
        f"{settings.retry_queues} retry queues, consuming {'on' if settings.consume else 'off'}"
    )
    if not details.members:
        print("no member is online")
        return
    members = counted(len(details.members), "member")
    print(f"{members} online, {details.message_model}, {details.consume_type}\n")
    print_table(
        ["client", "address", "language"], [[m.client_id, m.address, m.language] for m in details.members]
    )
    print()
    rows = [[topic, one.kind, one.expression] for topic, one in details.subscriptions.items()]
    print_table(["topic", "type", "expression"], rows)
    if details.conflicts:
        print(
            f"\nCONFLICTS, messages are lost to a member ({details.conflict_count} since the brokers' start):"
        )
        rows = [
            [c.topic, c.client_id, _wanted(c.wanted), c.other_client_id, _wanted(c.other_wanted)]
            for c in details.conflicts
        ]
        print_table(["topic", "client", "wants", "client", "wants"], rows)


def _wanted(expression: str | None) -> str:
    return "(not subscribed)" if expression is None else expression


@app.command
def lag(
    group: str,
    /,
    *,
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Show how far a group is behind in each queue.

    Parameters
    ----------
    group
        Its name.
    topic
        Only this one.
    """
    queues, left_out = run_async(_lag(group, topic, common))
    total = sum(one.lag for one in queues)
    if common.json:
        found = [{**asdict(one), "queue": one.queue._asdict(), "lag": one.lag} for one in queues]
        print_json({"group": group, "lag": total, "queues": found, "leftOut": plain_left_out(left_out)})
        return tell_not_shown(left_out, "its queues are")
    rows = [
        [one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.committed, one.end, one.lag,
         one.in_flight, round(one.age, 1)]
        for one in queues
    ]  # fmt: skip
    print_table(["topic", "broker", "queue", "committed", "end", "lag", "in flight", "lag s"], rows)
    print(f"{counted(total, 'message')} behind in {counted(len(queues), 'queue')}{without(left_out)}")
    return tell_not_shown(left_out, "its queues are")


async def _lag(group: str, topic: str | None, common: Common) -> tuple[Sequence[QueueLag], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.groups.lag(group, topic=topic))


@app.command
def create(
    group: str,
    /,
    *,
    retries: int = 16,
    retry_queues: int = 1,
    consume: bool = True,
    broadcast: bool = True,
    orderly: Annotated[bool, Parameter(negative=())] = False,
    cluster: str | None = None,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Create a group, or replace the settings of one that exists.

    Parameters
    ----------
    group
        Its name.
    retries
        Deliveries after the first before a message becomes a dead letter.
    retry_queues
        Queues of its retry topic on each broker.
    consume
        Whether it may consume.
    broadcast
        Whether it may consume by broadcast.
    orderly
        Its members consume in order.
    cluster
        Only on this cluster's brokers.
    """
    if retries < 0 or retry_queues < 0:
        raise UsageError("--retries and --retry-queues: expected 0 or more")
    brokers, left_out, lost = run_async(
        _create(group, retries, retry_queues, consume, broadcast, orderly, cluster, common)
    )
    if common.json:
        facts = {"group": group, "brokers": brokers, "retries": retries, "retryQueues": retry_queues}
        print_json({**facts, "leftOut": plain_left_out(left_out)})
    else:
        print(f"{group}: {retries} redeliveries, on {', '.join(brokers)}")
    return max(tell_lost_masters(lost), tell_not_done(left_out))


async def _create(
    group: str,
    retries: int,
    retry_queues: int,
    consume: bool,
    broadcast: bool,
    orderly: bool,
    cluster: str | None,
    common: Common,
) -> tuple[Sequence[str], Sequence[LeftOut], Sequence[str]]:
    from orbitmq.admin import Admin, GroupSettings

    settings = GroupSettings(consume, broadcast, orderly, retries, retry_queues)
    async with Admin(common.addresses) as admin:
        brokers, left_out = await done(admin.groups.create(group, settings, cluster=cluster))
        return brokers, left_out, await admin.brokers.without_master(cluster=cluster)


@app.command
def delete(
    group: str,
    /,
    *,
    offsets: Annotated[bool, Parameter(negative=())] = False,
    cluster: str | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Delete a group. Asks first.

    Parameters
    ----------
    group
        Its name.
    offsets
        Forget how far it is, too.
    cluster
        Only on this cluster's brokers.
    dry_run
        Only tell what would be deleted.
    yes
        Do not ask.
    """
    details = run_async(_known_to_all(group, cluster, common))
    what = f"group {group}, {counted(len(details.members), 'member')} online"
    what += ", with its offsets" if offsets else ""
    brokers: Sequence[str] = []
    left_out: Sequence[LeftOut] = ()
    if not dry_run:
        confirm("Delete", what, yes=yes)
        brokers, left_out = run_async(_delete(group, offsets, cluster, common))
    if common.json:
        facts = {"group": group, "members": len(details.members), "deleted": not dry_run, "brokers": brokers}
        print_json({**facts, "leftOut": plain_left_out(left_out)})
    elif left_out:
        print(f"deleted group {group} on {', '.join(brokers)}")
    else:
        print(f"would delete {what}" if dry_run else f"deleted {what}")
    return tell_not_done(left_out)


async def _known_to_all(group: str, cluster: str | None, common: Common) -> GroupDetails:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await of_all(admin.groups.show(group, cluster=cluster))


async def _delete(
    group: str, offsets: bool, cluster: str | None, common: Common
) -> tuple[Sequence[str], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await done(admin.groups.delete(group, clean_offsets=offsets, cluster=cluster))
