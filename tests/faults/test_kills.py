"""Brokers that are killed again and again under load keep what they acknowledged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from benchmarks.faults.kills import MODES, failures, run

KILLS = int(os.environ.get("ORBITMQ_KILLS", "10"))
RATE = 5000
SEED = 1


@pytest.mark.faults
@pytest.mark.parametrize("mode", MODES)
def test_what_was_acknowledged_is_there(mode: str, tmp_path: Path) -> None:
    tally = asyncio.run(run(mode, KILLS, RATE, SEED, tmp_path))
    assert failures(tally) == []
    assert tally.kills == KILLS
    assert tally.acknowledged > 100 * KILLS
