"""Observes the cluster continuously: the route of a group, and the brokers that do the background work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.faults.place import Place

from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import OrbitError
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

ROUTE_EVERY_S = 0.02
LOOK_EVERY_S = 0.1
ANSWER_MS = 500
WRITE = 2

Tell = Callable[[str, str], None]


class Watch:
    """Reports each change: ``route``, "a0 a1 writable"; ``leads``, "a1 leads"."""

    def __init__(self, place: Place, topic: str, tell: Tell) -> None:
        self._place = place
        self._topic = topic
        self._tell = tell
        self._names = {str(seat.announced): seat.name for seat in place.seats.values()}
        self._tasks: list[asyncio.Task[None]] = []
        self.route = ""
        self.leads: dict[str, bool] = {}

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._watch_route()))
        self._tasks += [asyncio.create_task(self._watch_broker(name)) for name in self._place.seats]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_route(self) -> None:
        while True:
            seen = await self._route()
            if seen is not None and seen != self.route:
                self.route = seen
                self._tell("route", seen)
            await asyncio.sleep(ROUTE_EVERY_S)

    async def _route(self) -> str | None:
        servers = NameServers(self._place.client, (self._place.sound_name_server,))
        try:
            route = await servers.topic_route(self._topic, ANSWER_MS)
        except OrbitError:
            return None
        if route is None:
            return "nothing"
        for queues in route.queue_datas:
            if queues.broker_name == "broker-a":
                found = next(data for data in route.broker_datas if data.broker_name == "broker-a")
                names = sorted(self._names.get(at, at) for at in found.broker_addrs.values())
                return " ".join([*names, "writable" if queues.perm & WRITE else "read-only"])
        return "nothing"

    async def _watch_broker(self, name: str) -> None:
        address = str(self._place.seats[name].bound)
        while True:
            started = time.monotonic()
            leads = False
            try:
                answer = await self._place.client.request(
                    address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), ANSWER_MS
                )
                leads = KVTable.decode(answer.body).table.get("brokerActive") == "true"
            except OrbitError:
                pass  # without an answer the broker does not count as leading
            if leads != self.leads.get(name, False):
                self.leads[name] = leads
                self._tell("leads", f"{name} {'leads' if leads else 'does not lead'}")
            await asyncio.sleep(max(0.0, started + LOOK_EVERY_S - time.monotonic()))
