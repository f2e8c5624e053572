"""Each fault on real processes: whatever happens, no promise is broken."""

from __future__ import annotations

import os

import pytest
from benchmarks.faults.figures import broken, figures
from benchmarks.faults.plans import FAULTS, LONG, SHORT
from benchmarks.faults.run import played
from benchmarks.faults.scene import Fault
from benchmarks.servers import Ours

SEED = 1
short = bool(os.environ.get("ORBITMQ_FAULTS_SHORT"))


@pytest.mark.faults
@pytest.mark.parametrize("fault", [f for f in FAULTS if f.short or not short], ids=lambda fault: fault.name)
def test_no_promise_is_broken(fault: Fault) -> None:
    outcome = played(Ours(), fault, SHORT if short else LONG, SEED)
    found = figures(outcome)
    assert broken(outcome, found) == []
    assert found.sends > 100
    assert found.popped_total > 100
