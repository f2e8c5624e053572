"""``orbitmq console`` as a process, asked over a real socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import httpx
import pytest

from orbitmq.cli.main import main


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.behaviour("CS-20")
def test_the_printed_link_opens_the_console() -> None:
    words = ["console", "--json", "-n", "127.0.0.1:1", "--port", str(unused_port())]
    with subprocess.Popen([sys.executable, "-m", "orbitmq", *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            link = httpx.URL(json.loads(process.stdout.readline())["link"])
            # The link is printed a moment before the port is open.
            with httpx.Client(base_url=link.copy_with(path="/", query=None), timeout=30) as browser:
                closed = wait_for(browser)
                assert closed.status_code == 401
                assert "server" not in closed.headers
                assert browser.get(link).status_code == 303
                assert browser.get("/messages").status_code == 200
                assert browser.get("/static/console.css").status_code == 200
                assert "127.0.0.1:1" in browser.get("/topics").text  # it says which name server is away
        finally:
            process.terminate()


def wait_for(browser: httpx.Client) -> httpx.Response:
    """The first answer, within 60 s."""
    end = time.monotonic() + 60
    while True:
        try:
            return browser.get("/")
        except httpx.ConnectError:
            assert time.monotonic() < end, "the console does not listen"
            time.sleep(0.05)


@pytest.mark.behaviour("CS-20")
@pytest.mark.parametrize("words", [["--host", "0.0.0.0"], ["--host", "10.0.0.5"], ["--port", "0"]])
def test_the_console_listens_on_loopback_only(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *words]) == 2
    assert f"{words[0]} {words[1]}: expected" in capsys.readouterr().err
