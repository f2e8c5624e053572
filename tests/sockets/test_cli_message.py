"""``orbitmq message`` against a small cluster on real sockets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest

from orbitmq.cli.main import main
from orbitmq.cluster.local import LocalCluster
from orbitmq.runtime.loop_thread import LoopThread
from orbitmq.runtime.system import system_runtime


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    loop = LoopThread("cluster")
    root = str(tmp_path_factory.mktemp("cluster"))
    settings = {"mappedFileSizeCommitLog": "4194304"}
    cluster = LocalCluster(system_runtime(), brokers=1, root=root, settings=settings)
    loop.wait(cluster.__aenter__())
    try:
        yield cluster.name_server
    finally:
        loop.wait(cluster.__aexit__(None, None, None))
        loop.stop()


@pytest.fixture
def orbitmq(
    name_server: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    monkeypatch.setenv("NAMESRV_ADDR", name_server)

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        actual = main(arguments)
        sys.stdout.flush()
        out, err = capfd.readouterr()
        assert actual == code, err
        assert "Traceback" not in err
        return out, err

    return run


def test_a_message_is_shown_by_both_of_its_ids(orbitmq: Callable[..., tuple[str, str]]) -> None:
    sent = json.loads(orbitmq("send", "shown", "héllo", "--tag", "A", "--key", "k1", "--json")[0])
    by_unique_id = json.loads(orbitmq("message", "get", sent["messageId"], "-t", "shown", "--json")[0])
    text, _ = orbitmq("message", "get", by_unique_id["offsetMessageId"])
    assert "body         héllo\n" in text
    assert "queue        broker-a[" in text
    by_place = json.loads(orbitmq("message", "get", by_unique_id["offsetMessageId"], "--json")[0])
    assert by_place == by_unique_id
    assert by_place["keys"] == ["k1"]


def test_messages_are_listed_by_key(orbitmq: Callable[..., tuple[str, str]]) -> None:
    for body in ("one", "two"):
        orbitmq("send", "listed", body, "--key", "same", "--quiet")
    for _ in range(100):
        # The index takes records a moment after they are stored, and so does a new topic its route.
        if main(["message", "find", "listed", "--key", "same", "--json"]) == 0:
            break
    found = json.loads(orbitmq("message", "find", "listed", "--key", "same", "--json")[0])
    assert {message["body"] for message in found} <= {"one", "two"}
    text, _ = orbitmq("message", "find", "listed", "--key", "same", "-c", "1")
    assert text.splitlines()[0].split() == ["broker", "queue", "offset", "stored", "tag", "bytes", "id"]
    assert len(text.splitlines()) == 2


def test_nothing_found_and_wrong_input_are_one_line(orbitmq: Callable[..., tuple[str, str]]) -> None:
    orbitmq("send", "empty", "x", "--quiet")
    assert orbitmq("message", "find", "empty", "--key", "none", code=1) == (
        "",
        "no message of empty has the key none\n",
    )
    assert orbitmq("message", "find", "empty", "--key", "none", "--json", code=1)[0] == "[]\n"
    assert "--count 0: expected 1 or more" in orbitmq("message", "find", "t", "-k", "x", "-c", "0", code=2)[1]
    assert "hexadecimal digits" in orbitmq("message", "get", "4711", code=1)[1]
    assert "unique id 4711" in orbitmq("message", "get", "4711", "--topic", "empty", code=1)[1]
