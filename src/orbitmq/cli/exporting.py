"""``orbitmq export``: the topics and groups of a cluster as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.cli.app import Cluster, make_app
from orbitmq.cli.command import command
from orbitmq.cli.output import json_text
from orbitmq.cli.view import View

if TYPE_CHECKING:
    from orbitmq.admin import Admin

app = make_app(
    "export",
    "Write the topics and groups of a cluster as JSON, which 'orbitmq import' reads.",
    """
orbitmq export > cluster.json
orbitmq export --context prod --cluster DefaultCluster > prod.json
""",
)


@app.default
@command
async def export(admin: Admin, /, *, cluster: Cluster = None) -> View:
    """Write the settings of topics and groups to standard output; as JSON, with and without --json.

    Users, without secrets, and their rules are in it, unless --cluster is given.
    Messages and offsets are not in it, nor RocketMQ's own topics and groups, retry topics and dead letters.
    """
    from orbitmq.admin.definitions import as_json

    answer = await admin.definitions.export(cluster=cluster)
    view = View(
        as_json(answer.found),
        notes=list(answer.found.differing),
        left_out=answer.left_out,
        missing="topics and groups that only it knows are",
    )
    return View(
        view.facts,
        lines=[json_text(view.as_json())],
        notes=view.notes,
        left_out=view.left_out,
        missing=view.missing,
    )
