"""Brokers that are killed again and again under load keep what they acknowledged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from benchmarks.faults.kills import MODES, failures, run

KILLS = int(os.environ.get("ORBITMQ_KILLS", "10"))
# With a disk that is lost each time all of the log is copied back: so often is enough.
LOST_DISKS = max(2, KILLS // 10)
RATE = 5000
SEED = 1


@pytest.mark.faults
@pytest.mark.parametrize("mode", MODES)
def test_what_was_acknowledged_is_there(mode: str, tmp_path: Path) -> None:
    kills = LOST_DISKS if MODES[mode].disk_lost else KILLS
    tally = asyncio.run(run(mode, kills, RATE, SEED, tmp_path))
    assert failures(tally) == []
    assert tally.kills == kills
    assert tally.acknowledged > 100 * kills
