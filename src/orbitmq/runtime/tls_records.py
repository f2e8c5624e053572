# cython: annotation_typing=False
"""The bytes of a TLS connection: decrypted into the buffer of the protocol that they are for, and encrypted.

Received bytes come into one buffer for all connections of a thread, since each read is used up at once. Bytes
that the protocol writes while it takes received bytes are sent in one write, when it has taken them all.

Typed in ``tls_records.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

READ_BYTES: Final = 64 * 1024
RECORD_BYTES: Final = 16 * 1024
"""The most bytes that one record of TLS carries."""
KEPT_BYTES: Final = 64 * 1024
"""Most bytes that are encrypted before the transport gets them: OpenSSL's buffer never shrinks."""

Data = bytes | bytearray | memoryview
_of_thread = threading.local()


class Owner(Protocol):
    """The owner of the records: the TLS connection, which makes the handshake and ends the session."""

    def shake_hands(self) -> bool:
        """Continue the handshake with the received bytes. Returns whether it is complete."""
        ...

    def ended(self) -> None:
        """Handle close_notify of the other side."""
        ...

    def broken(self, error: ssl.SSLError) -> None:
        """Handle received bytes that cannot be decrypted."""
        ...


class TlsRecords:
    """The bytes of one connection.

    Args:
        session: OpenSSL's side of the connection.
        encrypted: received bytes, which the session reads.
        to_send: encrypted bytes, which the session writes.

    Attributes:
        open: whether the handshake is done.
    """

    def __init__(
        self, owner: Owner, session: ssl.SSLObject, encrypted: ssl.MemoryBIO, to_send: ssl.MemoryBIO
    ) -> None:
        self.open = False
        self._owner: Owner | None = owner
        self._encrypted = encrypted
        self._to_send = to_send
        # Kept as attributes, so that no message costs a look-up.
        self._receive = encrypted.write
        self._read = cast("Callable[[int, Any], int]", session.read)
        self._pending = session.pending
        self._write = session.write
        self._take_encrypted = to_send.read
        self._send: Callable[[bytes], None] | None = None
        self._is_closing: Callable[[], bool] = _is_closing
        self._buffer = buffer_of_thread("received")
        self._get_buffer: Callable[[int], Any] | None = None
        self._buffer_updated: Callable[[int], None] | None = None
        self._working = False
        self._more = False
        self._ended = False
        self._fault: ssl.SSLError | None = None

    def begin(self, below: asyncio.Transport) -> None:
        """Set the transport that carries the encrypted bytes."""
        self._send, self._is_closing = below.write, below.is_closing

    def give_to(self, get_buffer: Callable[[int], Any], buffer_updated: Callable[[int], None]) -> None:
        """Decrypt into the buffer of this protocol from now on."""
        self._get_buffer = get_buffer
        self._buffer_updated = buffer_updated

    def end(self) -> None:
        """Release everything, because the transport has ended."""
        self.open = False
        self._owner = self._send = self._get_buffer = self._buffer_updated = None
        self._is_closing = _is_closing

    # -- from the transport ------------------------------------------------------------------------------

    def room(self, _size_hint: int = -1) -> memoryview:
        """The buffer for the next bytes; valid until they are reported with :meth:`received`."""
        return self._buffer

    def received(self, count: int) -> None:
        """Handle ``count`` bytes that were read into the buffer of :meth:`room`."""
        self.take(self._buffer[:count])

    def take(self, data: Data) -> None:
        """Handle received bytes."""
        self._receive(data)
        self.go_on()

    def go_on(self) -> None:
        """Continue the handshake, or decrypt the received bytes."""
        self._working = True
        try:
            if self.open or (self._owner is not None and self._owner.shake_hands()):
                self._deliver()
        finally:
            self._working = False
            self.flush()

    def _deliver(self) -> None:
        self._more = self._encrypted.pending > 0
        while self._more:
            if self._is_closing():
                return
            owner = self._owner
            if self._get_buffer is None or self._buffer_updated is None or owner is None:
                return
            room = self._get_buffer(-1)
            filled = self._fill(room, len(room))
            if filled:
                self._buffer_updated(filled)
            if self._fault is not None:
                fault, self._fault = self._fault, None
                owner.broken(fault)
            elif self._ended:
                self._ended = False
                owner.ended()

    def _fill(self, room: Any, size: int) -> int:
        """Decrypt as much as fits; returns the number of bytes. Notes whether there is more, or an end."""
        filled = 0
        self._more = False
        while filled < size:
            try:
                count = self._read(size - filled, memoryview(room)[filled:] if filled else room)
            except ssl.SSLWantReadError:  # the received bytes end within a record
                return filled
            except ssl.SSLError as error:
                self._fault = error
                return filled
            if not count:
                self._ended = True
                return filled
            filled += count
            # A record that did not fill the room is used up. Reading a record that has not arrived would cost
            # an exception of OpenSSL.
            if filled < size and not self._encrypted.pending:
                return filled
        self._more = self._encrypted.pending > 0 or self._pending() > 0
        return filled

    # -- from the protocol -------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Encrypt and send."""
        if self._is_closing():
            return
        self._encrypt(data)
        if not self._working:
            self.flush()

    def writelines(self, parts: Iterable[Data]) -> None:
        """Encrypt and send parts, which may change after the call; in few records, and with few copies."""
        if self._is_closing():
            return
        short: list[memoryview] = []  # they share a record with what comes behind them
        length = 0
        for part in parts:
            rest = memoryview(part).cast("B")
            if short and length + len(rest) > RECORD_BYTES:
                short.append(rest[: RECORD_BYTES - length])
                rest = rest[RECORD_BYTES - length :]
                self._encrypt(b"".join(short))
                short, length = [], 0
            whole = len(rest) - len(rest) % RECORD_BYTES
            if whole:
                self._encrypt(rest[:whole])
                rest = rest[whole:]
            short.append(rest)
            length += len(rest)
        self._encrypt(short[0] if len(short) == 1 else b"".join(short))
        if not self._working:
            self.flush()

    def _encrypt(self, data: Data) -> None:
        left: bytes | memoryview = data if isinstance(data, bytes) else memoryview(data).cast("B")
        while left:
            piece = left if len(left) <= KEPT_BYTES else memoryview(left)[:KEPT_BYTES]
            if self._to_send.pending + len(piece) > KEPT_BYTES:
                self.flush()
            written = self._write(piece)
            left = memoryview(left)[written:] if written < len(left) else b""

    def flush(self) -> None:
        """Give the encrypted bytes to the transport."""
        data = self._take_encrypted()
        if data and self._send is not None and not self._is_closing():
            self._send(data)


def _is_closing() -> bool:
    """Replaces ``is_closing`` of a transport that has ended."""
    return True


def buffer_of_thread(name: str) -> memoryview:
    """A buffer of the running thread, which is used up before anything else runs there."""
    found: memoryview | None = getattr(_of_thread, name, None)
    if found is None:
        found = memoryview(bytearray(READ_BYTES))
        setattr(_of_thread, name, found)
    return found
