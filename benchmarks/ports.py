"""Ports for servers that are killed and started again: while one is down, nobody else gets its port."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import socket
from pathlib import Path

# Below the range that the kernel hands out, and apart from that of `orbitmq up`.
_PORTS = range(12_000, 20_000)
# One file for all processes of a user, so not in TMPDIR.
_CLAIMS = Path(f"/tmp/orbitmq-bench-ports-{os.getuid()}")
_claimed: set[int] = set()


class PortsTakenError(Exception):
    """No consecutive free ports are left."""


def free_ports(count: int = 1) -> int:
    """The first of ``count`` consecutive ports that nobody uses, claimed by this process until it ends.

    Raises:
        PortsTakenError: there are none.
    """
    last = _PORTS.stop - count
    begin = _PORTS.start + os.getpid() * 16 % (last - _PORTS.start)
    for first in itertools.chain(range(begin, last), range(_PORTS.start, begin)):
        if claim(range(first, first + count)):
            return first
    raise PortsTakenError(f"no {count} consecutive free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def claim(ports: range) -> bool:
    """Claim ports. False: one of them is claimed already, by this process or another, or is in use."""
    if not _claimed.isdisjoint(ports) or not _unused(ports):
        return False
    try:
        # A claim is a lock on the bytes of these numbers. A fork does not inherit it.
        fcntl.lockf(_claims(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports.start)
    except OSError:
        return False
    _claimed.update(ports)
    return True


@functools.cache
def _claims(_process: int) -> int:
    """The file of claims, opened once in a process: closing it would end all of them."""
    return os.open(_CLAIMS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _unused(ports: range) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("", port))
        except OSError:
            return False
    return True
