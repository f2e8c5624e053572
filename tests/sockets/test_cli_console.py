"""``orbitmq console`` as a process, asked over a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest
from tests.certificates import Authority

from orbitmq.cli.main import main
from orbitmq.console import connections
from orbitmq.runtime.ports import free_ports


@contextmanager
def running(
    *words: str, program: Sequence[str] = ("-m", "orbitmq"), log: IO[str] | None = None
) -> Iterator[httpx.URL]:
    """A console of a cluster that is away; the address that it prints."""
    command = ["console", "--json", "-n", "127.0.0.1:1", "--port", str(free_ports(1)[0]), *words]
    argv = [sys.executable, *program, *command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            assert process.stdout is not None
            yield httpx.URL(json.loads(process.stdout.readline())["link"])
        finally:
            process.terminate()


def shows(browser: httpx.Client, path: str, text: str) -> None:
    """Load the page until it has the text: on a busy machine its deadline of 2 s may pass before."""
    end = time.monotonic() + 120
    while text not in browser.get(path).text:
        assert time.monotonic() < end, f"{path} does not show {text!r}"
        time.sleep(0.5)


@pytest.mark.behaviour("CS-20")
def test_the_printed_link_opens_the_console() -> None:
    with (
        running() as link,
        httpx.Client(base_url=link.copy_with(path="/", query=None), timeout=30) as browser,
    ):
        closed = browser.get("/")
        assert closed.status_code == 401
        assert "server" not in closed.headers
        assert browser.get(link).status_code == 303
        assert browser.get("/messages").status_code == 200
        assert browser.get("/static/console.css").status_code == 200
        shows(browser, "/topics", "127.0.0.1:1")  # it says which name server is away


HASTY = """
import sys
from orbitmq.cli.main import main
from orbitmq.console import connections
connections.REQUEST_S, connections.MOST = 1.0, 40
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.behaviour("CS-50")
def test_clients_that_send_no_whole_request_hold_no_connection() -> None:
    half = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nuser=a"
    with running(program=("-c", HASTY)) as link:
        place = ("127.0.0.1", link.port or 0)
        pipelined = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3 + half
        for first in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", half, pipelined):
            with socket.create_connection(place, timeout=60) as one:
                one.sendall(first)
                while one.recv(1 << 16):
                    pass
        strangers = [socket.create_connection(place, timeout=60) for _ in range(100)]
        for stranger in strangers:
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(1) == b""
            stranger.close()
        with httpx.Client(base_url=link.copy_with(path="/", query=None), timeout=30) as browser:
            assert browser.get("/").status_code == 401


HASTY_TLS = """
import sys
from orbitmq.cli.main import main
from orbitmq.console import connections
connections.HANDSHAKE_SECONDS = 5.0
sys.exit(main(sys.argv[1:]))
"""
# What a TLS record with a ClientHello of 512 bytes begins with.
HALF_HELLO = bytes.fromhex("160301020001000200")


@pytest.mark.behaviour("CS-50")
def test_a_tls_handshake_that_stops_half_way_ends(tmp_path: Path) -> None:
    """asyncio's own limit is a minute; the brokers' and the console's is 10 s, here 5."""
    assert connections.HANDSHAKE_SECONDS == 10
    authority = Authority(tmp_path)
    own = authority.issue("console")
    users = tmp_path / "users.txt"
    users.write_text("anna:viewer\n")
    users.chmod(0o600)
    words = ["--users", str(users), "--cert", own.cert, "--key", own.key]
    with running(*words, program=("-c", HASTY_TLS)) as link:
        place = (link.host, link.port or 0)
        strangers = [socket.create_connection(place, timeout=50) for _ in range(3)]
        for stranger, first in zip(strangers, (b"", HALF_HELLO[:1], HALF_HELLO), strict=True):
            stranger.sendall(first)
        for stranger in strangers:
            with contextlib.suppress(ConnectionError):
                assert stranger.recv(1) == b""
            stranger.close()
        trust = ssl.create_default_context(cafile=authority.ca)
        with httpx.Client(base_url=link, verify=trust, timeout=30) as browser:
            assert browser.get("/login").status_code == 200


@pytest.mark.behaviour("CS-50")
def test_broken_requests_cost_no_traceback_and_few_lines(tmp_path: Path) -> None:
    chunked = b"POST /login HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (tmp_path / "log").open("w") as log, running(log=log) as link:
        host = link.netloc
        for data in (
            b"G\0T / HTTP/1.1\r\n\r\n",
            chunked % host + b"zz\r\n",
            chunked % host + b"5\r\nhello\r\nzz\r\n",
            b"GET / HTTP/1.1\r\nHost: %b\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" % host,
            b"POST /login HTTP/1.1\r\nHost: %b\r\nContent-Length: 100\r\n\r\nuser=a" % host,
            b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host * 3 + b"zz\r\n\r\n",
        ):
            for _ in range(20):
                with socket.create_connection((link.host, link.port or 0), timeout=60) as one:
                    one.sendall(data)
                    one.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionError):
                        while one.recv(1 << 16):
                            pass
        with httpx.Client(base_url=link.copy_with(path="/", query=None), timeout=30) as browser:
            assert browser.get("/").status_code == 401
    written = (tmp_path / "log").read_text()
    assert "Invalid HTTP request" in written
    assert "Traceback" not in written
    assert written.count("Invalid HTTP request") < 60


@pytest.mark.behaviour("CS-29")
def test_users_of_a_file_log_in_over_https(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("console")
    assert main(["console", "password", "anna", "viewer", "--generate", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    users = tmp_path / "users.txt"
    users.write_text(told["line"] + "\n")
    users.chmod(0o600)
    options = ["--users", str(users), "--cert", own.cert, "--key", own.key]
    with (
        running(*options) as link,
        httpx.Client(
            base_url=link, verify=ssl.create_default_context(cafile=authority.ca), timeout=30
        ) as browser,
    ):
        assert (link.scheme, link.query) == ("https", b"")
        assert browser.get("/messages").headers["location"] == "/login"
        origin = {"Origin": str(link).rstrip("/")}
        wrong = browser.post("/login", data={"user": "anna", "password": "wrong"}, headers=origin)
        assert wrong.status_code == 403
        form = {"user": "anna", "password": told["secret"]}
        assert browser.post("/login", data=form, headers=origin).status_code == 303
        assert browser.get("/messages").status_code == 200


@pytest.mark.behaviour("CS-20")
def test_a_local_cluster_has_a_console_when_asked(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orbitmq", "up", "--port", "0", "--console", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            cluster = json.loads(process.stdout.readline())
            told = json.loads(process.stdout.readline())
            assert told["clusters"] == [cluster["name_server"]]
            with httpx.Client(timeout=30, follow_redirects=True) as browser:
                page = browser.get(told["link"])
                assert "read only" in page.text
                shows(browser, str(page.url), "All 2 brokers answer; no group is behind.")
        finally:
            process.terminate()
        assert process.wait(180) == 0


@pytest.mark.behaviour("CS-20")
@pytest.mark.parametrize("words", [["--host", "0.0.0.0"], ["--host", "10.0.0.5"], ["--port", "0"]])
def test_the_console_listens_on_loopback_only(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *words]) == 2
    assert f"{words[0]} {words[1]}: expected" in capsys.readouterr().err


@pytest.mark.behaviour("CS-20")
def test_a_console_that_cannot_start_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["console", "-n", "127.0.0.1:1", "--port", str(port)]) == 1
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for file in (broken, tmp_path / "none"):
        assert main(["console", "-n", "127.0.0.1:1", "--cert", str(file), "--key", str(file)]) == 2
        assert f"--cert {file}, --key {file}: " in capsys.readouterr().err
    assert main(["console", "-n", "127.0.0.1:1", "--login", "--write"]) == 2
    assert "--write is for the link" in capsys.readouterr().err
