"""The log of a server process: JSON lines in a file, and a reader of standard error that reads nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH")))),
}


def name_server(folder: Path, *settings: str) -> list[str]:
    command = [sys.executable, "-m", "orbitmq", "nameserver", "--port", "0"]
    for setting in (f"kvConfigPath={folder}/kv", f"configStorePath={folder}/conf", *settings):
        command += ["--set", setting]
    return command


@pytest.mark.behaviour("MX-13")
def test_a_server_writes_json_lines_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    settings = f"logFile={path}", "logFormat=json", "logLevels=orbitmq.nameserver:DEBUG"
    process = subprocess.Popen(
        name_server(tmp_path, *settings), stdout=subprocess.PIPE, env=ENVIRONMENT, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("name server serves")
        end = time.monotonic() + 60
        while not path.read_text() and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert any(line["logger"] == "orbitmq.nameserver" and "serves on" in line["message"] for line in lines)


@pytest.mark.behaviour("MX-13")
def test_a_file_that_cannot_be_opened_is_a_line(tmp_path: Path) -> None:
    command = name_server(tmp_path, f"logFile={tmp_path}/no folder/server.log")
    ended = subprocess.run(command, capture_output=True, env=ENVIRONMENT, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert "cannot open logFile=" in line
    assert "No such file or directory" in line


@pytest.mark.behaviour("MX-13")
def test_a_server_whose_log_nobody_reads_stops_all_the_same(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65_536)
    except BlockingIOError:
        os.set_blocking(writing, True)
    settings = ("logLevels=orbitmq.nameserver:DEBUG",)
    process = subprocess.Popen(
        name_server(tmp_path, *settings), stdout=subprocess.PIPE, stderr=writing, env=ENVIRONMENT, text=True
    )
    os.close(writing)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("name server serves")
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        os.close(reading)
