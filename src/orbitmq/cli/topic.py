"""``orbitmq topic``: what topics there are, and changing that."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common, confirm, make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.formats import shown
from orbitmq.cli.output import print_json, print_table, tell_lost_masters
from orbitmq.cli.partial import done, of_all, plain_left_out, tell_not_done, tell_not_shown, told, without
from orbitmq.message.reserved import REPLY_TOPIC_SUFFIX, is_system_topic
from orbitmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin import LeftOut, QueueStatus

app = make_app(
    "topic",
    "List, create and delete topics; show their routes and offsets.",
    """
orbitmq topic list
orbitmq topic create flights --queues 8
orbitmq topic route flights
orbitmq topic status flights --json
orbitmq topic delete flights --dry-run
""",
)

QUEUES = "its queues are"
PERMISSIONS = {2: "write", 4: "read", 6: "read+write"}


@app.command(name="list")
def list_topics(
    *,
    all: Annotated[bool, Parameter(name=["--all", "-a"], negative=())] = False,
    cluster: str | None = None,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Print the names of the topics.

    Parameters
    ----------
    all
        The brokers' own topics too.
    cluster
        Only topics with queues in this cluster.
    """
    return run_async(_list(all, cluster, common))


async def _list(everything: bool, cluster: str | None, common: Common) -> int:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        names = await admin.topics.list(cluster=cluster)
        brokers = await admin.brokers.list()
    own = {broker.name for broker in brokers} | {broker.cluster for broker in brokers}
    own |= {f"{broker.cluster}{REPLY_TOPIC_SUFFIX}" for broker in brokers}
    shown = [name for name in names if everything or not (is_system_topic(name) or name in own)]
    if common.json:
        print_json(shown)
    else:
        for name in shown:
            print(name)
    return EXIT_OK


@app.command
def create(
    topic: str,
    /,
    *,
    queues: Annotated[int, Parameter(name=["--queues", "-q"])] = 8,
    permission: int = 6,
    cluster: str | None = None,
    order: Annotated[bool, Parameter(negative=())] = False,
    attribute: Annotated[list[str] | None, Parameter(negative=())] = None,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Create a topic, or change it when it exists.

    Parameters
    ----------
    topic
        Its name.
    queues
        Queues on each broker group. Fewer than the topic has are refused: messages would be hidden.
    permission
        2 write, 4 read, 6 both.
    cluster
        Only on this cluster's brokers.
    order
        Register it as an ordered topic.
    attribute
        NAME=VALUE, for example message.type=FIFO. May be given more than once.
    """
    if permission not in PERMISSIONS:
        raise UsageError(f"--permission {permission}: expected 2 (write), 4 (read) or 6 (both)")
    if queues < 1:
        raise UsageError(f"--queues {queues}: expected 1 or more")
    pairs = [word.partition("=") for word in attribute or []]
    if any(not (name and equals) for name, equals, _ in pairs):
        raise UsageError("--attribute: expected NAME=VALUE")
    attributes = {name: value for name, _, value in pairs}
    return run_async(_create(topic, queues, permission, cluster, order, attributes, common))


async def _create(
    topic: str,
    queues: int,
    permission: int,
    cluster: str | None,
    order: bool,
    attributes: dict[str, str],
    common: Common,
) -> int:
    from orbitmq.admin import Admin
    from orbitmq.broker.metadata.attributes import TOPIC_ATTRIBUTES, not_acted_on
    from orbitmq.errors import ValidationError

    async with Admin(common.addresses) as admin:
        creating = admin.topics.create(
            topic, queues=queues, perm=permission, cluster=cluster, order=order, attributes=attributes
        )
        try:
            brokers, left_out = await done(creating)
        except ValidationError as error:
            raise UsageError(str(error)) from error
        lost = await admin.brokers.without_master(cluster=cluster)
    if common.json:
        facts = {"topic": topic, "brokers": brokers, "queues": queues, "permission": permission}
        print_json({**facts, "leftOut": plain_left_out(left_out)})
    else:
        made = f"{counted(queues, 'queue')} ({PERMISSIONS[permission]})"
        print(f"{topic}: {made} on each of {', '.join(brokers)}")
    if idle := not_acted_on(TOPIC_ATTRIBUTES, attributes):
        print(f"{topic}: {', '.join(idle)} is kept; brokers of OrbitMQ do not act on it", file=sys.stderr)
    return max(tell_lost_masters(lost), tell_not_done(left_out))


@app.command
def delete(
    topic: str,
    /,
    *,
    cluster: str | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Delete a topic with its messages. Asks first.

    Parameters
    ----------
    topic
        Its name.
    cluster
        Only on this cluster's brokers.
    dry_run
        Only tell what would be deleted.
    yes
        Do not ask.
    """
    entries = run_async(_all_queues(topic, cluster, common))
    messages = sum(entry.count for entry in entries)
    what = f"{topic}: {counted(len(entries), 'queue')}, {counted(messages, 'message')}"
    brokers: Sequence[str] = []
    left_out: Sequence[LeftOut] = ()
    if not dry_run:
        confirm("Delete", what, yes=yes)
        brokers, left_out = run_async(_delete(topic, cluster, common))
    if common.json:
        print_json(
            {
                "topic": topic,
                "queues": len(entries),
                "messages": messages,
                "deleted": not dry_run,
                "brokers": brokers,
                "leftOut": plain_left_out(left_out),
            }
        )
    elif left_out:
        print(f"deleted {topic} on {', '.join(brokers)}")
    else:
        print(f"would delete {what}" if dry_run else f"deleted {what}")
    return tell_not_done(left_out)


async def _all_queues(topic: str, cluster: str | None, common: Common) -> Sequence[QueueStatus]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await of_all(admin.topics.status(topic, cluster=cluster))


async def _delete(topic: str, cluster: str | None, common: Common) -> tuple[Sequence[str], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await done(admin.topics.delete(topic, cluster=cluster))


@app.command
def route(topic: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Show where a topic's queues are.

    Parameters
    ----------
    topic
        Its name.
    """
    return run_async(_route(topic, common))


async def _route(topic: str, common: Common) -> int:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        entries = await admin.topics.route(topic)
    if common.json:
        print_json(
            [
                {
                    "brokerName": entry.broker_name,
                    "cluster": entry.cluster,
                    "readQueues": entry.read_queues,
                    "writeQueues": entry.write_queues,
                    "permission": entry.perm,
                    "addresses": {str(number): address for number, address in entry.addresses.items()},
                }
                for entry in entries
            ]
        )
        return EXIT_OK
    rows = [
        [
            entry.broker_name,
            entry.cluster,
            entry.read_queues,
            entry.write_queues,
            PERMISSIONS.get(entry.perm & 6, "none"),
            ", ".join(f"{number}: {address}" for number, address in entry.addresses.items()),
        ]
        for entry in entries
    ]
    print_table(["broker", "cluster", "read", "write", "permission", "addresses"], rows)
    return EXIT_OK


@app.command
def status(topic: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Show the offsets of a topic's queues.

    Parameters
    ----------
    topic
        Its name.
    """
    return run_async(_status(topic, common))


async def _status(topic: str, common: Common) -> int:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        entries, left_out = await told(admin.topics.status(topic))
    if common.json:
        queues = [
            {
                **asdict(entry),
                "queue": entry.queue._asdict(),
                "count": entry.count,
                "newest": shown(entry.newest),
            }
            for entry in entries
        ]
        print_json({"topic": topic, "queues": queues, "leftOut": plain_left_out(left_out)})
        return tell_not_shown(left_out, QUEUES)
    rows = [
        [
            entry.queue.broker_name,
            entry.queue.queue_id,
            entry.min_offset,
            entry.max_offset,
            entry.count,
            shown(entry.newest) or "-",
        ]
        for entry in entries
    ]
    print_table(["broker", "queue", "min", "max", "messages", "newest"], rows)
    total = sum(entry.count for entry in entries)
    print(f"{counted(total, 'message')} in {counted(len(entries), 'queue')}{without(left_out)}")
    return tell_not_shown(left_out, QUEUES)
