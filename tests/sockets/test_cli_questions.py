"""Questions of commands that undo is hard for, on a terminal: where they are printed, and how they end."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sockets.conftest import Command

from orbitmq.testing import running_cluster

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"mappedFileSizeCommitLog": "4194304"}
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), settings=settings) as cluster:
        yield cluster.name_server


@pytest.fixture
def orbitmq(name_server: str, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    return command


class Asked:
    """A command with standard input and standard error on a terminal, and standard output in a pipe."""

    def __init__(self, *arguments: str) -> None:
        self._terminal, slave = pty.openpty()
        path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orbitmq", *arguments],
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "100"},
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # its own terminal: ^C reaches it
        )
        os.close(slave)
        self.seen = ""

    def reads(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self.seen:
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, self.seen
            try:
                self.seen += os.read(self._terminal, 65536).decode()
            except OSError:
                pytest.fail(self.seen)

    def answer(self, keys: bytes) -> tuple[int, str]:
        """Type the keys; the exit code, and what went to standard output."""
        os.write(self._terminal, keys)
        out, _ = self.process.communicate(timeout=LIMIT_S)
        os.close(self._terminal)
        return self.process.returncode, out.decode()


def test_json_is_alone_on_standard_output_when_a_question_was_asked(orbitmq: Command) -> None:
    orbitmq("topic", "create", "asked", "--queues", "1")
    asked = Asked("topic", "delete", "asked", "--json")
    asked.reads("Delete asked: 1 queue, 0 messages? [y/N] ")
    code, out = asked.answer(b"y\n")
    assert (code, json.loads(out)["deleted"]) == (0, True)


def test_a_reset_shows_its_plan_before_it_asks(orbitmq: Command) -> None:
    orbitmq("topic", "create", "moved", "--queues", "1")
    orbitmq("send", "moved", "x", "--quiet")
    orbitmq("group", "create", "mover")
    asked = Asked("group", "reset", "mover", "moved", "--to", "last", "--json")
    asked.reads("Move group mover in 1 queue? [y/N] ")
    assert "change" in asked.seen
    code, out = asked.answer(b"y\n")
    assert (code, len(json.loads(out)["moves"])) == (0, 1)


@pytest.mark.parametrize(("keys", "code"), [(b"n\n", 2), (b"\n", 2), (b"\x04", 2), (b"\x03", 130)])
def test_anything_but_yes_does_nothing(orbitmq: Command, keys: bytes, code: int) -> None:
    """The first Ctrl-C was not obeyed."""
    orbitmq("topic", "create", "stays", "--queues", "1")
    asked = Asked("topic", "delete", "stays")
    asked.reads("? [y/N] ")
    assert asked.answer(keys) == (code, "")
    assert "stays" in orbitmq("topic", "list").split()


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "delete", "stays"],
        ["group", "delete", "keeper"],
        ["group", "clone", "keeper", "copy"],
        ["group", "reset", "keeper", "stays", "--to", "last"],
        ["group", "skip", "keeper", "stays"],
        ["timer", "cancel", "4711"],
    ],
)
def test_without_a_terminal_it_says_that_yes_is_needed(
    orbitmq: Command, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orbitmq("topic", "create", "stays", "--queues", "1")
    orbitmq("group", "create", "keeper")
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        line = orbitmq(*words, "--json", code=2)
    assert "not done: " in line
    assert "give --yes to do it without being asked" in line
    assert len(line.splitlines()) == 1
