"""What commands show on a terminal while they work: `--watch`, the table of the brokers, and progress."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sys
from pathlib import Path

import pytest

from orbitmq.cluster.processes import ProcessCluster

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
LIMIT_S = 400.0
# In which the table shows something.
SHOWN_S = 120.0


class Command:
    """An ``orbitmq`` command whose standard error is a terminal, unless ``piped``."""

    def __init__(self, name_server: str, *arguments: str, piped: bool = False) -> None:
        self._arguments = arguments
        self._piped = piped
        path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
        plain = {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        self._env = {**os.environ, "PYTHONPATH": path, "NAMESRV_ADDR": name_server, **plain}
        self.seen = ""
        self._all_seen = asyncio.Event()

    async def start(self) -> None:
        self._terminal, slave = os.pipe() if self._piped else pty.openpty()
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "orbitmq", *self._arguments]
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=slave, env=self._env
        )
        os.close(slave)
        asyncio.get_running_loop().add_reader(self._terminal, self._read)

    def _read(self) -> None:
        try:
            read = os.read(self._terminal, 65536)
        except OSError:  # how a terminal ends
            read = b""
        self.seen += read.decode(errors="replace")
        if not read:
            asyncio.get_running_loop().remove_reader(self._terminal)
            self._all_seen.set()

    async def shows(self, pattern: str) -> None:
        async with asyncio.timeout(SHOWN_S):
            while not re.search(pattern, self.seen):
                await asyncio.sleep(0.05)

    async def end(self) -> tuple[int, str]:
        out, _ = await self.process.communicate(b"")
        await self._all_seen.wait()
        os.close(self._terminal)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode()


@pytest.mark.parametrize("profile", ["4.x", "5.x"])
def test_the_table_shows_live_who_is_avoided(tmp_path: Path, profile: str) -> None:
    async def main() -> None:
        async with ProcessCluster(brokers=2, root=str(tmp_path)) as cluster:
            bench = Command(
                cluster.name_server,
                *("bench", "watched", "--seconds", "8", "--in-flight", "8", "--timeout", "4.5"),
                *("--no-receive", "--fault-tolerance", profile, "--watch", "--json"),
            )
            await bench.start()
            await bench.shows(r"broker-b[ │]+[1-9]\d\.\d%")
            frozen = cluster.processes["broker-b"].pid
            os.kill(frozen, signal.SIGSTOP)
            try:
                await bench.shows(r"broker-b[^\n]*in \d+\.\d s")
                code, out = await bench.end()
            finally:
                os.kill(frozen, signal.SIGCONT)
        assert code == 0, bench.seen
        told = json.loads(out)
        (sent,) = told["phases"]
        assert (sent["phase"], sent["failed"]) == ("send", 0)
        alive, avoided = told["brokers"]
        assert (alive["broker"], avoided["broker"]) == ("broker-a", "broker-b")
        assert (alive["available_in"], alive["reachable"], alive["failed_tries"]) == (0, True, 0)
        assert alive["share"] > avoided["share"]
        assert avoided["failed_tries"] >= 1
        assert avoided["latency"] > 0.3
        if profile == "4.x":
            assert avoided["available_in"] > 10
        else:
            assert not avoided["reachable"]

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_lines_are_sent_as_they_come_and_shared_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with ProcessCluster(brokers=2, root=str(tmp_path)) as cluster:
            sending = Command(cluster.name_server, "send", "lines", "-", "--watch")
            await sending.start()
            stdin = sending.process.stdin
            assert stdin is not None
            stdin.write(b"first\n\nsec")
            await sending.shows(r"100\.0%")
            stdin.write(b"ond\nthird\r\nlast")
            code, out = await sending.end()
        assert code == 0, sending.seen
        rows = [line.split() for line in out.splitlines()]
        assert [row[0] for row in rows] == ["broker", "broker-a", "broker-b"]
        # Four lines, the empty one is none.
        assert {row[1] for row in rows[1:]} <= {"0.0%", "25.0%", "50.0%", "75.0%", "100.0%"}
        assert sum(float(row[1].rstrip("%")) for row in rows[1:]) == 100
        # Without fault tolerance nothing is held against anybody.
        assert {(row[3], row[4], row[5]) for row in rows[1:]} == {("-", "-", "0")}

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_watching_goes_on_when_sends_fail_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with ProcessCluster(brokers=1, root=str(tmp_path)) as cluster:
            bench = Command(
                cluster.name_server,
                *("bench", "watched", "--seconds", "5", "--in-flight", "2", "--timeout", "0.3"),
                *("--no-receive", "--watch"),
            )
            await bench.start()
            await bench.shows(r"broker-a[ │]+100\.0%")
            await cluster.stop_broker("broker-a", kill=True)
            code, out = await bench.end()
        assert code == 1, bench.seen
        assert re.search(r"[1-9]\d* sends failed; the last one: sending to topic 'watched' failed", out)

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


@pytest.mark.parametrize("piped", [False, True], ids=["terminal", "pipe"])
def test_long_work_shows_progress_on_a_terminal_and_nothing_in_a_pipe(tmp_path: Path, piped: bool) -> None:
    async def main() -> None:
        async with ProcessCluster(brokers=1, root=str(tmp_path)) as cluster:
            words = ("bench", "counted", "--seconds", "2", "--in-flight", "8", "--json")
            bench = Command(cluster.name_server, *words, piped=piped)
            await bench.start()
            code, out = await bench.end()
        assert code == 0, bench.seen
        assert [phase["phase"] for phase in json.loads(out)["phases"]] == ["send", "receive"]
        if piped:
            assert bench.seen == ""
        else:
            assert re.search(r"\r\x1b\[K[1-9][\d,]* messages sent", bench.seen)
            assert re.search(r"\r\x1b\[K[1-9][\d,]* messages received", bench.seen)
            assert bench.seen.endswith("\r\x1b[K"), "the line is cleared at the end"

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
