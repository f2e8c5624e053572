"""``orbitmq archive``: what is done with an archive's files, without Spark."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Common, DryRun, make_app
from orbitmq.cli.failures import UsageError
from orbitmq.cli.spark_running import named, show, teller

app = make_app(
    "archive",
    "Merge the small files of an archive that 'orbitmq spark archive' has written.",
    """
orbitmq archive compact /data/archive
orbitmq archive compact /data/archive --topics orders --target 256m --dry-run
""",
)


@app.command
def compact(
    folder: str,
    /,
    *,
    topics: str = "",
    target: str = "128m",
    dry_run: DryRun = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Merge the small files of an archive. Needs neither Spark nor a broker.

    Parameters
    ----------
    folder
        Folder of the archive.
    topics
        Topics whose files are merged, separated by commas. Default: all topics of the archive.
    target
        Size up to which files are merged, in bytes or as 128m or 1g.
    dry_run
        Only print what would be merged.
    json
        Print one JSON object.
    """
    from orbitmq.spark.jobs.compacting import compact as run
    from orbitmq.spark.option_values import size_bytes

    try:
        limit = size_bytes(target)
    except ValueError as error:
        raise UsageError(f"--target {target} {error}") from error
    with teller() as tell:
        return show(
            run(folder, named(topics), target_bytes=limit, dry_run=dry_run, tell=tell), Common(json=json)
        )
