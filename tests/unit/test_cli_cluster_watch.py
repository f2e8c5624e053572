"""``cluster list --watch``: what fits a terminal, and what goes on while nobody answers."""

from __future__ import annotations

import pytest

from orbitmq.cli.cluster_watch import fitted

HEADINGS = ["cluster", "address", "role", "epoch"]
ROWS = [["Default", "10.0.0.5:10911", "master", 3], ["Default", "10.0.0.6:10911", "slave", 3]]


@pytest.mark.parametrize(
    ("columns", "last", "widest"),
    [
        (None, "Default  10.0.0.6:10911  slave       3", 38),
        (38, "Default  10.0.0.6:10911  slave       3", 38),
        (37, "(no room for: epoch)", 31),
        (30, "(no room for: epoch, cluster)", 29),
        # An address is never cut: the terminal breaks such a line.
        (10, "(no room for: epoch, cluster)", 29),
    ],
)
def test_a_narrow_terminal_goes_without_columns_and_is_told(
    columns: int | None, last: str, widest: int
) -> None:
    lines = fitted(HEADINGS, ROWS, columns, ["epoch", "cluster"]).split("\n")
    assert lines[-1] == last
    assert max(map(len, lines)) == widest
    assert "10.0.0.5:10911" in lines[1]
