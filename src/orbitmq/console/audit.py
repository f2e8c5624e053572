"""The console's audit log: the changes that were made or attempted, the newest first."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from orbitmq.console.model import Column, Page, Table, said
from orbitmq.durations import instant

MOST: Final = 1000
# The most characters of a value before and after a change.
MOST_CHARACTERS: Final = 500
log = logging.getLogger("orbitmq.console")


@dataclass(frozen=True, slots=True)
class Entry:
    """One change. ``outcome`` is its result, or the reason why nothing was changed."""

    at_ms: int
    user: str
    address: str
    cluster: str
    change: str
    target: str
    before: str
    after: str
    outcome: str


class Audit:
    """The last changes, in memory; each is also a line of the log ``orbitmq.console``."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._entries: deque[Entry] = deque(maxlen=MOST)

    def note(
        self,
        *,
        user: str,
        address: str,
        cluster: str,
        change: str,
        target: str,
        before: str,
        after: str,
        outcome: str,
    ) -> None:
        """Add a change. ``cluster`` is the changed cluster; empty for a change of the console itself."""
        texts = [text[:MOST_CHARACTERS] for text in (target, before, after, outcome)]
        entry = Entry(self._now_ms(), user, address, cluster, change, *texts)
        self._entries.append(entry)
        log.warning("%s of %r by %s from %s: %r", change, texts[0], user, address, texts[3])

    def entries(self) -> Sequence[Entry]:
        return list(reversed(self._entries))

    def page(self) -> Page:
        columns = (
            Column("at", "time"),
            Column("user"),
            Column("address", "code"),
            Column("cluster"),
            Column("change", "code"),
            Column("target", "long"),
            Column("before", "long"),
            Column("after", "long"),
            Column("outcome", "long"),
        )
        rows = [
            {
                "at": instant(one.at_ms),
                "user": one.user,
                "address": one.address,
                "cluster": one.cluster,
                "change": one.change,
                "target": one.target,
                "before": one.before,
                "after": one.after,
                "outcome": one.outcome,
            }
            for one in self.entries()
        ]
        return Page(
            "audit",
            "",
            said("audit_kept", n=MOST),
            (Table("changes", columns, rows, "no_changes", long=True),),
        )
