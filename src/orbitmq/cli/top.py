"""``orbitmq top``: rates of topics and groups and the largest lags, refreshed at an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orbitmq.cli.app import Count, Flag, make_app
from orbitmq.cli.command import Views, command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Columns, Line, Table, View
from orbitmq.cli.where import Servers
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Partial, QueueProgress

MISSING = "its messages are"
SHORTEST_S = 0.5
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Row:
    """The row of one group and topic. Rates are in messages per second.

    Attributes:
        in_rate: messages stored in the topic.
        out_rate: messages committed by the group.
        lag: number of messages that the group has not consumed.
    """

    group: str
    topic: str
    in_rate: float
    out_rate: float
    lag: int


COLUMNS: Columns = {
    "group": "group",
    "topic": "topic",
    "in/s": lambda row: f"{row['in_rate']:,.0f}",
    "out/s": lambda row: f"{row['out_rate']:,.0f}",
    "lag": lambda row: f"{row['lag']:,}",
}

app = make_app(
    "top",
    "Show how fast messages come and groups read them, the largest lags first, until Ctrl-C. Each turn asks "
    "each broker once. Topics that no group reads, and queues in which a group has committed no offset yet, "
    "are not in it.",
    """
orbitmq top
orbitmq top --interval 5 --count 50
orbitmq top --once
orbitmq top --json
""",
)


@app.default
@command
def top(
    servers: Servers,
    /,
    *,
    interval: float = 2.0,
    count: Count = 20,
    once: Flag = False,
) -> Views:
    """Show how fast messages arrive and groups read them.

    Args:
        interval: Seconds between two looks; the rates are those of this time.
        count: Most rows that are shown.
        once: Show it once, after one interval.
    """
    at_least(1, count=count)
    if not SHORTEST_S <= interval <= LONGEST_S:
        raise UsageError(f"--interval {interval:g}: expected {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    return _top(servers, interval, count, once=once)


async def _top(servers: Servers, interval: float, count: int, *, once: bool) -> Views:
    """Only the first look has to succeed: later the name servers and brokers may be away for a while."""
    from orbitmq.admin import Admin
    from orbitmq.errors import OrbitError
    from orbitmq.runtime.system import system_runtime

    clock = system_runtime().clock
    async with Admin(**servers.options) as admin:
        before, looked = (await admin.groups.progress()).found, clock.monotonic()
        answered = True
        while True:
            await clock.sleep(interval)
            now = f"{clock.local_time(clock.now_ms()):%H:%M:%S}"
            try:
                answer, at = await admin.groups.progress(), clock.monotonic()
            except OrbitError as error:
                if once:
                    raise
                if answered:
                    yield Line(note=f"{now}  {error}: looking again")
                answered = False
                continue
            rows = rates(before, answer.found, at - looked)
            yield _view(rows, answer, at - looked, count, "" if once else now)
            if once:
                return
            before, looked, answered = answer.found, at, True


def rates(before: Sequence[QueueProgress], now: Sequence[QueueProgress], seconds: float) -> list[Row]:
    """A row for each group and topic, the largest lag first, then the busiest.

    A queue that was not in ``before`` has no rate yet; an offset that moved back counts as a rate of 0.
    """
    last = {(one.group, one.queue): one for one in before}
    sums: dict[tuple[str, str], list[int]] = {}
    for one in now:
        was = last.get((one.group, one.queue), one)
        row = sums.setdefault((one.group, one.queue.topic), [0, 0, 0])
        row[0] += max(0, one.end - was.end)
        row[1] += max(0, one.committed - was.committed)
        row[2] += one.lag
    rows = [
        Row(group, topic, came / seconds, read / seconds, lag)
        for (group, topic), (came, read, lag) in sums.items()
        # Each group has a retry topic and a dead letter topic from its begin, which are shown only once they
        # have messages.
        if came or read or lag or not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]
    return sorted(rows, key=lambda row: (-row.lag, -row.in_rate - row.out_rate, row.group, row.topic))


def _view(
    rows: Sequence[Row], answer: Partial[Sequence[QueueProgress]], seconds: float, count: int, moment: str
) -> View:
    hidden = len(rows) - count
    lines = [f"({counted(hidden, 'row')} more)"] if hidden > 0 else []
    if not rows:
        lines = ["no group reads anything"]
    view = View(
        {"seconds": round(seconds, 3)},
        [Table("rows", rows[:count], COLUMNS, optional=True)],
        lines=lines,
        left_out=answer.left_out,
        missing=MISSING,
    )
    return replace(view, moment=moment)
