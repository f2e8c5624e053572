"""Brokers that are killed, or lose power, again and again under load keep what they acknowledged."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from benchmarks.faults.kills import MODES, failures, run
from benchmarks.servers import ServerError

KILLS = int(os.environ.get("ORBITMQ_KILLS", "10"))
# With a disk that is lost each time all of the log is copied back: so often is enough.
LOST_DISKS = max(2, KILLS // 10)
# Half as many losses of power, as each is a kill too. Four make one of every kind.
LOST_POWER = max(4, KILLS // 2)
RATE = 5000
SEED = 1


@pytest.mark.faults
@pytest.mark.parametrize("mode", MODES)
def test_what_was_acknowledged_is_there(mode: str, tmp_path: Path) -> None:
    wanted = MODES[mode]
    kills = LOST_DISKS if wanted.disk_lost else LOST_POWER if wanted.power_lost else KILLS
    tally = asyncio.run(run(mode, kills, RATE, SEED, tmp_path))
    assert failures(tally) == []
    assert tally.kills == kills
    assert tally.acknowledged > 10 * kills


@pytest.mark.faults
@pytest.mark.parametrize("bug", ["content_not_synced", "folders_not_synced", "last_segment_only"])
def test_a_missing_flush_is_found(bug: str, tmp_path: Path) -> None:
    """Either an acknowledged message is lost, or the broker does not start with the files it finds."""
    try:
        tally = asyncio.run(run("power", 4, RATE, SEED, tmp_path, planted=f"tests.faults.planted:{bug}"))
    except ServerError as error:
        found = [str(error)]
    else:
        found = failures(tally)
    assert any("lost" in text or "a0 ended" in text for text in found), found
