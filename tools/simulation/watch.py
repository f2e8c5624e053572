"""Looks at the brokers during the whole run, for states that must not occur even for a moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Self

from orbitmq.broker.broker import Broker
from orbitmq.broker.role import TAKES_MESSAGES, Role, RoleChanged
from orbitmq.testing.machine.virtual_loop import VirtualLoop, current_process
from tools.simulation.excuses import first
from tools.simulation.history import History, PlannedError, Takeover
from tools.simulation.plan import FORGETS, GROUPS, Kind, Plan, group_of
from tools.simulation.reign import Reign
from tools.simulation.site import Server, Site
from tools.simulation.traffic import LASTING, MOVED_GROUP, ORDERED_GROUP, PUSH_GROUP, QUEUES, REMADE

LOOK_S = 0.02
# Tables and buffers are inspected once per so many looks at the roles.
TABLES_EACH = 10
# Limits that no healthy run of this size comes near.
MOST_WAITING_ANSWERS = 500
MOST_ESCAPING = 300
MOST_STEPS_A_SECOND = 60_000
MOST_WARNINGS_A_SECOND = 100
MOST_WARNINGS = 1500
AMID_S, AMID_SLOW_S = 0.1, 5.0
# The longest delay of a disk's repair and of the restart of its broker.
REPAIRED_S = 1.0
# Broker group, topic@group, queue id.
Place = tuple[str, str, int]
# The services that one member of a group runs for the whole group.
SPECIAL = frozenset(
    {
        "delayed messages",
        "timer messages",
        "transactions",
        "open transactions of the master",
        "popped messages",
    }
)
COUNTS = frozenset({Role.MASTER, Role.FENCED, Role.ACTING_MASTER})
WATCHED_GROUPS = (PUSH_GROUP, ORDERED_GROUP, MOVED_GROUP)


class Watch:
    """The checkers that run during the run. Use it as an async context manager."""

    def __init__(self, site: Site, plan: Plan, history: History) -> None:
        self._site = site
        self._plan = plan
        self._history = history
        # How often each broker has set something aside, and the time of the last one.
        self._aside: dict[str, tuple[int, float]] = {}
        self._known: set[int] = set()
        self._highest: dict[Place, int] = {}
        # By broker group, topic and queue: the highest first offset of the queue at any broker.
        self._begins: dict[Place, int] = {}
        self._steps = (0, 0.0)
        self._task: asyncio.Task[None] | None = None
        self._looks = 0

    async def __aenter__(self) -> Watch:
        self._task = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            for group in GROUPS:
                serving = [one for one in self._site.brokers(group) if one.broker is not None and one.serves]
                for server in serving:
                    self._meet(server)
                    if self._looks % TABLES_EACH == 0:
                        self._look_at_offsets(server)
                        self._look_at_queues(group, server)
                        self._look_at_buffers(server)
                        self._look_at_what_is_aside(server)
                self._look_at_log_ends(group)
                if len(serving) > 1:
                    self._look_for_leaders(group, serving)
            self._look_at_steps()
            self._looks += 1
            await asyncio.sleep(LOOK_S)

    def _meet(self, server: Server) -> None:
        broker = server.broker
        if broker is None or id(broker) in self._known:
            return
        self._known.add(id(broker))
        self._took(server, broker, "", broker.services.role.role)
        broker.services.events.subscribe(RoleChanged, partial(self._changed, server, broker))
        services = broker.services
        reign = Reign(server.name, services.role, ORDERED_GROUP, self._history, services.store.max_offset)
        broker.services.feed.subscribe(reign.changed)

    def _changed(self, server: Server, broker: Broker, event: RoleChanged) -> None:
        self._took(server, broker, event.before.value, event.after)

    def _took(self, server: Server, broker: Broker, before: str, role: Role) -> None:
        history, name = self._history, server.name
        history.note(name, f"{before} becomes {role.value}" if before else f"is {role.value}")
        history.roles.append((history.now_s(), name, role))
        began = Takeover(history.now_s(), group_of(name), broker.services.store.max_commit_log_offset)
        if role is Role.ACTING_MASTER:
            history.takeovers.append(began)
        elif role in TAKES_MESSAGES:
            history.begins_shorter(began)

    def _look_at_log_ends(self, group: str) -> None:
        for server in self._site.brokers(group):
            # A frozen process counts, too, with what it stored before.
            if server.broker is not None and server.broker.running:
                self._history.log_grew(group, server.broker.services.store.max_commit_log_offset)

    def _look_for_leaders(self, group: str, serving: list[Server]) -> None:
        """Two brokers may both believe that they lead, as long as no special service runs on both."""
        leaders = [one for one in serving if one.broker is not None and one.broker.services.role.leads]
        if len(leaders) < 2:
            return
        work = {
            one.name: SPECIAL.intersection(one.broker.running) for one in leaders if one.broker is not None
        }
        if sum(map(bool, work.values())) > 1:
            text = " and ".join(f"{name} does {', '.join(sorted(parts))}" for name, parts in work.items())
            self._history.violate("special services on one member", text, once=group)

    def _look_at_offsets(self, server: Server) -> None:
        """Record the highest offsets at leading brokers, and all commits of the group that is moved back.

        A slave may have offsets that its master does not know. And after a fault two members may hold one
        queue of a push group for a while, with the last commit winning; therefore the offsets are judged at
        the end.
        """
        for place, offset in self._committed(server):
            if place[1].endswith(f"@{MOVED_GROUP}"):
                known = self._history.committed.setdefault(place, [])
                if not known or known[-1][1] != offset:
                    known.append((self._history.now_s(), offset))
                continue
            self._highest[place] = max(offset, self._highest.get(place, 0))

    def _look_at_queues(self, group: str, server: Server) -> None:
        """A queue may lose its end to a fault, but it never ends before its expired messages."""
        broker = server.broker
        if broker is None or broker.services.role.role not in COUNTS:
            return
        store = broker.services.store
        if not store.max_commit_log_offset:
            return  # a slave with a new disk that got no log acts with an empty one
        for topic, queue_id in ((topic, queue_id) for topic in LASTING for queue_id in range(QUEUES)):
            place = (group, topic, queue_id)
            begin, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            self._begins[place] = before = max(begin, self._begins.get(place, 0))
            if end < before:
                text = f"queue {queue_id} of {topic} ends at {end} at {server.name}, it began at {before}"
                self._history.violate("queues never begin again", text, once=str(place))

    def _committed(self, server: Server) -> Iterator[tuple[Place, int]]:
        broker = server.broker
        if broker is None or not server.serves or broker.services.role.role not in COUNTS:
            return
        for key, queues in broker.services.offsets.table().items():
            topic, _, consumers = key.rpartition("@")
            if consumers in WATCHED_GROUPS and topic != REMADE:
                for queue_id, offset in queues.items():
                    yield (group_of(server.name), key, queue_id), offset

    def offsets_behind(self) -> dict[Place, tuple[int, int]]:
        """The places at which masters have lower offsets than the highest one seen: the present and the
        highest offset.
        """
        now: dict[Place, int] = {}
        for group in GROUPS:
            now.update(self._committed(self._site.servers[group]))
        return behind(self._highest, now, self._end_of)

    def _end_of(self, place: Place) -> int:
        """The end of a queue at its master."""
        group, key, queue_id = place
        broker = self._site.servers[group].broker
        return 0 if broker is None else broker.services.store.max_offset(key.rpartition("@")[0], queue_id)

    def _look_at_what_is_aside(self, server: Server) -> None:
        """A slave sets a part of its log aside and cuts it off only once: its master's log grows, so the part
        does not come back.
        """
        folder, disk = f"/store/{server.name}/aside", server.machine.disk
        count = len(disk.list_dir(folder)) if disk.is_dir(folder) else 0
        before, at_s = self._aside.get(server.name, (0, 0.0))
        if count == before:
            return
        now = self._history.now_s()
        self._aside[server.name] = count, now
        master = group_of(server.name)
        cause = first(
            fault
            for fault in self._plan.faults
            if (
                fault.target == master and fault.kind in FORGETS and at_s <= fault.end_s and fault.at_s <= now
            )
            # The slave may have ended between setting aside and cutting off, which takes long on a slow disk.
            or (fault.target == server.name and abs(fault.at_s - at_s) <= self._cutting_s(server.name, at_s))
        )
        wrong = again(before, count)
        subject = server.name, count, now
        if not self._history.excuses.covers("set aside again", subject, cause, wrong=wrong) and wrong:
            text = f"{server.name} sets aside for the {count}. time what it had cut off at {at_s:.3f} s"
            self._history.violate("the slave's log is the master's", text)

    def _cutting_s(self, name: str, at_s: float) -> float:
        """The longest time between setting a part of the log aside and cutting it off."""
        slow = any(
            fault.kind is Kind.SLOW_DISK and fault.target == name and fault.at_s <= at_s <= fault.end_s
            for fault in self._plan.faults
        )
        return AMID_SLOW_S if slow else AMID_S

    def _look_at_buffers(self, server: Server) -> None:
        broker = server.broker
        assert broker is not None
        waiting = len(broker.services.durability)
        if waiting > MOST_WAITING_ANSWERS:
            text = f"{server.name}: {waiting} answers wait for durability"
            self._history.violate("everything is bounded", text, once=f"{server.name} answers")
        elsewhere: Any = broker.services.sink.elsewhere
        if elsewhere is not None and len(elsewhere) > MOST_ESCAPING:
            text = f"{server.name}: {len(elsewhere)} messages are on the way to other masters"
            self._history.violate("everything is bounded", text, once=f"{server.name} escape")

    def _look_at_steps(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        now = loop.time()
        if now - self._steps[1] < 1.0:
            return
        steps = loop.iterations - self._steps[0]
        if steps > MOST_STEPS_A_SECOND * (now - self._steps[1]) and self._steps[0]:
            text = f"{steps} steps of the event loop in {now - self._steps[1]:.2f} s: something turns idly"
            self._history.violate("everything is bounded", text, once="steps")
        self._steps = (loop.iterations, now)


def again(before: int, count: int) -> bool:
    """Whether a slave sets a part of its log aside once more; after the loss of its disk the number
    is lower.
    """
    return 0 < before < count


def behind(
    highest: Mapping[Place, int], now: Mapping[Place, int], end_of: Callable[[Place], int]
) -> dict[Place, tuple[int, int]]:
    """The places at which an offset is lower than the highest one seen: the present and the highest offset.

    A queue that lost its end to a fault, and got no message since, cannot have a higher commit; the check of
    the messages judges whether the loss is allowed.
    """
    return {
        place: (now.get(place, 0), before)
        for place, before in highest.items()
        if now.get(place, 0) < before and now.get(place, 0) < end_of(place)
    }


class LogLines(logging.Handler):
    """The log of servers and clients: warnings go to the trace, and crashes are violations.

    Attributes:
        deaf: whether log lines are ignored, at the end of the run.
    """

    def __init__(self, site: Site, plan: Plan, history: History) -> None:
        super().__init__(logging.WARNING)
        self._site = site
        self._history = history
        self._plan = plan
        self._count = 0
        self._kept: list[tuple[logging.Logger, int, bool]] = []
        self.deaf = False

    def __enter__(self) -> Self:
        for name in ("orbitmq", "asyncio"):
            logger = logging.getLogger(name)
            self._kept.append((logger, logger.level, logger.propagate))
            logger.addHandler(self)
            logger.setLevel(logging.WARNING)
            logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        for logger, level, propagate in self._kept:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate

    def emit(self, record: logging.LogRecord) -> None:
        if self.deaf:
            return
        process = current_process()
        who = "?" if process is None else self._site.names.get(process.name, process.name)
        text = record.getMessage()
        self._count += 1
        self._history.excuses.judged("disk error", self._count)
        if self._count == MOST_WARNINGS:
            self._history.violate("everything is bounded", f"{MOST_WARNINGS} warnings, the last: {text}")
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = f"{text}: {error!r}"
            if not isinstance(error, PlannedError) and not self._of_a_failing_disk(who, error):
                self._history.violate("nothing crashes", f"{who}: {text}{_place(error)}", once=text[:60])
        self._history.note(who, text)

    def _of_a_failing_disk(self, who: str, error: BaseException) -> bool:
        now_s = self._history.now_s()
        cause = first(
            fault
            for fault in self._plan.faults
            if fault.kind is Kind.FAIL_DISK
            and fault.target == who
            and fault.at_s <= now_s <= fault.end_s + REPAIRED_S
            and _of_the_disk(error)
        )
        return self._history.excuses.covers("disk error", self._count, cause)


def _of_the_disk(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) or "Store" in type(seen).__name__:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _place(error: BaseException) -> str:
    """The place at which an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f" ({code.co_filename.rpartition('/orbitmq/')[2]}:{trace.tb_lineno}, {code.co_name})"
