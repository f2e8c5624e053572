"""Sockets that listen, for servers of other libraries, and the error for an address that cannot be used."""

from __future__ import annotations

import errno
import os
import socket

from orbitmq.errors import StartError

# The advice for the operator, by the number of the error.
_HINTS = {
    errno.EADDRINUSE: "; another program listens there: stop it, or choose another port",
    errno.EADDRNOTAVAIL: "; choose an address of this machine, or 0.0.0.0 for all of them",
    errno.EACCES: "; ports below 1024 are for root: choose a higher one",
}


def cannot_listen(host: str, port: int, settings: str, error: OSError) -> StartError:
    """The error for an address at which a server cannot listen.

    Args:
        settings: the settings that name the address.
    """
    shown = f"[{host}]" if ":" in host else host
    # The texts of the event loops would name the address a second time.
    why = os.strerror(error.errno) if error.errno else str(error)
    hint = _HINTS.get(error.errno or 0, "")
    return StartError(f"cannot listen on {shown}:{port} ({settings}): {why}{hint}")


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        StartError: the system refuses the address, which the text names.
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
