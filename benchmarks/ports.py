"""Consecutive ports for servers that are killed and started again: no other process gets them meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

from orbitmq.runtime import ports as system

# Below the range from which the kernel assigns ports, and apart from the ports of `orbitmq up` and of the
# tests' clusters.
_PORTS = range(12_000, 20_000)


class PortsTakenError(Exception):
    """No consecutive free ports are left."""


def free_ports(count: int = 1) -> int:
    """The first of ``count`` consecutive unused ports, which this process claims until it ends.

    Raises:
        PortsTakenError: no consecutive ports are left.
    """
    last = _PORTS.stop - count
    begin = _PORTS.start + os.getpid() * 16 % (last - _PORTS.start)
    for first in itertools.chain(range(begin, last), range(_PORTS.start, begin)):
        if claim(range(first, first + count)):
            return first
    raise PortsTakenError(f"no {count} consecutive free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def claim(ports: range) -> bool:
    """Claim ports. False if one of them is in use, or is claimed by this or another process."""
    return _unused(ports) and system.claim(ports)


def _unused(ports: range) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("", port))
        except OSError:
            return False
    return True
