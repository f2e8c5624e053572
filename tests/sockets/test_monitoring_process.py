"""A broker process says where its health is asked for, and answers there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

SOURCE = str(Path(__file__).resolve().parents[2] / "src")


@pytest.mark.behaviour("MX-01")
def test_the_line_of_the_start_names_the_address_that_answers(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "orbitmq", "broker", "--set", f"storePathRootDir={tmp_path}"]
    for setting in (
        "listenPort=0", "grpcServerPort=0", "haListenPort=0", "brokerIP1=127.0.0.1",
        "mappedFileSizeCommitLog=1048576", "metricsExporterType=PROM", "metricsPromExporterPort=0",
    ):  # fmt: skip
        command += ["--set", setting]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"health (http://127\.0\.0\.1:\d+/readyz)$", line.strip())
        assert address is not None, line
        with urllib.request.urlopen(address[1], timeout=10) as answer:
            assert (answer.status, json.load(answer)) == (200, {"ready": True})
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
