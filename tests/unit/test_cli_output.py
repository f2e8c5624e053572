"""Tables on a narrow terminal."""

from __future__ import annotations

import pytest

from orbitmq.cli.output import fitted, table

HEADINGS = ["cluster", "address", "role", "epoch"]
ROWS = [["Default", "10.0.0.5:10911", "master", 3], ["Default", "10.0.0.6:10911", "slave", 3]]


@pytest.mark.parametrize(
    ("columns", "left_out", "widest"),
    [
        (38, [], 38),
        (37, ["epoch"], 31),
        (30, ["epoch", "cluster"], 22),
        (10, ["epoch", "cluster"], 22),
    ],
)
def test_a_narrow_terminal_goes_without_columns(columns: int, left_out: list[str], widest: int) -> None:
    headings, rows, gone = fitted(HEADINGS, ROWS, columns, ["epoch", "cluster"])
    assert gone == left_out
    lines = table(headings, rows).split("\n")
    assert max(map(len, lines)) == widest
    assert "10.0.0.5:10911" in lines[1]
