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
from tests.metrics_text import families, value

from orbitmq import ConsumeFrom, Message
from orbitmq.runtime.ports import free_ports
from orbitmq.sync import Producer, SimpleConsumer
from orbitmq.testing import running_cluster

PROJECT = Path(__file__).resolve().parents[2]
SOURCE = str(PROJECT / "src")


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
        address = re.search(r"metrics (http://127\.0\.0\.1:\d+)/metrics$", line.strip())
        assert address is not None, line
        with urllib.request.urlopen(f"{address[1]}/readyz", timeout=60) as answer:
            assert (answer.status, json.load(answer)) == (200, {"ready": True})
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.behaviour("MX-01")
def test_without_h11_the_start_ends_with_a_line_that_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "h11.py").write_text("raise ImportError('no h11 here')")
    path = os.pathsep.join(filter(None, (str(tmp_path), SOURCE, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "orbitmq", "broker"]
    for setting in (
        f"storePathRootDir={tmp_path}/store", "listenPort=0", "grpcServerPort=0", "haListenPort=0",
        "brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=1048576", "metricsExporterType=PROM",
    ):  # fmt: skip
        command += ["--set", setting]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}
    )
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if "h11" in line]
    assert len(lines) == 1, ended.stderr
    assert "pip install 'orbitmq[server]'" in lines[0]
    assert "Traceback" not in ended.stderr


@pytest.mark.behaviour("MX-05")
def test_a_scrape_shows_what_was_sent_and_received_and_all_that_alerts_name(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    on = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    with running_cluster(str(tmp_path), settings=on) as cluster:
        servers = cluster.name_server
        with Producer("shop", name_servers=servers) as producer:
            for number in range(7):
                producer.send(Message("orders", str(number)))
        with SimpleConsumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("orders")
            held = []
            while len(held) < 7:
                held += consumer.receive(7 - len(held), 300, wait=10)
            for message in held[:4]:
                message.ack()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                found = families(answer.read())
            group = {"consumer_group": "billing", "topic": "orders", "is_retry": "false"}
            assert value(found, "rocketmq_messages_in_total", topic="orders") == 7
            assert value(found, "rocketmq_messages_out_total", **group) == 7
            assert value(found, "orbitmq_messages_in_total") >= 7
            assert value(found, "process_resident_memory_bytes") > 10_000_000
            assert value(found, "process_cpu_seconds_total") > 0
            # Of each queue, what is behind the first message that is not done counts as not done.
            assert 3 <= value(found, "rocketmq_consumer_lag_messages", **group) <= 7
            assert value(found, "rocketmq_consumer_ready_messages", **group) == 0
    page = (PROJECT / "docs/monitoring.md").read_text()
    alerts = page.partition("## Alerts")[2]
    expressions = re.findall(r"expr: (.+)", alerts)
    assert len(expressions) >= 5
    for expression in expressions:
        for name, labels in re.findall(r"((?:rocketmq|orbitmq)_\w+)(?:\{(.*?)\})?", expression):
            name = name.removesuffix("_bucket")
            assert name in found, f"{name} of the alert {expression}"
            for label in re.findall(r"(\w+)=", labels):
                assert all(label in sample.labels for sample in found[name].samples), label
    listed = set(re.findall(r"`((?:rocketmq|orbitmq|process)_\w+)`", page.partition("## Metrics")[2]))
    listed = {name for name in listed if not name.startswith("orbitmq_nameserver_")}
    missing = {"orbitmq_consumer_queue_lag_messages", "orbitmq_consumer_queue_lag_latency_milliseconds"}
    assert listed - missing == set(found)
