"""One run from beginning to end: start of all servers, load and faults, recovery, clean stops, judgement."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product, zip_longest
from math import inf
from typing import Any

from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import (
    DELAYS,
    ESCAPED_HALVES,
    FORBIDDEN,
    LOCKS,
    OFFSETS,
    POP_DELIVERIES,
    POP_ORDERS,
    POPS,
    QUEUE_ENDS,
    REQUEST_MODES,
    RESETS,
    TIMERS,
)
from orbitmq.broker.change_feed import GROUPS as GROUPS_TABLE
from orbitmq.broker.change_feed import TOPICS as TOPICS_TABLE
from orbitmq.broker.role import Role
from orbitmq.message.compression import decompress
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import iter_records
from orbitmq.message.reserved import dead_letter_topic, retry_topic
from orbitmq.message.sysflag import COMPRESSED, compression_of
from orbitmq.store import MessageStore
from orbitmq.testing.machine.simulated import seeded, simulated_runtime
from orbitmq.testing.machine.virtual_loop import SimulationStuckError, VirtualClock, VirtualLoop
from tools.simulation import checks, expiry
from tools.simulation.excuses import NO_FAULT, Count, first
from tools.simulation.faults import Faults
from tools.simulation.history import History, Line, Stored, Violation
from tools.simulation.kept import UNSYNCED_S
from tools.simulation.load import CONSUMERS, FILLED, PRODUCERS, Load
from tools.simulation.operator import Operator
from tools.simulation.plan import FORGETS, GROUPS, NAME_SERVERS, Plan, group_of
from tools.simulation.shadow import Difference, Shadow
from tools.simulation.site import Site
from tools.simulation.traffic import (
    MOVED_GROUP,
    PULLING_GROUPS,
    QUEUES,
    REMADE,
    SUBSCRIPTIONS,
    TOPICS,
)
from tools.simulation.watch import LogLines, Watch

START_LIMIT_S = 60.0
# Producers send at least this long, even if all faults are over earlier.
LEAST_LOAD_S = 8.0
# Producers continue for this long after the last fault, undisturbed.
CALM_S = 3.0
# Locks and invisible times of lost clients run out within this time.
DRAIN_LIMIT_S = 180.0
COMMIT_LIMIT_S = 30.0
TABLES_LIMIT_S = 10.0
SAME_TABLES = (
    TOPICS_TABLE,
    GROUPS_TABLE,
    FORBIDDEN,
    OFFSETS,
    RESETS,
    REQUEST_MODES,
    DELAYS,
    TIMERS,
    LOCKS,
    ESCAPED_HALVES,
    POPS,
    POP_DELIVERIES,
    POP_ORDERS,
    QUEUE_ENDS,
)
# The run does not wait for messages that the mode may lose, but they can arrive later: a transaction that is
# checked late.
MOST_DRAINS = 5
QUIET_S = 2.0
LOOK_S = 0.5
LINK_DELAY_S = (0.0001, 0.001)
# A hundred times the number of iterations of a run.
MOST_ITERATIONS = 20_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run.

    Attributes:
        lines: the trace: seconds since all brokers served, the actor, the event.
        virtual_s: the duration by the simulated clock.
        excuses: the checkers' excuses, by rule.
        differences: the differences between what brokers accepted and what stamps say, if these were
            compared.
    """

    plan: Plan
    violations: tuple[Violation, ...]
    lines: tuple[Line, ...]
    virtual_s: float
    sent: int
    acknowledged: int
    delivered: int
    excuses: dict[str, Count]
    differences: tuple[Difference, ...] = ()


def simulate(plan: Plan, *, shadow: bool = False) -> Outcome:
    """Run a plan; the same plan gives the same outcome.

    Args:
        shadow: whether to compare what brokers accept with stamps.
    """
    loop = VirtualLoop(VirtualClock(), plan.seed, max_iterations=MOST_ITERATIONS)
    history = History(loop.clock)
    run = _Run(plan, history, shadow=shadow)
    try:
        with collected_at_the_end():
            loop.run_until_complete(run.run())
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
        history.excuses.counts(),
        run.differences,
    )


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """Delay garbage collection to the end of the run: a program that lives for a second needs no earlier one.

    This way the errors that a collection reports appear at the same moment in each run of a seed: at its end.
    """
    was_enabled = gc.isenabled()
    # The previous run becomes garbage only now: if it were frozen uncollected, many seeds would fill the
    # memory.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


class _Run:
    def __init__(self, plan: Plan, history: History, *, shadow: bool) -> None:
        self._plan = plan
        self._shadow = shadow
        self._brokers = plan.mode.brokers
        self._history = history
        self._judged: tuple[int, ...] = ()
        # Records read while the run waited for its end: masters' queues only grow in that time.
        self._read: dict[tuple[Broker, str, int], list[Stored]] = {}

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The differences between what brokers accepted and what stamps say."""
        shadow = self._site.shadow
        return () if shadow is None else shadow.differences

    async def run(self) -> None:
        plan, history = self._plan, self._history
        runtime = simulated_runtime(plan.seed)
        self._site = site = Site(runtime, plan.mode, history)
        site.slow_network(*LINK_DELAY_S)
        if self._shadow:
            site.shadow = Shadow(plan.seed, site.names)
        load = Load(site, history, seeded(3 * plan.seed + 1), plan.mode, moved_pops=plan.seed % 2 == 1)
        faults = Faults(plan, site, load, history, seeded(3 * plan.seed + 2))
        self._operator = Operator(site, history, seeded(5 * plan.seed + 3), plan.mode)
        with LogLines(site, plan, history) as log:
            try:
                async with Watch(site, plan, history) as self._watch:
                    await self._play(load, faults)
                # Collect now: the errors that asyncio reports for unawaited futures count.
                gc.collect()
            finally:
                log.deaf = True
                await site.close()
                # Collect again, so that errors of unawaited futures are not reported in the next run.
                gc.collect()
        checks.judge(plan, history)

    async def _play(self, load: Load, faults: Faults) -> None:
        site, history = self._site, self._history
        for name in site.servers:
            site.begin(name)
        if not await self._until(self._in_place, START_LIMIT_S):
            text = f"not in place after {START_LIMIT_S:g} s: {self._roles()}"
            history.violate("everything recovers", text)
            return
        await self._create_topics()
        history.begin()
        history.note("RUN", f"all serve: {self._plan.mode}")
        least_load_s = LEAST_LOAD_S
        if self._plan.mode.expires:
            load.fill()
            least_load_s = expiry.LEAST_LOAD_S
        for name in (*CONSUMERS, PRODUCERS):
            load.begin(name)
        self._operator.begin()
        await asyncio.gather(faults.run(), site.clock.sleep(least_load_s))
        await self._operator.stop()
        load.calm()
        await site.clock.sleep(CALM_S)
        await load.stop()
        history.note("RUN", "producers send no more")
        await self._recover()
        history.note("RUN", "all is quiet")
        self._take_stock()
        await self._stop_all(load)

    async def _create_topics(self) -> None:
        machine = self._site.machines[PRODUCERS]

        async def create() -> None:
            async with Admin(self._site.name_servers, runtime=machine.runtime) as admin:
                for topic in TOPICS:
                    await admin.topics.create(topic, queues=QUEUES)

        await machine.begin(create())

    # -- recovery ------------------------------------------------------------------------------

    async def _until(self, reached: Callable[[], bool], limit_s: float) -> bool:
        clock = self._site.clock
        deadline = clock.monotonic() + limit_s
        while not reached():
            if clock.monotonic() >= deadline:
                return False
            await clock.sleep(LOOK_S)
        return True

    def _roles(self) -> str:
        return ", ".join(
            f"{name} {getattr(self._site.servers[name].role, 'value', 'down')}" for name in self._brokers
        )

    def _in_place(self) -> bool:
        roles = [self._site.servers[name].role for name in self._brokers]
        return roles == [Role.MASTER if name in GROUPS else Role.SLAVE for name in self._brokers]

    async def _recover(self) -> None:
        """Wait until all servers serve as in the beginning, and consumers have everything."""
        if not await self._until(lambda: self._in_place() and self._same_logs(), DRAIN_LIMIT_S):
            ends = ", ".join(f"{n} {self._end_of(n)}" for n in self._brokers)
            text = f"after {DRAIN_LIMIT_S:g} s without faults: {self._roles()}; logs end at {ends}"
            self._history.violate("everything recovers", text)
            return
        await self._operator.give_back()
        for _ in range(MOST_DRAINS):
            await self._until(self._all_have_all, DRAIN_LIMIT_S)
            handled = self._handled()
            await self._site.clock.sleep(QUIET_S)
            if self._handled() == handled:
                break
        else:
            text = f"messages are still handled after everybody had everything {MOST_DRAINS} times"
            self._history.violate("everything is bounded", text)
        await self._until(lambda: not self._watch.offsets_behind(), COMMIT_LIMIT_S)
        for place, (now, before) in self._watch.offsets_behind().items():
            text = f"{place[1]} at queue {place[2]} of {place[0]} is at {now}, it was at {before}"
            self._history.violate("offsets never go back", text)
        if not await self._until(self._same_logs, START_LIMIT_S):
            self._history.violate("the slave's log is the master's", "the logs of a group do not become one")
            return
        for group in GROUPS:
            master = self._store(group)
            for name in self._plan.mode.slaves(group):
                slave = self._store(name)
                if master is not None and slave is not None:
                    self._compare(group, name, master, slave)
        await self._until(lambda: not any(map(self._different, GROUPS)), TABLES_LIMIT_S)
        for group in GROUPS:
            for text in self._different(group):
                self._history.violate("the slave's tables are the master's", text)

    def _broker(self, name: str) -> Broker | None:
        server = self._site.servers[name]
        return server.broker if server.serves else None

    def _store(self, name: str) -> MessageStore | None:
        broker = self._broker(name)
        return None if broker is None else broker.services.store

    def _end_of(self, name: str) -> int:
        store = self._store(name)
        return -1 if store is None else store.max_commit_log_offset

    def _begin_of(self, name: str) -> int:
        store = self._store(name)
        return -1 if store is None else store.min_commit_log_offset

    def _same_logs(self) -> bool:
        for group in GROUPS:
            ends = {self._end_of(server.name) for server in self._site.brokers(group)}
            if len(ends) > 1 or min(ends) < 0:
                return False
        return True

    def _compare(self, group: str, name: str, master: MessageStore, slave: MessageStore) -> None:
        begin = max(master.min_commit_log_offset, slave.min_commit_log_offset)
        one, other = (_log_of(store, begin) for store in (master, slave))
        if one != other:
            at = begin + next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            text = f"the logs of {group} are of one length and differ at {at}"
            self._history.violate("the slave's log is the master's", text)
        letters = map(dead_letter_topic, SUBSCRIPTIONS)
        for topic in (*TOPICS, *map(retry_topic, PULLING_GROUPS), *letters):
            ends, others = (_ends_of(store, topic) for store in (master, slave))
            # A queue that a topic got recently, and that is still empty, may be unknown to one of them.
            wrong = any(end != other for end, other in zip_longest(ends, others, fillvalue=0))
            cause = self._old_messages(group) if topic == REMADE else ""
            subject = name, topic
            if not self._history.excuses.covers("deletion undone", subject, cause, wrong=wrong) and wrong:
                text = f"the queues of {topic} end at {ends} at {group}, at {others} at its slave"
                self._history.violate("the slave's log is the master's", text)

    def _old_messages(self, group: str) -> str:
        """Why queues of a broker may have messages of a deleted topic.

        A log that was copied back, or was read again after the disk refused a deletion, contains such
        messages.
        """
        return first(
            fault
            for fault in self._plan.faults
            if fault.kind in FORGETS
            and group_of(fault.target) == group
            and fault.end_s >= self._history.deletes_s - UNSYNCED_S
        )

    def _different(self, group: str) -> list[str]:
        """Differences between a master and its slaves, at most one line for each table of a slave."""
        master, texts = self._broker(group), list[str]()
        covers = self._history.excuses.covers
        acted = self._history.acted(group, -inf, inf)
        for name, table in product(self._plan.mode.slaves(group), SAME_TABLES):
            slave = self._broker(name)
            if master is None or slave is None:
                continue
            one, other = (_content(broker, table) for broker in (master, slave))
            if table == QUEUE_ENDS:
                # Each broker cleans at its own time: a queue that is empty at one broker may have messages at
                # another.
                one, other = (_ends(broker, one, other) for broker in (master, slave))
            for key in sorted(one.keys() | other.keys()):
                if table == POPS and not one.get(key) and not other.get(key):
                    continue  # nothing was given out yet: both stand for 0
                wrong, subject = one.get(key) != other.get(key), (name, table, key)
                ahead = table == OFFSETS and one.get(key, -1) < other.get(key, -1) and name in acted
                # A client that still had the address of a slave that had acted may have committed there.
                if covers("slave ahead", subject, "takeover" if ahead else "", wrong=wrong):
                    continue
                level = table == DELAYS and key not in one and self._plan.mode.changes
                # A delay level that exists only in the slave's settings.
                if covers("level of a slave", subject, NO_FAULT if level else "", wrong=wrong):
                    continue
                if wrong:
                    texts.append(f"{table} of {group}: {key} is {one.get(key)}, at a slave {other.get(key)}")
                    break
        return texts

    def _all_have_all(self) -> bool:
        history = self._history
        # Usually nothing was stored, handled or expired since the last look; then the answer is still no.
        state = (*self._handled(), *map(self._end_of, GROUPS), *map(self._begin_of, GROUPS))
        if state == self._judged:
            return False
        self._judged = state
        self._note_stock()
        stored = {record.body for records in history.stored.values() for record in records}
        for sent in checks.expected(history):
            if sent.body not in stored and not checks.may_be_gone(self._plan, history, sent):
                return False
        return not any(checks.not_handled(self._plan, history))

    def _handled(self) -> tuple[int, ...]:
        history = self._history
        return (len(history.delivered), *map(len, history.by_group.values()))

    def _take_stock(self) -> None:
        """Record what consumers can read at the masters, reading everything again."""
        self._read.clear()
        self._note_stock()
        for name in GROUPS:
            if (broker := self._broker(name)) is not None:
                config = broker.services.groups.find(MOVED_GROUP)
                self._history.settings[name] = 0 if config is None else config.consume_timeout_minute

    def _note_stock(self) -> None:
        for topic in TOPICS:
            self._history.stored[topic] = self._records(topic)
        for consumers in PULLING_GROUPS:
            self._history.retried[consumers] = self._records(retry_topic(consumers))
        for consumers in SUBSCRIPTIONS:
            letters = self._records(dead_letter_topic(consumers))
            # Dead letters expire, too, but still count as dead.
            self._history.dead.setdefault(consumers, set()).update(letter.body for letter in letters)

    def _records(self, topic: str) -> list[Stored]:
        found: list[Stored] = []
        for group in GROUPS:
            broker = self._broker(group)
            queues = None if broker is None else broker.services.store.find_topic(topic)
            if broker is None or queues is None:
                continue
            for queue_id in range(len(queues.slots)):
                known = self._read.setdefault((broker, topic, queue_id), [])
                _read_on(self._history, broker.services.store, group, topic, queue_id, known)
                found += known
        return found

    async def _stop_all(self, load: Load) -> None:
        for name in (*CONSUMERS, PRODUCERS):
            await load.leave(name)
        for name in (*reversed(self._brokers), *NAME_SERVERS[: self._plan.mode.name_servers]):
            await self._site.stop(name)


def _log_of(store: MessageStore, begin: int) -> bytes:
    data, at = b"", begin
    while piece := store.raw.data(at, 1 << 30):
        data += piece
        at += len(piece)
    return data


def _ends(broker: Broker, *quiet: dict[str, Any]) -> dict[str, Any]:
    """The next offsets, at one broker, of queues that are empty at this or the other broker."""
    store = broker.services.store
    queues = sorted({(topic, queue_id) for ends in quiet for topic in ends for queue_id, _ in ends[topic]})
    return {f"{topic} {queue_id}": store.max_offset(topic, queue_id) for topic, queue_id in queues}


def _content(broker: Broker, table: str) -> dict[str, Any]:
    fed = broker.services.feed.tables()[table]
    if fed.items is None:
        return {}
    return {key: _in_common(table, fed.plain(value)) for key, value in fed.items()}


def _in_common(table: str, value: Any) -> Any:
    """The part of a value on which two brokers have to agree."""
    if table == LOCKS:
        return value[0]  # without the remaining time of a lock, which each broker counts by its own clock
    if table == TIMERS:
        # The place up to which all timers are delivered. A clock that was set back splits it.
        marks = [value["done"], *((due_ms, place) for _, due_ms, place in value["ahead"])]
        return value["taken"], max(map(tuple, marks)), value.get("alone")
    return value


def _ends_of(store: MessageStore, topic: str) -> list[int]:
    queues = store.find_topic(topic)
    return [store.max_offset(topic, queue_id) for queue_id in range(len(queues.slots) if queues else 0)]


def _read_on(
    history: History, store: MessageStore, group: str, topic: str, queue_id: int, known: list[Stored]
) -> None:
    """Read the records of a queue after the known ones, and forget the expired ones."""
    begin = store.min_offset(topic, queue_id)
    if known and known[0].offset < begin:
        known[:] = [each for each in known if each.offset >= begin]
    at = max(known[-1].offset + 1 if known else 0, begin)
    while records := list(iter_records(store.get(topic, queue_id, at, 1000).body)):
        for record in records:
            plain = record.body
            if record.sys_flag & COMPRESSED:
                plain = decompress(plain, compression_of(record.sys_flag))
            body = bytes(plain).partition(FILLED)[0]
            history.compare(body, plain, decode_properties(record.properties), f"in {topic} of {group}")
            known.append(Stored(body, group, topic, queue_id, record.queue_offset, record.physical_offset))
        at = records[-1].queue_offset + 1
