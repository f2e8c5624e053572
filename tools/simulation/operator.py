"""An operator's actions during a run: moves a consumer group back, changes its settings, deletes and creates
a topic, removes and restores permissions.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from orbitmq.admin import Admin, GroupSettings
from orbitmq.durations import instant
from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import PERM_READ, PERM_WRITE
from tools.simulation.history import Changed, History, Moved, Remade, Withheld
from tools.simulation.plan import GROUPS, LOAD_S, OPERATOR, Mode
from tools.simulation.site import Site
from tools.simulation.traffic import LATER, MOVED_GROUP, ORDERED, PLAIN, QUEUES, REMADE, TRADES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from orbitmq.admin import Move

PAUSE_S = (0.5, 3.0)
# How far back a group is moved: messages, and seconds.
MOST_BACK, MOST_BACK_S = 12, 4.0
MOST_QUEUES = 4
# Settings change once every so many rounds.
CHANGES_EACH = 3
TIMEOUT_S = 2.0
PERMITTED = (ORDERED, LATER, TRADES)
PERMITS_EACH_S, PERMITS_FOR_S = (1.0, 6.0), (0.1, 3.0)
# This long after the producers were stopped, none of them waits for an answer.
STOPPED_S = 2.5
AGAIN_S, MOST_TRIES = 1.0, 200


class Operator:
    """The operator, on a machine of its own, which no fault hits.

    A topic gets more queues, unless messages expire: consumers notice new queues up to 30 s later.
    """

    def __init__(self, site: Site, history: History, dice: Random, mode: Mode) -> None:
        self._site = site
        self._history = history
        self._dice = dice
        self._queues = MOST_QUEUES if mode.expires else QUEUES
        self._absent = mode.absent
        self._permits = mode.permits
        self._stopped = False
        self._work: list[asyncio.Task[None]] = []
        self._value = 15  # minutes, RocketMQ's default

    def begin(self) -> None:
        """Start the work, when all servers serve."""
        machine = self._site.machines[OPERATOR]
        work = {MOVED_GROUP: self._run, REMADE: self._remake}
        self._work = [machine.begin(each()) for about, each in work.items() if about not in self._absent]
        if self._permits:
            self._work.append(machine.begin(self._permit()))

    async def stop(self) -> None:
        """Stop all changes; returns when the requests in flight are answered."""
        self._stopped = True
        await asyncio.gather(*self._work)

    def _admin(self) -> Admin:
        runtime = self._site.machines[OPERATOR].runtime
        return Admin(self._site.name_servers, runtime=runtime, timeout=TIMEOUT_S)

    async def _run(self) -> None:
        async with self._admin() as admin:
            for turn in count():
                await self._site.clock.sleep(self._dice.uniform(*PAUSE_S))
                if self._stopped:
                    return
                try:
                    await (self._move(admin) if turn % CHANGES_EACH else self._change(admin))
                except OrbitError as error:
                    self._history.note(OPERATOR, str(error).splitlines()[0][:160])

    async def _move(self, admin: Admin) -> None:
        for move in await self._moves(admin):
            if move.before is None or move.to >= move.before:
                continue  # a group never handles messages that it skips
            moved = Moved(self._history.now_s(), move.queue, move.to)
            self._history.moves.append(moved)
            self._history.note(
                OPERATOR, f"moves {MOVED_GROUP} at {move.queue} from {move.before} to {move.to}"
            )
            await admin.groups.move(MOVED_GROUP, [move])
            moved.done_s = self._history.now_s()

    async def _moves(self, admin: Admin) -> Sequence[Move]:
        groups, kind = admin.groups, self._dice.randrange(3)
        if kind == 0:
            return (await groups.plan_to_first(MOVED_GROUP, PLAIN)).whole()
        if kind == 1:
            now_ms = self._site.machines[OPERATOR].runtime.clock.now_ms()
            time_ms = now_ms - round(self._dice.uniform(0.5, MOST_BACK_S) * 1000)
            return (await groups.plan_to_time(MOVED_GROUP, PLAIN, instant(time_ms))).whole()
        targets: dict[MessageQueue, int] = {}
        for move in (await groups.plan_to_first(MOVED_GROUP, PLAIN)).whole():
            if move.before is not None and self._dice.random() < 0.5:
                targets[move.queue] = max(move.to, move.before - self._dice.randint(1, MOST_BACK))
        return (await groups.plan(MOVED_GROUP, targets)).whole()

    async def _change(self, admin: Admin) -> None:
        """Change settings, whose values only grow."""
        if self._queues < MOST_QUEUES and self._dice.random() < 0.3:
            await admin.topics.create(PLAIN, queues=self._queues + 1)
            self._queues += 1
            self._history.note(OPERATOR, f"topic {PLAIN} has {self._queues} queues")
        self._value += 1
        changed = Changed(self._history.now_s(), self._value)
        self._history.changes.append(changed)
        settings = GroupSettings(consume_timeout=60 * self._value)
        changed.brokers = list(await admin.groups.create(MOVED_GROUP, settings))
        changed.done_s = self._history.now_s()

    async def _permit(self) -> None:
        """Remove a permission from a topic, and restore it."""
        async with self._admin() as admin:
            while not self._stopped:
                await self._site.clock.sleep(self._dice.uniform(*PERMITS_EACH_S))
                topic, perm = self._dice.choice(PERMITTED), self._dice.choice((PERM_READ, PERM_WRITE))
                self._history.note(OPERATOR, f"topic {topic} has permission {perm}")
                await self._until_all(partial(admin.topics.create, topic, queues=QUEUES, perm=perm))
                await self._site.clock.sleep(self._dice.uniform(*PERMITS_FOR_S))
                await self._until_all(partial(admin.topics.create, topic, queues=QUEUES))
                self._given(topic)

    def _given(self, topic: str) -> None:
        self._history.given[topic] = self._history.now_s()
        self._history.note(OPERATOR, f"topic {topic} has all its permissions")

    async def give_back(self) -> None:
        """When all masters lead again: record permissions that a broker has forgotten, and restore them once
        more.

        Otherwise no client could read the topic, or send to it.
        """
        history, forgotten = self._history, dict[str, None]()
        for group in GROUPS:
            broker = self._site.servers[group].broker
            if broker is None:
                continue
            for topic, given_s in history.given.items():
                config = broker.services.topics.get(topic)
                perm = 0 if config is None else config.perm
                if perm != PERM_READ | PERM_WRITE:
                    history.withheld.append(Withheld(history.now_s(), given_s, group, topic, perm))
                    forgotten[topic] = None
        if forgotten:
            await self._site.machines[OPERATOR].begin(self._give(*forgotten))

    async def _give(self, *topics: str) -> None:
        async with self._admin() as admin:
            for topic in topics:
                await self._until_all(partial(admin.topics.create, topic, queues=QUEUES))
                self._given(topic)

    async def _remake(self) -> None:
        """Delete a topic whose producers were stopped, create it again, and let the producers continue."""
        history, clock = self._history, self._site.clock
        await clock.sleep(self._dice.uniform(0.0, LOAD_S))
        remade = Remade(history.now_s())
        history.remade.append(remade)
        await clock.sleep(STOPPED_S)
        remade.at_s = history.now_s()
        async with self._admin() as admin:
            await self._until_all(lambda: admin.topics.delete(REMADE))
            remade.deleted_s = history.now_s()
            history.note(OPERATOR, f"topic {REMADE} is deleted")
            await clock.sleep(self._dice.choice((0.0, 0.1, 3.0)))
            queues = self._dice.randint(1, MOST_QUEUES)
            await self._until_all(lambda: admin.topics.create(REMADE, queues=queues))
        remade.made_s = history.now_s()
        history.note(OPERATOR, f"topic {REMADE} is made again")

    async def _until_all(self, ask: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Repeat a request until the masters of all groups have answered it without a refusal."""
        for _ in range(MOST_TRIES):
            try:
                if set(await ask()) == set(GROUPS):
                    return
            except OrbitError as error:
                self._history.note(OPERATOR, str(error).splitlines()[0][:160])
            await self._site.clock.sleep(AGAIN_S)
        self._history.violate("everything recovers", f"an operator is not heard after {MOST_TRIES} tries")
