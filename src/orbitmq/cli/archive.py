"""``orbitmq archive``: checks and merges the files of an archive, without Spark."""

from __future__ import annotations

from orbitmq.cli.app import DryRun, Flag, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.output import progress
from orbitmq.cli.spark_running import view_of
from orbitmq.cli.values import named
from orbitmq.cli.view import View

app = make_app(
    "archive",
    "Check an archive that 'orbitmq spark archive' has written, or merge its small files. Needs no Spark and "
    "no broker.",
    """
orbitmq archive verify /data/archive
orbitmq archive verify /data/archive --topics orders --footers
orbitmq archive compact /data/archive
orbitmq archive compact /data/archive --target 256m --dry-run
""",
)


@app.command
@command
def verify(folder: str, /, *, topics: str = "", footers: Flag = False) -> View:
    """Say whether an archive is complete, by the names of its files. Exit code 1: messages are missing or
    doubled.

    Args:
        folder: Folder of the archive, a path or a URI such as s3://bucket/archive.
        topics: Topics whose files are checked, separated by commas. Default: all topics of the archive.
        footers: Also open each file and compare its footer with its name.
    """
    from orbitmq.spark.jobs.archiving import verify as run

    with progress() as tell:
        return view_of(run(folder, named(topics), footers=footers, progress=tell))


@app.command
@command
def compact(folder: str, /, *, topics: str = "", target: str = "128m", dry_run: DryRun = False) -> View:
    """Merge the small files of an archive.

    Args:
        folder: Folder of the archive, a path or a URI such as s3://bucket/archive.
        topics: Topics whose files are merged, separated by commas. Default: all topics of the archive.
        target: Size up to which files are merged, in bytes or as 128m or 1g.
    """
    from orbitmq.spark.jobs.compacting import compact as run
    from orbitmq.spark.option_values import size_bytes

    try:
        limit = size_bytes(target)
    except ValueError as error:
        raise UsageError(f"--target {target} {error}") from error
    with progress() as tell:
        return view_of(run(folder, named(topics), target_bytes=limit, dry_run=dry_run, progress=tell))
