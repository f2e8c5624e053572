"""The folder of `make demo`: emptied when it is from an earlier run, left alone when it is anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.flights.main import DemoError, prepare


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
