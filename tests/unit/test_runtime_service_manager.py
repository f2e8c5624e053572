"""Notices to systemd: their contents and times, and the cases without a notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.runtime.service_manager import MORE_TIME, READY, STOPPING, WATCHDOG, ServiceManager

PID = os.getpid()


@pytest.fixture
def other_end(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def told(other_end: socket.socket) -> list[list[str]]:
    """The received notices, each as its lines."""
    found = []
    while True:
        try:
            found.append(other_end.recv(4096).decode().split("\n"))
        except BlockingIOError:
            return found


async def until(other_end: socket.socket, enough: Callable[[list[list[str]]], bool]) -> list[list[str]]:
    found: list[list[str]] = []
    async with asyncio.timeout(60):
        while not enough(found):
            await asyncio.sleep(0.01)
            found += told(other_end)
    return found


def manager(name: str, warnings: list[str] | None = None, **variables: str) -> ServiceManager:
    return ServiceManager(
        {"NOTIFY_SOCKET": name, **variables}, PID, ([] if warnings is None else warnings).append
    )


@pytest.mark.behaviour("CS-15")
def test_a_server_tells_of_its_start_its_life_and_its_stop(other_end: socket.socket) -> None:
    async def main() -> None:
        one = manager(other_end.getsockname(), WATCHDOG_USEC="20000", WATCHDOG_PID=str(PID))
        one.starting()
        assert await until(other_end, bool) == [["STATUS=starting", MORE_TIME]]
        one.ready("it serves")
        first, *more = await until(other_end, lambda found: len(found) >= 4)
        assert first == [READY, "STATUS=it serves"]
        assert all(notice == [WATCHDOG] for notice in more)
        one.stopping()
        last = told(other_end)
        assert last[-1] == [STOPPING, "STATUS=stopping"]
        await asyncio.sleep(0.1)
        assert told(other_end) == []

    asyncio.run(main())


@pytest.mark.behaviour("CS-15")
def test_an_event_loop_that_stands_still_gives_no_sign_of_life(other_end: socket.socket) -> None:
    async def main() -> None:
        one = manager(other_end.getsockname(), WATCHDOG_USEC="20000")
        one.ready("")
        await until(other_end, lambda found: len(found) >= 2)
        told(other_end)
        other_end.setblocking(True)
        other_end.settimeout(0.2)  # the event loop stands still meanwhile
        with pytest.raises(TimeoutError):
            other_end.recv(4096)

    asyncio.run(main())


@pytest.mark.behaviour("CS-15")
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(PID + 1)},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "0"},
    ],
    ids=["no watchdog", "that of another process", "no number", "zero"],
)
def test_without_a_watchdog_for_this_process_it_tells_only_that_it_is_ready(
    other_end: socket.socket, variables: dict[str, str]
) -> None:
    async def main() -> None:
        manager(other_end.getsockname(), **variables).ready("")
        assert await until(other_end, bool) == [[READY, "STATUS="]]
        await asyncio.sleep(0.1)
        assert told(other_end) == []

    asyncio.run(main())


@pytest.mark.behaviour("CS-15")
def test_a_name_without_a_file_is_a_socket_too() -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(f"\0orbitmq-test-{PID}")
            listening.setblocking(False)
            manager(f"@orbitmq-test-{PID}").ready("")
            assert await until(listening, bool) == [[READY, "STATUS="]]

    asyncio.run(main())


@pytest.mark.behaviour("CS-15")
@pytest.mark.parametrize("name", ["/nowhere/notify", "vsock:2:1"])
def test_a_socket_that_is_not_there_is_one_warning(name: str) -> None:
    warnings: list[str] = []

    async def main() -> None:
        one = manager(name, warnings, WATCHDOG_USEC="2000")
        one.starting()
        await asyncio.sleep(0.05)
        one.ready("")
        await asyncio.sleep(0.05)
        one.stopping()

    asyncio.run(main())
    assert len(warnings) == 1
    assert warnings[0].startswith(f"NOTIFY_SOCKET={name}: systemd cannot be told how this server is: ")


@pytest.mark.behaviour("CS-15")
def test_a_notice_that_finds_the_queue_full_is_sent_again(other_end: socket.socket) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as noise:
            noise.setblocking(False)
            noise.connect(other_end.getsockname())
            with contextlib.suppress(BlockingIOError):
                while noise.send(b"noise"):
                    pass
            manager(other_end.getsockname()).ready("")
            await asyncio.sleep(0.05)
            found = await until(other_end, lambda found: [READY, "STATUS="] in found)
            assert found[0] == ["noise"]
            assert found.count([READY, "STATUS="]) == 1

    asyncio.run(main())


def test_without_a_socket_nothing_is_sent_and_nothing_runs() -> None:
    async def main() -> None:
        one = ServiceManager({"WATCHDOG_USEC": "2000"}, PID, pytest.fail)
        one.starting()
        one.ready("")
        one.stopping()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
