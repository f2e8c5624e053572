"""Ports for servers that are started soon, or killed and started again: no other program gets them meanwhile.

Only the composition (command line, cluster, tests) uses this. A program that starts many servers beside
others, as pytest does in several processes, would otherwise get "address already in use" now and then.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
from collections.abc import Iterable

from orbitmq.errors import OrbitError

# Below the range from which the system takes ports for outgoing connections.
_RANGE = (20_000, 32_000)
_MAX_TRIED = 1000
_claimed: set[int] = set()


class PortsTakenError(OrbitError):
    """Fewer ports are free than were requested."""


def free_ports(count: int, host: str = "127.0.0.1", *, apart: int = 4) -> list[int]:
    """TCP ports on which no program listens now, at least ``apart`` from each other, claimed by this process.

    Raises:
        PortsTakenError: fewer free ports were found.
    """
    ports: list[int] = []
    for port in random.sample(range(*_RANGE), _MAX_TRIED):
        if len(ports) == count:
            break
        near = any(abs(port - other) < apart for other in ports)
        if not near and is_free(port, host) and claim(range(port, port + 1)):
            ports.append(port)
    if len(ports) < count:
        release(ports)
        raise PortsTakenError(f"found {len(ports)} free ports on {host}, wanted {count}")
    return ports


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether no program listens on this TCP port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
        return True


def claim(ports: range) -> bool:
    """Claim consecutive ports until :func:`release` or the end of this process.

    ``False``: one of them is claimed already, here or by another process of this user.
    """
    if not _claimed.isdisjoint(ports):
        return False
    import fcntl

    try:
        file = _claims(os.getpid())
    except OSError:
        file = -1  # no other process can claim any either
    try:
        # A forked process does not inherit the locks of lockf.
        if file >= 0:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports.start)
    except OSError:
        return False
    _claimed.update(ports)
    return True


def release(ports: Iterable[int]) -> None:
    """End the claims of these ports."""
    import fcntl

    for port in _claimed.intersection(ports):
        with contextlib.suppress(OSError):
            fcntl.lockf(_claims(os.getpid()), fcntl.LOCK_UN, 1, port)
        _claimed.discard(port)


@functools.cache
def _claims(_process: int) -> int:
    """The file of claims, opened once in a process: closing it would end all of them.

    One file for all processes of a user, so not in TMPDIR. A claim is a lock on the byte of a port's number.
    """
    path = f"/tmp/orbitmq-ports-{os.getuid()}"  # noqa: S108 - empty, only locked
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
