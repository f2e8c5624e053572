"""Sockets that listen, for servers of other libraries."""

from __future__ import annotations

import socket

from orbitmq.errors import StartError


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        StartError: it cannot; the text names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
        made.setblocking(False)
    except OSError as error:
        made.close()
        shown = f"[{host}]" if ":" in host else host
        raise StartError(f"cannot listen at {shown}:{port}: {error.strerror or error}") from error
    return made
