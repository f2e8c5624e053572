"""``ORBITMQ_SEEDS`` scales every simulation that runs seed by seed."""

import re
from pathlib import Path

import pytest
from tests.seeds import seed_blocks, seeds

SIMULATIONS = Path(__file__).resolve().parents[1] / "simulation"


def test_the_variable_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBITMQ_SEEDS", raising=False)
    assert seeds(6) == range(6)
    monkeypatch.setenv("ORBITMQ_SEEDS", "40")
    assert seeds(6) == range(240)
    monkeypatch.setenv("ORBITMQ_SEEDS", "0.25")
    assert seeds(60) == range(15)
    assert seeds(3) == range(1)
    assert seed_blocks(8, of=50) == [range(50), range(50, 100)]


def test_no_simulation_counts_its_seeds_itself() -> None:
    own = re.compile(r'seed", (?!seeds\()|\("block", (?!seed_)|for seed in (?!seeds\(|block:)|SEEDS =')
    found = [path.name for path in sorted(SIMULATIONS.glob("test_*.py")) if own.search(path.read_text())]
    assert not found
    assert sum("seeds(" in path.read_text() for path in SIMULATIONS.glob("test_*.py")) >= 7
