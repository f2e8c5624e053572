"""The environment of one side's faults: servers, client machines, and clients that run on them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.grpc_faults.network import Machine
from benchmarks.grpc_faults.site import Broker, Site
from tests.interop.grpc_clients import Client
from tests.interop.grpc_running import Running

# On a busy machine Java clients take a minute to start. Starts are not measured.
STARTED_WITHIN_S: Final = 300.0
PROBE_EACH_S: Final = 1.0
# A count of messages that keeps clients working until they are ended.
MANY: Final = 1_000_000


class FaultError(Exception):
    """A fault could not be played to its end; the text gives the reason."""


class Lab:
    """One running side.

    Args:
        java: the official Java client.
        numbers: numbers for machines, each used once.

    Attributes:
        broker: the first broker of the site, which faults may end and start again.
        short: whether faults last as briefly as possible.
    """

    def __init__(
        self, site: Site, java: Client, stack: ExitStack, numbers: Iterator[int], *, short: bool
    ) -> None:
        self.site = site
        self.short = short
        self.broker: Broker = site.broker()
        site.wait_for()
        self._java = java
        self._stack = stack
        self._numbers = numbers
        self._probes = itertools.count()

    def machine(self) -> Machine:
        """Create a new client machine."""
        machine = Machine(next(self._numbers))
        self._stack.callback(machine.close)
        return machine

    def run(
        self, machine: Machine, role: str, topic: str, group: str, count: int = MANY, endpoint: str = ""
    ) -> Running:
        """Start a client with a role of ``tests/interop/grpc/Calls.java``.

        Args:
            endpoint: the endpoint; empty for the first broker's.
        """
        where = endpoint or self.broker.endpoint
        running = Running(machine.client(self._java), role, where, topic, group, count)
        self._stack.callback(running.end)
        return running

    def until_it_receives(self, topic: str, consumer: Running, site: Site | None = None) -> None:
        """Send a message a second until the consumer gets one.

        Args:
            site: the site to send to; None for the lab's.

        Raises:
            FaultError: the consumer gets none.
        """
        until = time.monotonic() + STARTED_WITHIN_S
        while True:
            (site or self.site).send(topic, [f"probe-{next(self._probes)}"])
            if consumer.wait_for(lambda: bool(consumer.bodies("body")), PROBE_EACH_S):
                return
            if time.monotonic() > until:
                raise FaultError(f"a consumer of {topic} receives nothing within {STARTED_WITHIN_S:.0f} s")
