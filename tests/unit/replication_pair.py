"""A master and a slave whose tables are sent over links in memory."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.test_broker_change_feed import Tables

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role, RoleState, RoleTaken
from orbitmq.replication.link.peers import Peers
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.state.durable_tables import DurableTables
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.testing import SimulatedRuntime

# Seconds that a write to the disk takes.
DISK_S = 0.01


class Side:
    """One broker: its tables, its role, and the end of its log."""

    def __init__(self, runtime: SimulatedRuntime, role: Role) -> None:
        self.runtime = runtime
        self.tables = Tables(runtime.clock)  # type: ignore[arg-type]
        self.peers = Peers()
        self.role = RoleState(role, 0)
        self.noted: list[str] = []
        self.refusals: list[OSError] = []
        self.locks = LockCopy(runtime.clock, BrokerConfig(), self.role, self.tables.locks, Timing(4.0, 1.0))
        self.exchange = StateExchange(
            runtime.clock,
            self.tables.events,
            self.role,
            self.tables.feed,
            self,
            self.peers,  # type: ignore[arg-type]
            DurableTables(self.save),
            self.locks,
            self.noted.append,
            self.refusals.append,
        )
        self.saved: list[str] = []
        self.disk_s = DISK_S
        self.crashed = False

    async def save(self, *tables: str) -> None:
        self.saved.extend(tables)
        await self.runtime.clock.sleep(self.disk_s)

    @property
    def max_commit_log_offset(self) -> int:
        return self.tables.log_end

    def become(self, role: Role, *, taken: bool = True) -> None:
        changed = self.role.move(role, 0)
        assert changed is not None
        self.tables.events.publish(changed)
        if taken:
            self.tables.events.publish(RoleTaken())

    def content(self) -> dict[str, Any]:
        return self.tables.content()


class Link:
    """One end of a link; frames arrive a moment later, in order."""

    def __init__(self, owner: Side, broker_id: int, is_master: bool) -> None:
        self.owner = owner
        self.broker_id = broker_id
        self.is_master = is_master
        self.address = f"10.0.0.{broker_id}:1"
        self.other: Link | None = None
        self.sealed = False
        self.sent = 0
        self._on_the_way: list[tuple[FrameKind, bytes]] = []

    def send(self, kind: FrameKind, payload: bytes) -> None:
        self.sent += 1
        self._on_the_way.append((kind, payload))
        if len(self._on_the_way) == 1:
            asyncio.get_running_loop().call_later(0.001, self._arrive)

    def _arrive(self) -> None:
        frames, self._on_the_way = self._on_the_way, []
        for kind, payload in frames:
            if self.other is not None:
                self.other.owner.peers.received(self.other, kind, payload)


def connect(master: Side, slave: Side, *, sealed: bool = False) -> tuple[Link, Link]:
    here, there = Link(master, 1, False), Link(slave, 0, True)
    here.sealed = there.sealed = sealed
    here.other, there.other = there, here
    master.peers.opened(here)
    slave.peers.opened(there)
    return here, there


def cut(here: Link, there: Link) -> None:
    here.other = there.other = None
    here.owner.peers.closed(here)
    there.owner.peers.closed(there)


class Pair:
    def __init__(self, runtime: SimulatedRuntime, slave_role: Role = Role.SLAVE) -> None:
        self.runtime = runtime
        self.master, self.slave = Side(runtime, Role.MASTER), Side(runtime, slave_role)

    async def __aenter__(self) -> Pair:
        await self.master.exchange.start()
        await self.slave.exchange.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.master.exchange.stop()
        await self.slave.exchange.stop()

    async def sleep(self, seconds: float) -> None:
        await self.runtime.clock.sleep(seconds)
