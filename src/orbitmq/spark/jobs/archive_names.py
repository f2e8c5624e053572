"""The layout of an archive, and the search for gaps and doubles by the names of its files. Does no I/O.

A file is ``topic=<topic>/date=<day>/<broker>-<queue>-<first>-<last>.parquet`` and holds each message of one
queue from offset ``first`` to ``last``, both included, all stored on that day (UTC). Therefore the names
alone show whether messages are missing between two files, and whether messages are archived twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, unquote

from orbitmq.message.model import MessageQueue

SUFFIX = ".parquet"
# The archive's own folder; Spark and pyarrow ignore folders that begin with an underscore.
OWN_FOLDER = "_orbitmq"
_PATH = re.compile(
    r"topic=(?P<topic>[^/]+)/date=(?P<date>[^/]+)/"
    r"(?P<broker>[^/]+)-(?P<queue>\d+)-(?P<first>\d+)-(?P<last>\d+)\.parquet"
)


class ArchiveFile(NamedTuple):
    """One file: the offsets ``first`` to ``last``, both included, of a queue, stored on one day."""

    topic: str
    broker: str
    queue_id: int
    first: int
    last: int
    date: str

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker, self.queue_id)

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    @property
    def path(self) -> str:
        """The path of the file, relative to the archive's folder."""
        name = f"{quote(self.broker, safe='')}-{self.queue_id}-{self.first}-{self.last}{SUFFIX}"
        return f"topic={quote(self.topic, safe='')}/date={self.date}/{name}"


def parse_path(path: str) -> ArchiveFile | None:
    """The file at ``path``, relative to the archive's folder; ``None`` if it is not an archive's file."""
    match = _PATH.fullmatch(path)
    if match is None or int(match["first"]) > int(match["last"]):
        return None
    return ArchiveFile(
        unquote(match["topic"]),
        unquote(match["broker"]),
        int(match["queue"]),
        int(match["first"]),
        int(match["last"]),
        match["date"],
    )


@dataclass(slots=True)
class QueueContent:
    """The content of an archive for one queue.

    Attributes:
        first, last: the first and the last archived offset, both included.
        rows: the number of distinct messages.
        gaps: ranges of offsets that no file has, as first and last.
        doubled: files with offsets that another file has, too.
    """

    queue: MessageQueue
    first: int
    last: int
    files: int = 0
    rows: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    doubled: list[ArchiveFile] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of messages missing between the first and the last."""
        return sum(last - first + 1 for first, last in self.gaps)

    @property
    def complete(self) -> bool:
        """Whether each message from the first to the last is archived exactly once."""
        return not self.gaps and not self.doubled


def contents(files: Iterable[ArchiveFile]) -> list[QueueContent]:
    """The content of each queue, from the names of the files, in order."""
    return [_content(queue, owned) for queue, owned in sorted(by_queue(files).items())]


def by_queue(files: Iterable[ArchiveFile]) -> Mapping[MessageQueue, Sequence[ArchiveFile]]:
    """The files of each queue in order of their first offset; of two with the same first offset, the longer
    one first.
    """
    found: defaultdict[MessageQueue, list[ArchiveFile]] = defaultdict(list)
    for file in files:
        found[file.queue].append(file)
    return {queue: sorted(owned, key=lambda f: (f.first, -f.last)) for queue, owned in found.items()}


def _content(queue: MessageQueue, files: Sequence[ArchiveFile]) -> QueueContent:
    content = QueueContent(queue, files[0].first, max(file.last for file in files), len(files))
    reached = content.first
    for file in files:
        if file.first > reached:
            content.gaps.append((reached, file.first - 1))
        if file.first < reached:
            content.doubled.append(file)
        reached = max(reached, file.last + 1)
    content.rows = reached - content.first - content.missing
    return content


def redundant(files: Iterable[ArchiveFile]) -> list[ArchiveFile]:
    """Files whose offsets are all in one other file: left over from a merge or an earlier attempt."""
    found: list[ArchiveFile] = []
    for owned in by_queue(files).values():
        last = -1
        for file in owned:
            if file.last <= last:
                found.append(file)
            last = max(last, file.last)
    return found


def resume_at(files: Iterable[ArchiveFile]) -> dict[MessageQueue, int]:
    """The offset after the last archived message of each queue, from the names alone."""
    return {content.queue: content.last + 1 for content in contents(files)}


@dataclass(frozen=True, slots=True)
class Merge:
    """Consecutive files that are to be merged into one."""

    parts: tuple[ArchiveFile, ...]

    @property
    def target(self) -> ArchiveFile:
        return self.parts[0]._replace(last=self.parts[-1].last)


def plan_merges(sizes: Mapping[ArchiveFile, int], target_bytes: int) -> list[Merge]:
    """The merges that bring files near ``target_bytes``; only files of one queue and day are merged.

    Args:
        sizes: bytes of each file. Redundant files are skipped.
    """
    gone = set(redundant(sizes))
    merges: list[Merge] = []
    for owned in by_queue(file for file in sizes if file not in gone).values():
        parts: list[ArchiveFile] = []
        total = 0
        for file in owned:
            follows = bool(parts) and parts[-1].last + 1 == file.first and parts[-1].date == file.date
            if follows and total + sizes[file] <= target_bytes:
                parts.append(file)
                total += sizes[file]
                continue
            if len(parts) > 1:
                merges.append(Merge(tuple(parts)))
            parts, total = [file], sizes[file]
        if len(parts) > 1:
            merges.append(Merge(tuple(parts)))
    return merges
