"""``orbitmq cluster``: which brokers there are."""

from __future__ import annotations

from dataclasses import asdict

from orbitmq.cli.app import Common, make_app, run_async
from orbitmq.cli.failures import EXIT_OK
from orbitmq.cli.output import print_json, print_table

app = make_app(
    "cluster",
    "Show the brokers of the clusters.",
    """
orbitmq cluster list
orbitmq cluster list -n host-a:9876;host-b:9876 --json
""",
)


@app.command(name="list")
def list_brokers(*, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Show every live broker. Id 0 is the master of its group."""
    return run_async(_list(common))


async def _list(common: Common) -> int:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        brokers = await admin.cluster_list()
    if common.json:
        print_json([asdict(broker) for broker in brokers])
    else:
        rows = [[broker.cluster, broker.name, broker.broker_id, broker.address] for broker in brokers]
        print_table(["cluster", "broker", "id", "address"], rows)
    return EXIT_OK
