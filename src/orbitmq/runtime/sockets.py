"""Plain sockets without an event loop, for worker processes that block (Spark's)."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import Protocol

from orbitmq.runtime.client_tls import Tls, client_context, handshake_failure
from orbitmq.runtime.seam import Buffer

# The flag that more bytes follow; only Linux has it, elsewhere packets are smaller.
_MORE: int = getattr(socket, "MSG_MORE", 0)


class Stream(Protocol):
    """A connected byte stream that never blocks by itself, only in :meth:`wait`."""

    def send(self, data: Buffer, *, more: bool = False) -> int:
        """Send what fits now; return how many bytes, 0 when none.

        Args:
            more: whether more bytes follow at once, so that a small piece need not become a packet of its
                own.
        """
        ...

    def receive_into(self, buffer: memoryview) -> int:
        """Receive the bytes that have arrived; return how many, 0 when none.

        Raises:
            ConnectionError: the other side has closed the stream, or it broke.
        """
        ...

    def wait(self, *, to_send: bool, timeout_s: float) -> bool:
        """Return when bytes have come (or there is room to send); False when neither happened in time."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        ...

    def close(self) -> None: ...


class SocketStream:
    """TCP with TCP_NODELAY, and without pacing within this machine.

    Raises:
        OSError: refused, unreachable, or not connected within ``timeout_s``.
    """

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send_unpaced(self._socket)
        self._socket.setblocking(False)
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._watches_room = False
        if self._poll is not None:
            self._poll.register(self._socket, select.POLLIN)

    def send(self, data: Buffer, *, more: bool = False) -> int:
        try:
            return self._socket.send(data, _MORE if more else 0)
        except BlockingIOError:
            return 0

    def receive_into(self, buffer: memoryview) -> int:
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return 0
        if count == 0:
            raise ConnectionResetError("closed by the other side")
        return count

    def wait(self, *, to_send: bool, timeout_s: float) -> bool:
        if self._poll is None:  # Windows, whose select takes sockets of any number
            return any(select.select([self._socket], [self._socket] if to_send else [], [], timeout_s))
        if to_send is not self._watches_room:
            self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if to_send else 0))
            self._watches_room = to_send
        # Rounded up: a wait of 0.4 ms must not become a busy loop.
        return bool(self._poll.poll(max(0, int(timeout_s * 1000) + 1)))

    def monotonic(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._socket.close()


class TlsStream(SocketStream):
    """TLS over a connection like :class:`SocketStream`, with the same errors.

    Raises:
        ConnectionAbortedError: TLS failed, also later; one sentence says why.
        ValidationError: a file of ``tls`` cannot be read any more.
    """

    def __init__(self, host: str, port: int, timeout_s: float, tls: Tls, address: str) -> None:
        context = client_context(tls)
        super().__init__(host, port, timeout_s)
        self._address, self._shows_certificate = address, tls.cert is not None
        plain = self._socket
        plain.settimeout(timeout_s)
        try:
            self._session = context.wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            plain.close()
            raise
        except (ssl.SSLError, ConnectionError) as error:
            plain.close()
            raise self._failed(error) from error
        except BaseException:
            plain.close()
            raise
        self._session.setblocking(False)
        self._socket = self._session
        if self._poll is not None:
            self._poll = select.poll()
            self._poll.register(self._session, select.POLLIN)

    def send(self, data: Buffer, *, more: bool = False) -> int:
        try:
            return self._session.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLError as error:
            raise self._failed(error) from error

    def receive_into(self, buffer: memoryview) -> int:
        try:
            count = self._session.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLEOFError as error:
            raise ConnectionResetError("closed by the other side") from error
        except ssl.SSLError as error:
            raise self._failed(error) from error
        if count == 0:
            raise ConnectionResetError("closed by the other side")
        return count

    def wait(self, *, to_send: bool, timeout_s: float) -> bool:
        # Bytes that are decrypted already do not show at the socket.
        return self._session.pending() > 0 or super().wait(to_send=to_send, timeout_s=timeout_s)

    def _failed(self, error: OSError) -> ConnectionAbortedError:
        return ConnectionAbortedError(
            handshake_failure(error, self._address, shows_certificate=self._shows_certificate)
        )


def send_unpaced(connection: socket.socket) -> None:
    """Let a connection within this machine use TCP without pacing: there is no network to spare.

    Where the system's congestion control is bbr, its pacing timers cost more processor time than ``sendfile``
    itself. Connections to other machines keep the system's choice.
    """
    with contextlib.suppress(OSError, AttributeError):  # no such connection, or not Linux
        if connection.getpeername()[0] == connection.getsockname()[0]:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
