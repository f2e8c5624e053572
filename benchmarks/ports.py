"""Consecutive ports for servers that are killed and started again: nobody else gets them meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

from orbitmq.runtime import ports as system

# Below the range that the kernel hands out, and apart from those of `orbitmq up` and of the tests' clusters.
_PORTS = range(12_000, 20_000)


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
    return _unused(ports) and system.claim(ports)


def _unused(ports: range) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("", port))
        except OSError:
            return False
    return True
