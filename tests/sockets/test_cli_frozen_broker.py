"""The operators' commands while one of two brokers, a process of its own, stands still (SIGSTOP)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq import Message
from orbitmq.admin import Admin
from orbitmq.admin.client import AdminOptions
from orbitmq.cli import group_offsets
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.message.model import MessageQueue
from orbitmq.sync import Producer

READY_LIMIT_S = 180
TIMEOUT_MS = 2000
GONE = "no answer in 2 s"
WITHOUT, QUEUES = ", without those of broker-b", "its queues are"


class Frozen:
    """A cluster of broker-a and broker-b, in a thread that starts and stops it."""

    def __init__(self, folder: Path) -> None:
        self.name_server = ""
        self._pid = 0
        self._address = ""
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(str(folder))))

    def __enter__(self) -> Frozen:
        self._thread.start()
        assert self._ready.wait(READY_LIMIT_S)
        return self

    def __exit__(self, *exc: object) -> None:
        self.thaw()
        self._over.set()
        self._thread.join(READY_LIMIT_S)

    async def _run(self, folder: str) -> None:
        settings = {"mappedFileSizeCommitLog": "4194304"}
        async with ProcessCluster(brokers=2, root=folder, settings=settings) as cluster:
            self.name_server = cluster.name_server
            self._pid, self._address = cluster.processes["broker-b"].pid, cluster.brokers["broker-b"]
            self._ready.set()
            await asyncio.to_thread(self._over.wait)

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def line(self, end: str) -> str:
        """What is told of the frozen broker."""
        return f"broker-b at {self._address}: {GONE}; {end}\n"

    def json(self) -> list[dict[str, str]]:
        return [{"broker": "broker-b", "address": self._address, "reason": GONE}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    """Topic "orders" with 3 messages at each broker, of which group "billing" has committed none."""
    with Frozen(tmp_path_factory.mktemp("cluster")) as frozen:

        async def make() -> None:

            async with Admin(frozen.name_server) as admin:
                for topic in ("orders", "%DLQ%billing", "old"):
                    await admin.topics.create(topic, queues=1)
                await admin.groups.create("billing")
                await admin.groups.move(
                    "billing", (await admin.groups.plan_to_first("billing", "orders")).whole()
                )

        asyncio.run(make())
        with Producer("p", name_servers=frozen.name_server) as producer:
            for topic, count in (("orders", 3), ("%DLQ%billing", 1)):
                for broker in ("broker-a", "broker-b"):
                    for _ in range(count):
                        producer.send(Message(topic, b"m", keys=["k"]), queue=MessageQueue(topic, broker, 0))
        yield frozen


@pytest.fixture
def orbitmq(
    cluster: Frozen, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> Iterator[Command]:
    """The command in an empty folder; broker-b stands still."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
    defaults = AdminOptions.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout", TIMEOUT_MS / 1000)
    cluster.freeze()
    yield command
    cluster.thaw()
    wait_until_it_answers(command)


def wait_until_it_answers(command: Command) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while any(broker["problem"] for broker in json.loads(command("cluster", "list", "--json"))["brokers"]):
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("words", "last_line", "told"),
    [
        (["topic", "status", "orders"], "3 messages in 1 queue" + WITHOUT, QUEUES),
        (["group", "list"], "billing", "groups that only it knows are"),
        (["group", "show", "billing"], "No member is online.", "members and queues that only it knows are"),
        (["group", "lag", "billing"], "3 messages behind in 1 queue" + WITHOUT, QUEUES),
        (["dlq", "status"], "", "redrives there are"),
        (["timer", "list"], "", "messages that wait there are"),
        (["message", "find", "orders", "--key", "k"], "", "its messages are"),
        (["group", "reset", "billing", "orders", "--to", "last", "--dry-run"], "", QUEUES),
    ],
)  # fmt: skip
def test_what_is_there_is_shown_and_the_rest_is_told(
    orbitmq: Command, cluster: Frozen, words: list[str], last_line: str, told: str
) -> None:
    """It was one line with the error of the one broker."""
    shown = orbitmq(*words, code=1, out=True)
    assert shown.splitlines()[-1].endswith(last_line)
    assert orbitmq.errors == cluster.line(f"{told} not shown")


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["topic", "status", "orders"], lambda told: len(told["queues"])),
        (["group", "list"], lambda told: len(told["groups"])),
        (["group", "show", "billing"], lambda told: len(told["settings"])),
        (["group", "lag", "billing", "--topic", "orders"], lambda told: told["lag"] // 3),
        (["dlq", "list"], lambda told: told["groups"][0]["count"]),
        (["timer", "list"], lambda told: len(told["brokers"])),
        (["message", "find", "orders", "--key", "k"], lambda told: len(told["messages"]) // 3),
        (["topic", "create", "made"], lambda told: len(told["brokers"])),
        (["group", "create", "made"], lambda told: len(told["brokers"])),
    ],
)
def test_json_stays_one_document_that_names_who_is_missing(
    orbitmq: Command, cluster: Frozen, words: list[str], count: Callable[[dict[str, list[object]]], int]
) -> None:
    told = json.loads(orbitmq(*words, "--json", code=1, out=True))
    assert (count(told), told["left_out"]) == (1, cluster.json())


def test_the_list_of_brokers_says_why_one_does_not_answer(orbitmq: Command) -> None:
    assert "master, does not answer" in orbitmq("broker", "list")
    assert orbitmq.errors.startswith("broker-b (id 0): no answer from ")
    assert len(orbitmq.errors.splitlines()) == 1


def test_messages_of_the_other_broker_are_printed(orbitmq: Command) -> None:
    assert orbitmq("receive", "orders", code=1, out=True) == "m\n" * 3
    assert orbitmq.errors.startswith("broker-b: no answer from ")
    assert orbitmq.errors.endswith("in time; its messages are not shown\n")
    assert len(orbitmq.errors.splitlines()) == 1
    assert len(orbitmq("dlq", "export", "billing", code=1, out=True).splitlines()) == 1
    # It has enough without the other one.
    assert orbitmq("receive", "orders", "--count", "1") == "m\n"


def test_who_follows_gets_the_others_and_then_all(orbitmq: Command, cluster: Frozen) -> None:
    """It ended when a broker did not answer at the start, and went on when that was later."""
    words = [sys.executable, "-m", "orbitmq", "receive", "orders", "--follow", "--format", "%s\\n"]
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as follow:
        limit = threading.Timer(READY_LIMIT_S, follow.kill)
        limit.start()
        assert follow.stdout is not None
        assert follow.stderr is not None
        assert [follow.stdout.readline() for _ in range(3)] == ["m\n"] * 3
        assert follow.stderr.readline().endswith("in time; trying again\n")
        cluster.thaw()
        assert [follow.stdout.readline() for _ in range(3)] == ["m\n"] * 3
        assert follow.stderr.readline() == "broker-b: answers again\n"
        limit.cancel()
        follow.send_signal(signal.SIGINT)


def test_what_is_made_is_made_where_it_can_be(orbitmq: Command, cluster: Frozen) -> None:
    made = orbitmq("topic", "create", "new", "--queues", "2", code=1, out=True)
    assert made == "new: 2 queues (read+write) on each of broker-a\n"
    finish = "to finish, run it again when all answer"
    assert orbitmq.errors == cluster.line("it may still do it") + f"{finish}\n"
    orbitmq("group", "clone", "billing", "copy", "--yes", code=1)
    assert orbitmq.errors.splitlines()[1] == f"{finish}; it moves copy at the others once more, too"
    cluster.thaw()
    assert "broker-a, broker-b" in orbitmq("topic", "create", "new", "--queues", "2")


def test_what_needs_all_brokers_is_not_begun(orbitmq: Command) -> None:
    for words in (
        ["topic", "delete", "old", "--yes"],
        ["group", "delete", "billing", "--yes"],
        ["group", "reset", "billing", "orders", "--to", "last", "--yes"],
    ):
        line = orbitmq(*words, code=1)
        assert "nothing was done, as it needs all brokers; run it again when they answer: broker-b at" in line
        assert len(line.splitlines()) == 1
    assert not list(Path().iterdir())
    assert "old" in orbitmq("topic", "list").split()
    assert "billing" in orbitmq("group", "list", code=1, out=True).split()


def test_a_reset_that_ends_halfway_says_how_to_go_on(
    orbitmq: Command, cluster: Frozen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker stands still only when the question is answered."""
    cluster.thaw()
    wait_until_it_answers(orbitmq)

    async def freezes(*_: object, **__: object) -> None:
        cluster.freeze()

    async def agrees(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(group_offsets, "confirm", freezes)
    reset = ["group", "reset", "billing", "orders", "--to", "last"]
    assert "moved billing in 1 queue;" in orbitmq(*reset, code=1, out=True)
    told, how = orbitmq.errors.splitlines(keepends=True)
    assert told == cluster.line("it may still do it")
    assert how.startswith("to move the other 1 queue when all answer: orbitmq group reset billing --file ")
    cluster.thaw()
    wait_until_it_answers(orbitmq)
    monkeypatch.setattr(group_offsets, "confirm", agrees)
    orbitmq(*how.split(": orbitmq ")[1].split())
    assert "0 messages behind in 2 queues" in orbitmq("group", "lag", "billing", "--topic", "orders")
    # The first file undoes both.
    orbitmq("group", "reset", "billing", "--undo", "billing-reset.json")
    assert "6 messages behind in 2 queues" in orbitmq("group", "lag", "billing", "--topic", "orders")
