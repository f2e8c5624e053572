"""``orbitmq client``: connected producers and consumers, and what one consumer works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Flag, Group, make_app
from orbitmq.cli.command import command
from orbitmq.cli.view import Columns, Table, View, listed, same

if TYPE_CHECKING:
    from orbitmq.admin import Admin

app = make_app(
    "client",
    "Show connected producers and consumers, and what a consumer works on. Nothing is changed.",
    """
orbitmq client list
orbitmq client list --group billing
orbitmq client show billing 10.0.0.9@4711#1 --stacks
""",
)

CLIENTS: Columns = {**same("role", "group"), "client": "client_id", **same("address", "language", "brokers")}
QUEUES: Columns = same("topic", "broker", "queue", "committed", "cached")


@app.command(name="list")
@command
async def list_clients(
    admin: Admin, /, *, group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None
) -> View:
    """Show the connected producers and consumers.

    Args:
        group: Show only the clients of this group. Default: of all but RocketMQ's own.
    """
    answer = await admin.clients.list(group=group)
    return View(
        {"group": group},
        [Table("clients", answer.found, CLIENTS, optional=True, spared=("language", "brokers"))],
        lines=[] if answer.found else ["no client is connected"],
        left_out=answer.left_out,
        missing="its clients are",
    )


@app.command
@command
async def show(admin: Admin, group: Group, client: str, /, *, stacks: Flag = False) -> View:
    """Show the queues that a consumer reads, its settings, and with --stacks where its threads are.

    Args:
        client: The id of the client, as 'orbitmq client list' shows it.
        stacks: Also request the stacks of its threads.
    """
    answer = await admin.clients.show(group, client, stacks=stacks)
    found = answer.found
    said = [found.stacks] if found.stacks else ["the consumer does not report its stacks"] if stacks else []
    return View(
        {"group": group, "client_id": client, "properties": found.properties, "stacks": found.stacks},
        [Table("queues", found.queues, QUEUES, optional=True)],
        before=[*listed(found.properties), ""] if found.properties else [],
        lines=said,
        left_out=answer.left_out,
        missing="what it knows of the client is",
    )
