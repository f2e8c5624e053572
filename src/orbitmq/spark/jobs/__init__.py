"""Jobs over topics and archives: what ``orbitmq spark`` does, as functions for notebooks and pipelines.

Nothing is imported before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.spark.jobs.archiving import ArchiveJob, archive, verify
    from orbitmq.spark.jobs.auditing import AuditJob, audit
    from orbitmq.spark.jobs.compacting import compact
    from orbitmq.spark.jobs.dead_letter_tables import dead_letters, redrive, retries
    from orbitmq.spark.jobs.frames import Span, archive_frame, topic_frame
    from orbitmq.spark.jobs.lag_table import lag_history, lag_report
    from orbitmq.spark.jobs.lags import record_lag
    from orbitmq.spark.jobs.replaying import ReplayJob, replay
    from orbitmq.spark.jobs.report import Report
    from orbitmq.spark.jobs.template import write_template
    from orbitmq.spark.jobs.tracing import latencies, trace

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
    "lag_history": "lag_table",
    "lag_report": "lag_table",
    "latencies": "tracing",
    "record_lag": "lags",
    "redrive": "dead_letter_tables",
    "replay": "replaying",
    "retries": "dead_letter_tables",
    "topic_frame": "frames",
    "trace": "tracing",
    "verify": "archiving",
    "write_template": "template",
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
    "lag_history",
    "lag_report",
    "latencies",
    "record_lag",
    "redrive",
    "replay",
    "retries",
    "topic_frame",
    "trace",
    "verify",
    "write_template",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
