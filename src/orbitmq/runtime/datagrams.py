"""Small notices between processes that may be lost: UDP, for code without an event loop (Spark's)."""

from __future__ import annotations

import contextlib
import socket

LARGEST_BYTES = 8 << 10
# Asked for; the system may give less.
INBOX_BYTES = 4 << 20
# More than an inbox holds; a sender that never stops must not keep the reader.
MOST_AT_ONCE = 100_000


class DatagramInbox:
    """Takes what is sent to a free port.

    Args:
        host: the address to listen on; others must be able to reach it.

    Raises:
        OSError: the address is not one of this machine's.
    """

    def __init__(self, host: str) -> None:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, INBOX_BYTES)
        self._socket.setblocking(False)
        self._socket.bind((host, 0))
        self.port: int = self._socket.getsockname()[1]

    def take(self) -> list[bytes]:
        """What came since the last call, without waiting."""
        taken: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(taken) < MOST_AT_ONCE:
                taken.append(self._socket.recv(LARGEST_BYTES))
        return taken

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


def send_datagram(host: str, port: int, data: bytes) -> None:
    """Send ``data`` without waiting for anything; nobody learns whether it arrives."""
    with contextlib.suppress(OSError):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(data, (host, port))
