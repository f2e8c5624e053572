"""The picture of a run: messages over time, and delays by carrier and hour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from examples.flights.data import Table

# How many seconds one point of the rate covers.
WINDOW_S = 1.0


class Sample(NamedTuple):
    """Counts so far, ``at`` seconds after the start."""

    at: float
    sent: int
    consumed: int
    archived: int


def rates(samples: Sequence[Sample], column: int) -> tuple[list[float], list[float]]:
    """Times and messages per second, each over at least :data:`WINDOW_S` seconds.

    A count that stands still and then jumps, as a batch does, is spread over the time it took.
    """
    times: list[float] = []
    values: list[float] = []
    last = samples[0]
    for sample in samples[1:]:
        if sample[column] > last[column] and sample.at - last.at >= WINDOW_S:
            rate = (sample[column] - last[column]) / (sample.at - last.at)
            times += [last.at, sample.at]
            values += [rate, rate]
            last = sample
    return times, values


def draw(path: Path, samples: Sequence[Sample], table: Table) -> None:
    """Write the PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (above, below) = plt.subplots(
        2, 1, figsize=(12, 10), height_ratios=[1, 1.4], layout="constrained"
    )
    for column, (name, colour) in enumerate(
        (("sent", "#1f77b4"), ("consumed by the group", "#2ca02c"), ("archived by Spark", "#d62728")), start=1
    ):
        times, values = rates(samples, column)
        above.plot(times, values, label=name, color=colour)
    above.set_title("Messages per second")
    above.set_xlabel("seconds after the first message")
    above.set_ylim(bottom=0)
    above.grid(alpha=0.3)
    above.legend()
    carriers = sorted({carrier for carrier, _ in table.cells})
    hours = sorted({hour for _, hour in table.cells})
    grid = [[_mean(table, carrier, hour) for hour in hours] for carrier in carriers]
    image = below.imshow(grid, aspect="auto", cmap="RdYlGn_r", vmin=-5, vmax=40)
    below.set_xticks(range(len(hours)), [f"{hour:02d}" for hour in hours])
    below.set_yticks(range(len(carriers)), carriers)
    below.set_xlabel("scheduled hour of departure")
    below.set_title("Mean departure delay in minutes, by carrier and hour")
    for y, line in enumerate(grid):
        for x, value in enumerate(line):
            if value == value:
                below.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8)
    figure.colorbar(image, ax=below)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _mean(table: Table, carrier: str, hour: int) -> float:
    cell = table.cells.get((carrier, hour))
    return cell.departure_minutes / cell.departed if cell is not None and cell.departed else float("nan")
