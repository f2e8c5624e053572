"""The compiled load generator: the frames that it makes are RocketMQ's, and it counts what comes back."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from orbitmq.message.batch import iter_batch
from orbitmq.message.properties import decode_properties
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import decode_frame
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.send import SendBatchMessageRequest, SendMessageV2Request

LIMIT_S = 60.0
SOURCE = Path(__file__).resolve().parents[2] / "benchmarks" / "loadgen.c"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "loadgen"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-o", str(path), str(SOURCE)], check=True)
    return str(path)


def first_frame(generator: str, mode: str, *options: str) -> Command:
    """What the generator sends first."""
    return frames(generator, 1, mode, *options)[0]


def frames(generator: str, count: int, mode: str, *options: str) -> list[Command]:
    """What the generator sends before it has an answer."""
    found = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = [generator, mode, "--port", port, "--warmup", "0", "--duration", "60", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            connection, _ = server.accept()
            with connection:
                for _ in range(count):
                    length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                    frame = length.to_bytes(4, "big") + connection.recv(length, socket.MSG_WAITALL)
                    found.append(decode_frame(frame))
            process.wait(60)
            assert b"closed a connection" in process.communicate()[1]
    return found


@pytest.mark.parametrize("header", ["json", "rocketmq"])
def test_a_send(generator: str, header: str) -> None:
    command = first_frame(generator, "send", "--header", header, "--body", "300", "--topic", "load")
    assert command.code == RequestCode.SEND_MESSAGE_V2
    request = SendMessageV2Request.from_ext(command.ext)
    assert (request.topic, request.queue_id, request.batch) == ("load", 0, False)
    assert request.born_timestamp > 1_700_000_000_000
    properties = decode_properties((request.properties or "").encode())
    assert len(properties["UNIQ_KEY"]) == 32
    assert len(command.body) == 300


@pytest.mark.parametrize("header", ["json", "rocketmq"])
def test_sends_to_topics_in_turn(generator: str, header: str) -> None:
    options = ("--header", header, "--topic", "growth_00000", "--topics", "3")
    commands = frames(generator, 4, "send", "--window", "4", *options)
    topics = [SendMessageV2Request.from_ext(command.ext).topic for command in commands]
    assert topics == ["growth_00000", "growth_00001", "growth_00002", "growth_00000"]


@pytest.mark.parametrize("header", ["json", "rocketmq"])
def test_a_batch(generator: str, header: str) -> None:
    command = first_frame(generator, "batch", "--header", header, "--count", "5", "--body", "40")
    assert command.code == RequestCode.SEND_BATCH_MESSAGE
    assert SendBatchMessageRequest.from_ext(command.ext).batch
    items = list(iter_batch(command.body))
    assert [len(item.body) for item in items] == [40] * 5
    assert all("UNIQ_KEY" in decode_properties(item.properties) for item in items)


@pytest.mark.parametrize("header", ["json", "rocketmq"])
def test_a_pull(generator: str, header: str) -> None:
    options = ("--header", header, "--count", "32", "--max-offset", "100000", "--window", "2")
    command = first_frame(generator, "pull", *options)
    request = PullMessageRequest.from_ext(command.ext)
    assert (request.queue_offset, request.max_msg_nums, request.subscription) == (0, 32, "*")


def test_it_counts_and_times_what_an_echo_sends_back(generator: str) -> None:
    serving = [generator, "serve", "--port", "0"]
    with subprocess.Popen(serving, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        watchdog = threading.Timer(LIMIT_S, server.kill)
        watchdog.start()
        try:
            port = str(json.loads(server.stdout.readline())["port"])
            command = [
                generator,
                "echo",
                "--port",
                port,
                "--rate",
                "500",
                "--duration",
                "0.4",
                "--warmup",
                "0.1",
            ]
            found = json.loads(
                subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_S).stdout
            )
        finally:
            watchdog.cancel()
            server.kill()
    assert found["mismatched"] == 0
    assert found["errors"] == {}
    assert 1 <= found["ops"] <= 400
    latency = found["latency_us"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p999"] * 1.01


@pytest.mark.parametrize("ahead", ["-1", "0", "65536"])
def test_the_device_alone(generator: str, ahead: str, tmp_path: Path) -> None:
    file = tmp_path / "blocks"
    options = f"--file {file} --body 4096 --ahead {ahead} --duration 0.2"
    command = [generator, "sync", *options.split()]
    outcome = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert outcome["ops"] > 0
    assert outcome["latency_us"]["p50"] > 0
    assert not file.exists()
