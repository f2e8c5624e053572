"""`make demo`: the folder of an earlier run is emptied, other folders stay; its rate after the warm-up."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.flights.main import DemoError, prepare, warm_rate
from examples.flights.picture import Sample


def test_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with prepare(out):
        (out / "flights.png").write_bytes(b"old")
        (out / "cluster" / "broker-a").mkdir(parents=True)
    with prepare(out):
        assert not (out / "flights.png").exists()
        assert not (out / "cluster").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(DemoError, match="not from an earlier demo; choose another folder with --out"):
        prepare(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    with prepare(tmp_path):
        (tmp_path / "flights.png").write_bytes(b"new")
        with pytest.raises(DemoError, match="another demo uses"):
            prepare(tmp_path)
        assert (tmp_path / "flights.png").exists()


def test_the_warm_rate_begins_with_the_batch_that_has_the_first_third() -> None:
    archived = {0.0: 0, 2.0: 100, 3.0: 250, 4.0: 600, 5.0: 900}
    samples = [Sample(at, min(900, 10 * count), 0, count) for at, count in archived.items()]
    assert warm_rate(samples, 900) == pytest.approx(300)
    assert warm_rate(samples[-1:], 900) == 0, "all in one batch: there is nothing to see"
