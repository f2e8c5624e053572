"""The page of all connected clients, and that of one consumer with its queues and stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orbitmq.admin import Admin, ConnectedClient
from orbitmq.console.asking import names
from orbitmq.console.model import Column, Field, Form, Link, Page, Row, Table, path_of, said

# How much of a page's deadline may be spent on requests to Apache's brokers, one for each group's consumers.
CLIENTS_S: Final = 1.5
COLUMNS: Final = (
    Column("client", "code", "/clients/{group}?id={client}&role={role}"),
    Column("role"),
    Column("group"),
    Column("address", "code"),
    Column("language"),
    Column("version", "release"),
    Column("brokers", "long"),
)


async def clients(admin: Admin, group: str) -> Page:
    """The clients that are found in time: all, or those of one group or of groups with a common prefix."""
    answer = await admin.clients.list(group=group or None, within=CLIENTS_S)
    rows = rows_of(answer.found)
    form = Form("/clients", "search", (Field("group", value=group, hint="hint_groups"),), title="of_group")
    table = Table("clients", COLUMNS, rows, "no_clients", long=True)
    sentence = said("count_clients", n=len(rows))
    return Page("clients", "", sentence, (form, table), left_out=names(answer.left_out))


def rows_of(found: Sequence[ConnectedClient]) -> list[Row]:
    """Connected clients as rows."""
    return [
        {
            "role": one.role,
            "group": one.group,
            "client": one.client_id,
            "address": one.address,
            "language": one.language,
            "version": one.version,
            "brokers": ", ".join(one.brokers),
        }
        for one in found
    ]


async def client(admin: Admin, group: str, client_id: str, role: str, *, stacks: bool) -> Page:
    """The page of one consumer, as it describes itself. A producer reports no details."""
    if role == "producer":
        return Page("clients", client_id, said("only_consumers"))
    answer = await admin.clients.show(group, client_id, stacks=stacks)
    one = answer.found
    queues: list[Row] = [
        {
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "committed": each.committed,
            "cached": each.cached,
        }
        for each in one.queues
    ]
    columns = (
        Column("topic", link="/topics/{topic}"),
        Column("broker"),
        Column("queue", "number"),
        Column("committed", "number"),
        Column("cached", "number"),
    )
    properties = [{"name": name, "value": value} for name, value in one.properties.items()]
    blocks = [
        Table("queues", columns, queues, "no_client_queues"),
        Table("properties", (Column("name", "code"), Column("value", "long")), properties, "no_properties"),
    ]
    if stacks:
        blocks.append(
            Table(
                "stacks", (Column("body", "body"),), [{"body": one.stacks}] if one.stacks else [], "no_stacks"
            )
        )
    from_here = Column("client", link="/clients/{group}?id={client}&stacks=1").target(
        {"client": client_id, "group": group}
    )
    links = (Link("show_stacks", from_here), Link("see_group", path_of("groups", group)))
    return Page("clients", client_id, None, blocks, links, left_out=names(answer.left_out))
