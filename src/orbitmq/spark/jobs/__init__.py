"""Jobs over topics and archives: the commands of ``orbitmq spark`` as functions for notebooks and pipelines.

Each job's module is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.spark.jobs.archiving import ArchiveJob, archive, verify
    from orbitmq.spark.jobs.auditing import AuditJob, audit
    from orbitmq.spark.jobs.compacting import compact
    from orbitmq.spark.jobs.dead_letter_tables import dead_letters, redrive
    from orbitmq.spark.jobs.frames import Span, archive_frame, topic_frame
    from orbitmq.spark.jobs.replaying import ReplayJob, replay
    from orbitmq.spark.jobs.report import Report

_HOME = {
    "ArchiveJob": "archiving",
    "AuditJob": "auditing",
    "ReplayJob": "replaying",
    "Report": "report",
    "Span": "frames",
    "archive": "archiving",
    "archive_frame": "frames",
    "audit": "auditing",
    "compact": "compacting",
    "dead_letters": "dead_letter_tables",
    "redrive": "dead_letter_tables",
    "replay": "replaying",
    "topic_frame": "frames",
    "verify": "archiving",
}

__all__ = [
    "ArchiveJob",
    "AuditJob",
    "ReplayJob",
    "Report",
    "Span",
    "archive",
    "archive_frame",
    "audit",
    "compact",
    "dead_letters",
    "redrive",
    "replay",
    "topic_frame",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
