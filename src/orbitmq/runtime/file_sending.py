# cython: annotation_typing=False
"""Sends bytes of files and memory over a connection, without a copy where the system can do that."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Protocol, cast

from orbitmq.runtime.seam import Buffer, Segment
from orbitmq.runtime.sockets import send_unpaced


class _TransportSocket(Protocol):
    """The socket object that asyncio's and uvloop's transports return."""

    def dup(self) -> socket.socket: ...

    def fileno(self) -> int: ...


class FileSender:
    """Writes to a transport, in order with all other writes to it.

    Bytes that are in memory too are sent with one ``sendmsg``, as far as the connection takes them at once:
    14 us for 128 KB, where ``sendfile`` takes 30 to 36. Other bytes are sent with ``sendfile``, which needs
    neither the copy into the kernel nor the page faults of the file's map. The rest, and all bytes on
    transports without a socket, go through the transport's buffer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        held = cast("_TransportSocket | None", transport.get_extra_info("socket"))
        # A descriptor of its own for the same connection: the transport's number may belong to another file
        # once the transport is closed.
        self._socket = held.dup() if held is not None else None
        if self._socket is not None:
            self._socket.setblocking(False)
            send_unpaced(self._socket)

    def send(
        self, head: bytes, segment: Segment, start: int, end: int, memory: memoryview | None = None
    ) -> bool:
        """Write ``head`` and the bytes of the file from ``start`` to ``end``.

        Args:
            memory: the same bytes; may change after the call.

        Returns:
            Whether all bytes were sent at once; else some wait in the transport's buffer.
        """
        sent = 0
        if not self._transport.get_write_buffer_size():
            sent = self._send_at_once(head, segment, start, end, memory)
        left = len(head) + end - start - sent
        if left:
            file_bytes = segment.view()[max(start, end - left) : end]
            self._transport.writelines([head[sent:], file_bytes] if sent < len(head) else [file_bytes])
        return not self._transport.get_write_buffer_size()

    def send_memory(self, head: bytes, memory: memoryview) -> bool:
        """Write ``head`` and ``memory``, which may change after the call; as :meth:`send`."""
        sent, held = 0, self._socket
        if held is not None and not self._transport.get_write_buffer_size():
            try:
                sent = held.sendmsg((head, memory))
            except BlockingIOError:
                pass
            except OSError:
                self.close()  # the transport gets the same error
        if sent == len(head) + len(memory):
            return True
        self._transport.write(b"".join((head, memory))[sent:])
        return not self._transport.get_write_buffer_size()

    def _send_at_once(
        self, head: bytes, segment: Segment, start: int, end: int, memory: memoryview | None
    ) -> int:
        """Send bytes directly; returns how many the connection took. The transport reports a broken
        connection itself."""
        held, file, sent = self._socket, segment.descriptor, 0
        if held is None or file < 0:
            return 0
        try:
            if memory is not None:
                return held.sendmsg((head, memory))
            sent = held.send(head, socket.MSG_MORE)
            if sent < len(head):
                return sent
            while start < end and (more := os.sendfile(held.fileno(), file, start, end - start)):
                start += more
                sent += more
        except BlockingIOError:
            pass
        except OSError:
            # the connection is broken, or the file system has no sendfile: use the transport from now on
            self.close()
        return sent

    def close(self) -> None:
        """Release the sender's own descriptor. May be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def send_at_once(transport: asyncio.Transport, parts: list[Buffer]) -> bytes:
    """Send the bytes that the connection takes now, without a copy; returns a copy of the rest, for the
    transport.

    Nothing is sent directly while bytes wait in the transport's buffer. A transport without a socket takes
    all parts itself: it encrypts or copies them.
    """
    held = cast("_TransportSocket | None", transport.get_extra_info("socket"))
    sent = 0
    if held is None:
        transport.writelines(parts)
        return b""
    # The descriptor's number of a closing transport may soon belong to another file.
    direct = not transport.get_write_buffer_size() and not transport.is_closing()
    if direct and hasattr(os, "writev"):  # Windows lacks it
        # the buffer is full, or the connection broken: the transport gets the same error
        with contextlib.suppress(OSError):
            sent = os.writev(held.fileno(), parts)
    rest = []
    for part in parts:
        if sent >= len(part):
            sent -= len(part)
        else:
            rest.append(part[sent:])
            sent = 0
    return b"".join(rest)
