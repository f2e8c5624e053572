"""Forked brokers are processes of their own: started, stopped, killed, and seen to end."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from benchmarks.faults.nursery import Forked, Nursery


def test_a_forked_command_writes_its_log_and_ends(tmp_path: Path) -> None:
    nursery = Nursery()
    try:
        forked = nursery.start(["--help"], tmp_path / "log")
        assert forked.wait(30) == 0
        assert forked.poll() == 0
        assert "Examples:" in (tmp_path / "log").read_text()
        forked.kill()  # what has ended is left alone
    finally:
        nursery.close()


def test_a_process_that_ended_before_anybody_looked_has_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    forked = Forked(process.pid)
    assert forked.poll() == forked.wait(1) == 0
    forked.kill()


def test_what_is_frozen_can_be_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        forked = Forked(process.pid)
        forked.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            forked.wait(0.05)
        assert forked.poll() is None
        forked.kill()
        assert forked.wait(30) == 0
