"""Copies a RocketMQ master's tables to its slave, since they are not sent over the link
(SlaveSynchronize)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from orbitmq.broker.component import Component
from orbitmq.broker.role import Role
from orbitmq.replication.link.peers import PeerLink, Peers
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.members.ports import ExchangeError
from orbitmq.replication.state.codes import TableCodes
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.runtime.seam import Clock
from orbitmq.transport.errors import TransportError
from orbitmq.wire.errors import WireError

log = logging.getLogger(__name__)

# RocketMQ copies everything every 63 s, so a RocketMQ slave that takes over repeats as much.
OFFSETS_SECONDS = 5.0
OTHERS_SECONDS = 10.0
FIRST_SECONDS = 3.0
LOOK_SECONDS = 0.5


class TableCopies(Component):
    """Asks the master repeatedly: for offsets every 5 s, for the other tables every 10 s.

    It begins when the link has been up for a while: a returning master first takes back changes made
    while this broker acted for it, and its own tables must not be copied before.

    Args:
        master: the client address of a master that speaks RocketMQ's protocol; ``None``: no such master. An
            OrbitMQ master sends its tables itself; before it is online they may be empty.
    """

    name = "copies of the master's tables"
    runs_as = frozenset({Role.SLAVE})

    def __init__(self, clock: Clock, codes: TableCodes, master: Callable[[], str | None]) -> None:
        self._clock = clock
        self._codes = codes
        self._master = master
        self._said = ""
        self._up_since: float | None = None

    async def start(self) -> None:
        self._up_since = None
        self._every(self._clock, LOOK_SECONDS, self.look, first_s=0.0)
        self._every(self._clock, OFFSETS_SECONDS, self.copy_offsets, first_s=0.0)
        self._every(self._clock, OTHERS_SECONDS, self.copy_others, first_s=0.0)

    async def copy_offsets(self) -> None:
        """Take the master's offsets."""
        address = self._address()
        if address is not None:
            await self._try(address, lambda: self._codes.offsets(address, always=True))

    async def copy_others(self) -> None:
        """Take the master's other tables when their versions have changed."""
        address = self._address()
        if address is not None:
            await self._try(address, lambda: self._codes.topics(address))
            await self._try(address, lambda: self._codes.groups(address))
            await self._try(address, lambda: self._codes.modes(address))
            await self._try(address, lambda: self._codes.delays(address))
            await self._try(address, lambda: self._codes.timers(address))

    def look(self) -> None:
        """Note since when there has been a master to ask."""
        if self._master() is None:
            self._up_since = None
        elif self._up_since is None:
            self._up_since = self._clock.monotonic()

    def _address(self) -> str | None:
        self.look()
        if self._up_since is None or self._clock.monotonic() - self._up_since < FIRST_SECONDS:
            return None
        return self._master()

    async def _try(self, address: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (ExchangeError, TransportError, WireError) as error:
            text, values = "the tables of the master %s are not copied: %s", (address, str(error))
            if text % values != self._said:
                self._said = text % values
                log.warning(text, *values)
        else:
            self._said = ""


class TravellingTables:
    """The exchange that membership calls, see ``TableExchange``: over the link or by request codes."""

    def __init__(self, peers: Peers, exchange: StateExchange, codes: TableCodes, locks: LockCopy) -> None:
        self._peers = peers
        self._exchange = exchange
        self._codes = codes
        self._locks = locks
        self._linked: set[tuple[int, str]] = set()  # brokers that run OrbitMQ
        peers.on_change(lambda link, _up: self._linked.add((link.broker_id, link.address)))

    async def push(self) -> None:
        """See ``TableExchange``."""
        await self._exchange.push()

    async def master_has_changes(self) -> None:
        """See ``TableExchange``."""
        await self._exchange.master_has_changes()

    def outdate(self) -> None:
        """See ``TableExchange``."""
        self._exchange.terms.outdate()

    async def take(self, broker_id: int, address: str) -> None:
        """See ``TableExchange``."""
        link = self._link(broker_id)
        if link is not None:
            await self._exchange.request_tables(link)
            return
        if (broker_id, address) in self._linked:
            # Request codes give only a part of an OrbitMQ broker's tables, and with fewer details.
            raise ExchangeError(f"the link to {address} is gone")
        await self._codes.take_back(address)
        self._locks.taken(None)  # RocketMQ's brokers send no locks

    def _link(self, broker_id: int) -> PeerLink | None:
        # The newest link: a half-open older one may be left.
        return next((link for link in reversed(self._peers.links) if link.broker_id == broker_id), None)
