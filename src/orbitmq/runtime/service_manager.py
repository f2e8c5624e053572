"""Notifies the program that started a server of the server's state, by the protocol of systemd
(``sd_notify``).

Each notice is one datagram to the socket that ``NOTIFY_SOCKET`` names. They are sent from the event loop, so
that a server whose loop stands still sends none: systemd then ends it and starts it again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Final

READY: Final = "READY=1"
WATCHDOG: Final = "WATCHDOG=1"
STOPPING: Final = "STOPPING=1"
# A start that reads much of the log takes long: at this interval it asks for a minute more.
MORE_TIME: Final = "EXTEND_TIMEOUT_USEC=60000000"
MORE_TIME_EVERY_S: Final = 10.0
# Seconds until a notice is sent again if the receiver's queue was full.
AGAIN_S: Final = 0.1


class ServiceManager:
    """The service manager that a server notifies; there is none without ``NOTIFY_SOCKET``.

    Args:
        variables: the environment of the process.
        pid: the number of the process; the watchdog may be meant for another one.
        warn: gets one sentence when the notices cannot be sent.
    """

    def __init__(self, variables: Mapping[str, str], pid: int, warn: Callable[[str], None]) -> None:
        self._socket = variables.get("NOTIFY_SOCKET", "")
        self._watchdog_s = _watchdog_seconds(variables, pid)
        self._warn = warn
        self._notices: asyncio.Task[None] | None = None

    def starting(self) -> None:
        """Report that the server starts; until :meth:`ready` its time limit is extended while its event loop
        works."""
        self._send_in_turn("STATUS=starting\n" + MORE_TIME, MORE_TIME, MORE_TIME_EVERY_S)

    def ready(self, status: str) -> None:
        """Report that the server serves; from now on the watchdog gets a sign of life, twice in its
        period."""
        self._send_in_turn(f"{READY}\nSTATUS={status}", WATCHDOG, self._watchdog_s / 2)

    def stopping(self) -> None:
        """Report that the server stops; no further notice is sent."""
        self._send_in_turn("", "", 0.0)
        self._send(f"{STOPPING}\nSTATUS=stopping")

    def _send_in_turn(self, first: str, notice: str, seconds: float) -> None:
        """Send ``first``, then ``notice`` every ``seconds`` (0: never), instead of the present notices."""
        notices, self._notices = self._notices, None
        if notices is not None:
            notices.cancel()
        if self._socket and first:
            self._notices = asyncio.ensure_future(self._sending(first, notice, seconds))

    async def _sending(self, first: str, notice: str, seconds: float) -> None:
        due = first
        while True:
            sent = self._send(due)
            if sent and not seconds:
                return
            await asyncio.sleep(seconds if sent else AGAIN_S)
            due = notice if sent else due

    def _send(self, notice: str) -> bool:
        """Send a notice; ``False``: it must be tried again, ``True``: it was sent, or never can be."""
        if not self._socket:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.setblocking(False)
                own.sendto(notice.encode(), _address(self._socket))
        except BlockingIOError:
            return False
        except OSError as error:
            self._warn(
                f"NOTIFY_SOCKET={self._socket}: systemd cannot be told how this server is: "
                f"{error.strerror or error}"
            )
            self._socket = ""
        return True


def _address(name: str) -> str:
    """The socket's address: a file, or behind ``@`` a name in Linux's table of sockets without files."""
    if name.startswith("/"):
        return name
    if name.startswith("@"):
        return "\0" + name[1:]
    raise OSError("expected the path of a socket, or @ and a name")


def _watchdog_seconds(variables: Mapping[str, str], pid: int) -> float:
    """How long systemd waits for a sign of life; 0 when it waits for none of this process."""
    wanted, process = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
    if not (wanted.isascii() and wanted.isdecimal()) or process not in ("", str(pid)):
        return 0.0
    return int(wanted[:18]) / 1_000_000
