"""``orbitmq topic``: lists, creates, deletes topics, and shows their routes and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import All, Cluster, DryRun, Flag, Topic, Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.partial import done, lost_masters, whole, without
from orbitmq.cli.values import at_least, pairs
from orbitmq.cli.view import Columns, Table, View, plain, same
from orbitmq.message.reserved import REPLY_TOPIC_SUFFIX, is_own_topic
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Admin, LeftOut, TopicSettings

app = make_app(
    "topic",
    "List, create and delete topics; show their routes and offsets.",
    """
orbitmq topic list
orbitmq topic create flights --queues 8
orbitmq topic create flights-2 --like flights
orbitmq topic route flights
orbitmq topic status flights --json
orbitmq topic delete flights flights-2 --dry-run
""",
)

PERMISSIONS = {2: "write", 4: "read", 6: "read+write"}


@app.command(name="list")
@command
async def list_topics(admin: Admin, /, *, all: All = False, cluster: Cluster = None) -> View:
    """Print the names of the topics.

    Args:
        all: List the brokers' own topics, too.
    """
    names = await admin.topics.list(cluster=cluster)
    brokers = await admin.brokers.list()
    clusters = sorted({broker.cluster for broker in brokers})
    if cluster is not None and cluster not in clusters:
        raise UsageError(f"--cluster {cluster}: there is no such cluster; there are: {', '.join(clusters)}")
    own = {broker.name for broker in brokers} | {broker.cluster for broker in brokers}
    own |= {f"{broker.cluster}{REPLY_TOPIC_SUFFIX}" for broker in brokers}
    shown = [name for name in names if all or not (is_own_topic(name) or name in own)]
    return View({"topics": shown}, lines=shown)


@app.command
@command
async def create(
    admin: Admin,
    topic: Topic,
    /,
    *,
    queues: Annotated[int | None, Parameter(name=["--queues", "-q"])] = None,
    permission: int | None = None,
    cluster: Cluster = None,
    order: Flag = False,
    attribute: Annotated[list[str] | None, Parameter(negative=())] = None,
    like: str | None = None,
) -> View:
    """Create a topic, or change it when it exists.

    Args:
        queues: Queues on each broker group. Fewer than the topic has are refused: messages would be hidden.
            Default: 8.
        permission: What clients may do: 2 write, 4 read, 6 both. Default: 6.
        order: Register it as an ordered topic.
        attribute: A setting as NAME=VALUE, for example message.type=FIFO. May be given more than once.
        like: A topic whose settings are copied, except those given here.
    """
    from orbitmq.broker.metadata.attributes import TOPIC_ATTRIBUTES, not_acted_on

    if permission not in (None, *PERMISSIONS):
        raise UsageError(f"--permission {permission}: expected 2 (write), 4 (read) or 6 (both)")
    at_least(1, queues=queues)
    attributes = pairs("--attribute", attribute)
    if like is not None:
        model = await _settings_of(admin, like, cluster)
        queues, permission = queues or model.queues, permission or model.perm
        order, attributes = order or model.order, {**model.attributes, **attributes}
    queues, permission = queues or 8, permission or 6
    creating = admin.topics.create(
        topic, queues=queues, perm=permission, cluster=cluster, order=order, attributes=attributes
    )
    brokers, left_out = await done(creating)
    lost = lost_masters(await admin.brokers.without_master(cluster=cluster))
    idle = not_acted_on(TOPIC_ATTRIBUTES, attributes)
    kept = [f"{topic}: {', '.join(idle)} is kept; brokers of OrbitMQ do not act on it"] if idle else []
    made = f"{counted(queues, 'queue')} ({PERMISSIONS[permission]})"
    return View(
        {"topic": topic, "queues": queues, "permission": permission, "brokers": brokers},
        lines=[f"{topic}: {made} on each of {', '.join(brokers)}"],
        notes=[*kept, *lost],
        left_out=left_out,
        failed=bool(lost),
    )


async def _settings_of(admin: Admin, topic: str, cluster: str | None) -> TopicSettings:
    """The settings of a topic; if brokers differ, those with the most queues."""
    found = whole(await admin.topics.settings(cluster=cluster)).get(topic)
    if not found:
        raise UsageError(f"--like {topic}: no broker has this topic")
    return max(found.values(), key=lambda one: one.queues)


@app.command
@command
async def delete(
    admin: Admin,
    topic: Topic,
    /,
    *more: Annotated[str, Parameter(help="Further topics to delete.")],
    cluster: Cluster = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> View:
    """Delete topics with their messages. Asks once, for all of them."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys((topic, *more)):
        entries = whole(await admin.topics.status(name, cluster=cluster))
        messages = sum(entry.count for entry in entries)
        rows.append({"topic": name, "queues": len(entries), "messages": messages, "brokers": []})
    texts = [f"{row['topic']}: {_size(row)}" for row in rows]
    if dry_run:
        return View({"deleted": False, "topics": rows}, lines=[f"would delete {text}" for text in texts])
    await confirm("Delete", "; ".join(texts), yes=yes)
    lines: list[str] = []
    missing: dict[str, LeftOut] = {}
    for row, text in zip(rows, texts, strict=True):
        row["brokers"], left_out = await done(admin.topics.delete(str(row["topic"]), cluster=cluster))
        on = f"{row['topic']} on {', '.join(row['brokers'])}"
        lines.append(f"deleted {on if left_out else text}")
        missing |= {one.address: one for one in left_out}
    return View({"deleted": True, "topics": rows}, lines=lines, left_out=list(missing.values()))


def _size(row: dict[str, Any]) -> str:
    return f"{counted(row['queues'], 'queue')}, {counted(row['messages'], 'message')}"


@app.command
@command
async def route(admin: Admin, topic: Topic, /) -> View:
    """Show where a topic's queues are."""
    columns: Columns = {
        **same("broker", "cluster"),
        "read": "read_queues",
        "write": "write_queues",
        "permission": lambda row: PERMISSIONS.get(row["permission"] & 6, "none"),
        "addresses": lambda row: [f"{number}: {address}" for number, address in row["addresses"].items()],
    }
    rows = [
        {
            "broker": entry.broker_name,
            "cluster": entry.cluster,
            "read_queues": entry.read_queues,
            "write_queues": entry.write_queues,
            "permission": entry.perm,
            "addresses": entry.addresses,
        }
        for entry in await admin.topics.route(topic)
    ]
    return View({"topic": topic}, [Table("brokers", rows, columns)])


@app.command
@command
async def status(admin: Admin, topic: Topic, /) -> View:
    """Show the offsets of a topic's queues."""
    answer = await admin.topics.status(topic)
    total, queues = sum(entry.count for entry in answer.found), counted(len(answer.found), "queue")
    columns = {
        **same("broker", "queue"),
        "min": "min_offset",
        "max": "max_offset",
        **same("messages", "newest"),
    }
    return View(
        {"topic": topic, "messages": total},
        [Table("queues", [{**plain(one), "messages": one.count} for one in answer.found], columns)],
        lines=[f"{counted(total, 'message')} in {queues}{without(answer.left_out)}"],
        left_out=answer.left_out,
        missing="its queues are",
    )
