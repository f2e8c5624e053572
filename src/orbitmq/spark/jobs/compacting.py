"""The job ``compact``: merges the small files of an archive. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_files import UNFINISHED, check_footer, merge
from orbitmq.spark.jobs.archive_names import contents, plan_merges, redundant
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.report import Progress, Report, Teller, duration_text, silent, size_text
from orbitmq.spark.jobs.tables import FORMATS, claimed
from orbitmq.wording import counted

TARGET_BYTES = 128 << 20
OWNER = "compact"


def compact(
    to: str,
    topics: Sequence[str] = (),
    *,
    target_bytes: int = TARGET_BYTES,
    dry_run: bool = False,
    progress: Progress = silent,
) -> Report:
    """Merge consecutive files of one queue and day until they come near ``target_bytes``.

    A merged file is complete before the small ones are removed. If the removal is interrupted, the next run
    removes the rest; until then :func:`~orbitmq.spark.jobs.archiving.verify` reports doubled messages.

    Raises:
        JobError: no archive exists, a file is damaged, or the folder is not writable.
    """
    folder = Folder(to)
    table_format = claimed(folder) or FORMATS[0]
    if table_format != FORMATS[0]:
        raise JobError(f"{to} is a table of format {table_format}, which merges its files itself")
    files = {f: size for f, size in folder.archive_files().items() if not topics or f.topic in topics}
    if not files:
        raise JobError(f"{to} holds no archive")
    left_over = redundant(files)
    merges = plan_merges(files, target_bytes)
    parts = [part for one in merges for part in one.parts]
    report = Report("compact", headings=("topic", "files before", "files after"))
    made = 0
    teller = Teller(progress, "files", len(parts))
    if not dry_run:
        folder.prepare()
        folder.remove_tree(f"{UNFINISHED}/{OWNER}")
        keepers = {file for file in files if file not in set(left_over)}
        for file in left_over:
            # The other file with these messages must be readable before this one is removed.
            for keeper in keepers:
                if keeper.queue == file.queue and keeper.first <= file.first and file.last <= keeper.last:
                    check_footer(folder, keeper)
            folder.remove(file.path)
        for one in merges:
            made += merge(folder, one.parts, OWNER).size_bytes
            for part in one.parts:
                folder.remove(part.path)
            teller.add(len(one.parts))
    for topic in sorted({file.topic for file in files}):
        before = [file for file in files if file.topic == topic]
        merged = sum(len(one.parts) - 1 for one in merges if one.target.topic == topic)
        gone = sum(file.topic == topic for file in left_over)
        report.rows.append((topic, len(before), len(before) - merged - gone))
    after = len(files) - sum(len(one.parts) - 1 for one in merges) - len(left_over)
    report.facts = {
        "files_before": len(files),
        "files_after": after,
        "left_overs": len(left_over),
        "merged_bytes": made,
        "seconds": round(teller.seconds, 3),
        "messages": sum(one.rows for one in contents(files)),
    }
    report.summary = (
        f"{counted(len(files), 'file')} would become {after:,}; nothing was written"
        if dry_run
        else f"{counted(len(files), 'file')} became {after:,}, {size_text(made)} written again, "
        f"{duration_text(teller.seconds)}"
    )
    return report
