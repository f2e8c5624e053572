"""One run with gRPC clients from beginning to end: load and faults, recovery, closing of clients,
judgement.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Final

from orbitmq.admin import Admin, GroupSettings
from orbitmq.broker.broker import Broker
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.role import Role
from orbitmq.gateway.door import GrpcDoor
from orbitmq.gateway.service import RocketmqService
from orbitmq.testing.machine.simulated import seeded, simulated_runtime
from orbitmq.testing.machine.virtual_loop import SimulationStuckError, VirtualClock, VirtualLoop
from tools.simulation import grpc_checks
from tools.simulation.faults import Faults
from tools.simulation.grpc_load import FIFO_GROUP, ORDERED, PLAIN, GrpcLoad, Record
from tools.simulation.history import History
from tools.simulation.load import CONSUMERS, PRODUCERS
from tools.simulation.plan import GROUPS, NAME_SERVERS, Plan
from tools.simulation.run import (
    LEAST_LOAD_S,
    LINK_DELAY_S,
    MOST_ITERATIONS,
    START_LIMIT_S,
    Outcome,
    collected_at_the_end,
)
from tools.simulation.site import Site
from tools.simulation.watch import LogLines, Watch

CALM_S: Final = 3.0
# A consumer may count as present for 40 s and its messages may stay invisible for 60 s; a long handler takes
# 75 s.
DRAIN_LIMIT_S: Final = 300.0
# This long after the last client closed, brokers hold nothing of the clients.
LEFT_S: Final = 20.0
LOOK_S: Final = 0.5
QUEUES: Final = 2


def simulate_grpc(plan: Plan) -> Outcome:
    """Run a plan; the same plan gives the same outcome."""
    loop = VirtualLoop(VirtualClock(), plan.seed, max_iterations=MOST_ITERATIONS)
    history, record = History(loop.clock), Record()
    try:
        with collected_at_the_end():
            loop.run_until_complete(_Run(plan, history, record).run())
    except SimulationStuckError as error:
        history.violate("everything is bounded", str(error))
    finally:
        loop.close()
    return Outcome(
        plan,
        tuple(history.violations),
        tuple(history.trace()),
        loop.clock.monotonic(),
        len(history.sent),
        sum(sent.acked_s is not None for sent in history.sent.values()),
        len(history.delivered),
        {},
    )


class _Run:
    def __init__(self, plan: Plan, history: History, record: Record) -> None:
        self._plan = plan
        self._brokers = plan.mode.brokers
        self._history = history
        self._record = record

    async def run(self) -> None:
        plan, history = self._plan, self._history
        self._site = site = Site(simulated_runtime(plan.seed), plan.mode, history)
        site.slow_network(*LINK_DELAY_S)
        load = GrpcLoad(site, history, self._record, seeded(3 * plan.seed + 1), plan.mode)
        faults = Faults(plan, site, load, history, seeded(3 * plan.seed + 2))
        with LogLines(site, plan, history) as log:
            try:
                async with Watch(site, plan, history):
                    await self._play(load, faults)
                # Collect now: the errors that asyncio reports for unawaited futures count.
                gc.collect()
            finally:
                log.deaf = True
                await site.close()
                gc.collect()
        grpc_checks.judge(plan, history, self._record)

    async def _play(self, load: GrpcLoad, faults: Faults) -> None:
        site, history = self._site, self._history
        for name in site.servers:
            site.begin(name)
        if not await self._until(self._in_place, START_LIMIT_S):
            history.violate("everything recovers", f"brokers are not in place after {START_LIMIT_S:g} s")
            return
        await self._create()
        history.begin()
        history.note("RUN", "all serve")
        for name in (*CONSUMERS, PRODUCERS):
            load.begin(name)
        await asyncio.gather(faults.run(), site.clock.sleep(LEAST_LOAD_S))
        await site.clock.sleep(CALM_S)
        await load.stop()
        history.note("RUN", "the producer sends no more")
        if not await self._until(self._in_place, START_LIMIT_S):
            history.violate("everything recovers", f"brokers are not in place after {START_LIMIT_S:g} s")
        if not await self._until(lambda: not any(grpc_checks.missing(history)), DRAIN_LIMIT_S):
            for text in list(grpc_checks.missing(history))[:3]:
                body = text.rpartition(" ")[2].encode()
                history.violate("at least once for every group", text, body)
        history.note("RUN", "all is quiet")
        for name in (*CONSUMERS, PRODUCERS):
            await load.leave(name)
        history.note("RUN", "all clients are closed")
        await self._until(lambda: not any(self._left()), LEFT_S)
        for text in self._left():
            history.violate("nothing is left behind", text)
        for name in (*self._brokers, NAME_SERVERS[0]):
            await site.stop(name)

    async def _create(self) -> None:
        machine = self._site.machines[PRODUCERS]

        async def create() -> None:
            async with Admin(self._site.name_servers, runtime=machine.runtime) as admin:
                for topic in (PLAIN, ORDERED):
                    await admin.topics.create(topic, queues=QUEUES, attributes={"message.type": "MIXED"})
                await admin.groups.create(FIFO_GROUP, GroupSettings(orderly=True))

        await machine.begin(create())

    async def _until(self, reached: Callable[[], bool], limit_s: float) -> bool:
        clock = self._site.clock
        deadline = clock.monotonic() + limit_s
        while not reached():
            if clock.monotonic() >= deadline:
                return False
            await clock.sleep(LOOK_S)
        return True

    def _in_place(self) -> bool:
        roles = {name: self._site.servers[name].role for name in self._brokers}
        return all(role is (Role.MASTER if name in GROUPS else Role.SLAVE) for name, role in roles.items())

    def _left(self) -> Iterator[str]:
        """The state of clients that brokers still hold after all clients are gone."""
        for name in self._brokers:
            server = self._site.servers[name]
            if server.broker is not None and server.serves:
                for what, count in _counts(server.broker).items():
                    if count:
                        yield f"{name} has {count} {what}"


def _counts(broker: Broker) -> dict[str, int]:
    """The numbers of a broker's objects that only clients cause."""
    shared = broker.part(GrpcDoor)._shared
    if shared is None:
        return {}
    service = shared.service
    assert isinstance(service, RocketmqService)
    receives = service._receives
    return {
        "connections": len(shared.connections),
        "calls": shared.running,
        "waiting calls": shared.waiting,
        "clients": len(service._clients),
        "held receives": len(receives._waiting),
        "held pops": len(receives._pops._held),
        "deliveries of push consumers": len(receives._held),
        "messages in flight": len(broker.part(PopRevive).state.in_flight),
    }
