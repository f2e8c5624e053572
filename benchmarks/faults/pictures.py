"""A timeline of one run: leaders, routes, sends and deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.history import History
from benchmarks.faults.place import MASTER, SLAVE
from benchmarks.faults.run import Outcome

BIN_S = 0.25
SENT, GOT, FAILED, FAULT, LEADS = "#4c78a8", "#6a9f58", "#d1605e", "#d1605e", "#8c8c8c"
SENDERS = (("default", "sends, 2 retries"), ("once", "sends, no retry"), ("ordered", "sends in order"))
RECEIVERS = (
    ("backlog", "backlog"),
    ("backlog-ordered", "backlog in order"),
    ("backlog-pop", "backlog popped"),
    ("restarting", "reader killed too"),
    ("delayed", "delayed"),
    ("timer", "timer"),
)


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture of a run."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    history = outcome.history
    begin, end = outcome.fault_s - 5, outcome.end_s
    lanes = 2 + len(SENDERS) + len(RECEIVERS)
    figure, axis = pyplot.subplots(figsize=(9, 0.42 * lanes + 0.9))
    names: list[str] = []
    for name in (MASTER, SLAVE):
        row = len(names)
        names.append(f"{name} leads")
        axis.broken_barh(_leading(history, name, outcome.end_s), (-row - 0.3, 0.6), color=LEADS)
    for role, title in SENDERS:
        sends = history.of(role)
        _density(axis, -len(names), [send.ended_s for send in sends if send.stored], begin, end, SENT)
        failed = [send.ended_s for send in sends if not send.stored]
        axis.plot(failed, [-len(names)] * len(failed), "|", color=FAILED, markersize=9)
        names.append(title)
    for role, title in RECEIVERS:
        _density(axis, -len(names), [receipt.at_s for receipt in history.got(role)], begin, end, GOT)
        names.append(title)
    for event in history.events:
        if event.kind == "fault":
            axis.axvline(event.at_s, color=FAULT, linestyle=":", linewidth=1)
            axis.text(event.at_s, 0.55, event.text, fontsize=6.5, rotation=12, va="bottom", ha="left")
    axis.set_yticks([-row for row in range(lanes)], names, fontsize=8)
    axis.set_xlim(begin, end)
    axis.set_ylim(-lanes + 0.4, 0.6)
    ticks = list(range(-5, int(end - outcome.fault_s) + 1, 5))
    axis.set_xticks([outcome.fault_s + tick for tick in ticks], [str(tick) for tick in ticks])
    axis.set_xlabel("seconds after the fault")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _density(axis: Any, row: int, times: Sequence[float], begin: float, end: float, colour: str) -> None:
    """Draw a strip whose height is the number of events in each quarter of a second."""
    count = max(1, int((end - begin) / BIN_S))
    bins = [0] * count
    for at in times:
        place = int((at - begin) / BIN_S)
        if 0 <= place < count:
            bins[place] += 1
    highest = sorted(bins)[int(0.95 * (count - 1))] or max(bins) or 1
    heights = [min(1.0, value / highest) * 0.7 for value in bins]
    axis.bar(
        [begin + BIN_S * number for number in range(count)],
        heights,
        BIN_S,
        row - 0.35,
        color=colour,
        align="edge",
    )


def _leading(history: History, name: str, end_s: float) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    since: float | None = None
    for event in history.events:
        if event.kind != "leads" or event.text.split()[0] != name:
            continue
        if event.text.endswith("not lead"):
            if since is not None:
                spans.append((since, event.at_s - since))
            since = None
        elif since is None:
            since = event.at_s
    if since is not None:
        spans.append((since, end_s - since))
    return spans
