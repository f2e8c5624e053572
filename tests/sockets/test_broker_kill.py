"""A broker process that is killed, stopped or starved of disk space under load: what it promised is there."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.message.record import iter_records
from orbitmq.runtime.ports import free_ports
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.send import SendMessageV2Request

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
LIMIT_S = 60
ANSWER_MS = 30_000
SENDERS = 4
QUEUES = 2
TOPICS = ("first", "second")

Promises = dict[tuple[str, int], dict[int, bytes]]


class BrokerProcess:
    """A broker in a process of its own, on a folder that outlives it."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder = folder
        self.mode = mode
        self.port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; it serves on return."""
        self.launch()
        assert self._process is not None
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            pytest.fail(self._process.communicate()[1])

    def limit_files(self, size_bytes: int) -> None:
        """Let the system refuse all of a file behind ``size_bytes``."""
        assert self._process is not None
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))

    def launch(self, *, largest_file_bytes: int = resource.RLIM_INFINITY) -> None:
        arguments = [
            f"listenPort={self.port}", f"storePathRootDir={self.folder}", f"flushDiskType={self.mode}",
            "brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000",
            "haListenPort=0", "grpcServerPort=0",
        ]  # fmt: skip
        command = [sys.executable, "-m", "orbitmq", "broker"]
        for argument in arguments:
            command += ["--set", argument]
        path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.limit_files(largest_file_bytes)

    def end(self, number: int) -> tuple[int, str]:
        """Exit code and standard error."""
        assert self._process is not None
        self._process.send_signal(number)
        _, errors = self._process.communicate(timeout=LIMIT_S)
        code = self._process.returncode
        self._process = None
        return code, errors

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "store", getattr(request, "param", "SYNC_FLUSH"))
    yield process
    process.close()


def send_request(topic: str, queue_id: int, body: bytes) -> Command:
    header = SendMessageV2Request(
        producer_group="pg",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=QUEUES,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return header.command(body)


class Load:
    """Senders on connections of their own, and what was promised to them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.promises: Promises = {}
        self.refusals: dict[int, int] = {}
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    @property
    def promised(self) -> int:
        return sum(len(queue) for queue in self.promises.copy().values())

    def _send(self, name: int) -> None:
        number = 0
        try:
            connection = BlockingConnection(self.address, timeout_ms=ANSWER_MS)
            while not self._stopping.is_set():
                places = [(TOPICS[(number + k) % 2], (name + k) % QUEUES) for k in range(8)]
                bodies = [b"%d-%d-" % (name, number + k) + b"x" * (97 * k) for k in range(8)]
                requests = [send_request(*place, body) for place, body in zip(places, bodies, strict=True)]
                answers = connection.request_many(requests)
                for place, body, answer in zip(places, bodies, answers, strict=True):
                    if answer.code == ResponseCode.SUCCESS:
                        self.promises.setdefault(place, {})[int(answer.ext["queueOffset"])] = body
                    else:
                        self.refusals[answer.code] = self.refusals.get(answer.code, 0) + 1
                number += 8
            connection.close()
        except (TransportError, OSError):
            return

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not reached():
            assert time.monotonic() < deadline, (self.promised, self.refusals)
            time.sleep(0.01)

    def wait_for(self, promises: int) -> None:
        """Return when so much is promised, and something in each queue: each sender sends to two of them."""
        self.until(lambda: self.promised >= promises and len(self.promises) == len(TOPICS) * QUEUES)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(LIMIT_S)


def stored(address: str, topic: str, queue_id: int) -> dict[int, bytes]:
    connection = BlockingConnection(address, timeout_ms=ANSWER_MS)
    found: dict[int, bytes] = {}
    while True:
        header = PullMessageRequest(
            consumer_group="TOOLS_CONSUMER",
            topic=topic,
            queue_id=queue_id,
            queue_offset=len(found),
            max_msg_nums=1000,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
        )
        answer = connection.request(header.command())
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
            connection.close()
            return found
        for record in iter_records(answer.body):
            assert record.queue_offset == len(found)
            found[record.queue_offset] = record.body


def check(broker: BrokerProcess, *loads: Load) -> None:
    """Each message that is promised by now is at its offset; offsets have no gap."""
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            # Copied before the broker is asked: senders may go on.
            promises = [load.promises.get((topic, queue_id), {}).copy() for load in loads]
            found = stored(broker.address, topic, queue_id)
            for promised in promises:
                assert promised
                assert promised.items() <= found.items()


@pytest.mark.parametrize("broker", ["SYNC_FLUSH", "ASYNC_FLUSH"], indirect=True)
def test_what_was_acknowledged_outlives_kills_and_stops(broker: BrokerProcess) -> None:
    loads: list[Load] = []
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        broker.start()
        loads.append(load := Load(broker.address))
        # The first kill comes while the topics are being made.
        if len(loads) == 1:
            load.until(lambda: load.promised > 0)
        else:
            load.wait_for(600)
        code, _ = broker.end(number)
        assert code == (0 if number == signal.SIGTERM else -number)
        load.stop()
    broker.start()
    check(broker, *loads[1:])
    for (topic, queue_id), promised in loads[0].promises.items():
        assert promised.items() <= stored(broker.address, topic, queue_id).items()
    assert broker.end(signal.SIGTERM)[0] == 0


def test_a_torn_tail_is_cut_off(broker: BrokerProcess) -> None:
    broker.start()
    load = Load(broker.address)
    load.wait_for(300)
    broker.end(signal.SIGKILL)
    load.stop()
    newest = max((broker.folder / "commitlog").iterdir())
    content = newest.read_bytes()
    end = len(content.rstrip(b"\0"))
    first = content[:4]
    with newest.open("r+b") as file:
        # Half a record, as a torn write leaves it, behind whatever the last one is.
        file.seek(end + 16)
        file.write(first + b"\xda\xa3\x20\xa7" + b"\1" * 50)
    broker.start()
    check(broker, load)
    again = Load(broker.address)
    again.wait_for(100)
    again.stop()
    check(broker, load, again)
    assert broker.end(signal.SIGTERM)[0] == 0


def test_a_disk_without_room_is_code_14_and_loses_nothing(broker: BrokerProcess) -> None:
    broker.start()
    load = Load(broker.address)
    load.wait_for(100)
    # From now on no next log file can be made, as on a full disk.
    broker.limit_files(512 * 1024)
    load.until(lambda: load.refusals.get(ResponseCode.SERVICE_NOT_AVAILABLE, 0) > 0)
    check(broker, load)
    load.stop()
    broker.limit_files(resource.RLIM_INFINITY)
    deadline = time.monotonic() + LIMIT_S
    with BlockingConnection(broker.address, timeout_ms=ANSWER_MS) as connection:
        while connection.request(send_request("first", 0, b"late")).code != ResponseCode.SUCCESS:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    check(broker, load)
    code, errors = broker.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in errors


def test_a_disk_without_room_at_the_start_is_one_line(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "store", "SYNC_FLUSH")
    broker.launch(largest_file_bytes=512 * 1024)
    code, errors = broker.end(0)
    assert code == 1
    assert f"orbitmq broker: cannot use storePathRootDir={broker.folder}: " in errors
    assert "Traceback" not in errors


def test_garbage_from_one_peer_disturbs_no_other(broker: BrokerProcess) -> None:
    broker.start()
    load = Load(broker.address)
    hostile = (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x80\0\0\0",
        b"\x7f\xff\xff\xff" + b"\0" * 1000,
        b"\0\0\0\x10\xff\xff\xff\xff" + b"\0" * 12,
        b"\0\0\0\x10\0\0\0\x0cnot json at all"[:20],
        b"\0\0\0\x20\0\0\0",
        os.urandom(100_000),
    )
    for data in hostile:
        for cut in (len(data), len(data) // 2):
            with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as peer:
                try:
                    peer.sendall(data[:cut])
                    peer.settimeout(0.2)
                    peer.recv(100)
                except OSError:
                    continue
    with BlockingConnection(broker.address, timeout_ms=ANSWER_MS) as connection:
        answer = connection.request(Command(99_999, {}))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        answer = connection.request(Command(RequestCode.SEND_MESSAGE_V2, {"b": "x"}))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        load.wait_for(load.promised + 50)
    load.stop()
    assert not load.refusals
    check(broker, load)
    code, errors = broker.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in errors
