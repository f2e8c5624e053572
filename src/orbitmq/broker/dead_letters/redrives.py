"""Sends dead letters again: one job for a group at a time, kept in ``config/redrives.json``.

The log shows which messages a job has sent: each message carries the place of its dead letter. The table
holds a place in the log, saved when everything before it was safe. A job that begins anew, after a crash or
at another broker, reads the log from there and sends nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orbitmq.broker import names
from orbitmq.broker.change_feed import REDRIVES, ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.dead_letters.forms import Ranges, ranges_fault
from orbitmq.broker.dead_letters.job import QUEUE, Job, Tools
from orbitmq.broker.events import Events, TopicChanged
from orbitmq.broker.messaging.filters import Filters
from orbitmq.broker.metadata.pretty import body_text, file_text, quoted
from orbitmq.broker.role import Role
from orbitmq.errors import OrbitError
from orbitmq.message.reserved import DLQ_PREFIX, SQL92, dead_letter_topic
from orbitmq.store import PASS_ALL, MessageFilter, StoreClosedError
from orbitmq.wire.bodies.redrive import Redrive, RedriveAction, RedriveRequest, RedriveState
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

DRY_RUN_S = 3.0
WRITTEN_S = 3.0  # how long an answer waits for a job to save its end
_LIMITS = (("rate", 1, 1_000_000), ("limit", 1, 2**62), ("max_redrives", 1, 1_000_000))
_OPEN = (RedriveState.RUNNING, RedriveState.PAUSED)


class Redrives(Component):
    """The jobs of this broker, at work while it is a master.

    Args:
        written: returns when the changes of a table are on the device.
    """

    name = "redrives"
    runs_as = frozenset({Role.MASTER})

    def __init__(
        self,
        tools: Tools,
        filters: Filters,
        feed: ChangeFeed,
        events: Events,
        written: Callable[[str], Awaitable[object]],
        broker_name: str,
    ) -> None:
        self._tools = tools
        self._written = written
        self._filters = filters
        self._feed = feed
        self._broker_name = broker_name
        self._jobs: dict[str, Job] = {}
        # The content of the table's file: copies, so that no file has half of a step.
        self._saved: dict[str, Redrive] = {}
        self._started = False
        events.subscribe(TopicChanged, self._topic_changed)
        feed.register(
            REDRIVES,
            FedTable(
                Redrive.to_plain,
                self._apply,
                items=lambda: list(self._saved.items()),
                # Only a master redrives, so its own state of a group's job is the newest.
                is_news=lambda group, _: group not in self._jobs,
            ),
        )

    # -- requests of administrators --------------------------------------------------------------------

    async def begin(self, request: RedriveRequest) -> Redrive:
        """Start a job, or only count its messages. Dead letters that were sent again before are passed over.

        Raises:
            RemotingError: TOPIC_NOT_EXIST, the group has no dead letters here, or ``to_topic`` is not there;
                INVALID_PARAMETER, a field's value is wrong; SUBSCRIPTION_PARSE_FAILED, a broken expression;
                ILLEGAL_OPERATION, a job of the group runs; SERVICE_NOT_AVAILABLE, this broker is no master.
        """
        before = self._jobs.get(request.group)
        if before is not None and before.facts.state not in _OPEN:
            # The job has ended but may still be saving its end. Another job may have begun meanwhile.
            await before.written(WRITTEN_S)
            before = self._jobs.get(request.group)
        if before is not None and not request.dry_run and (before.facts.state in _OPEN or before.at_work):
            raise RemotingError(
                ResponseCode.ILLEGAL_OPERATION,
                f"a redrive of group {request.group} is {before.facts.state.value.lower()} with "
                f"{before.facts.sent} sent: stop it first",
            )
        facts = self._checked(request)
        job = Job(self._tools, facts, self._save, search=False)
        if request.dry_run:
            await job.count(self._filter(request), DRY_RUN_S)
            return job.facts
        self._jobs[request.group] = job
        await job.save()
        # Save the job first, so that it survives a crash.
        try:
            await self._written(REDRIVES)
        except RemotingError:
            facts.state = RedriveState.FAILED
            self._save(job.copy())  # the job was refused, but the disk may get it later
            raise
        if self._jobs.get(request.group) is not job:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker lost its role, or the dead letters, meanwhile",
            )
        self._work_on(job)
        return job.copy()

    def all(self) -> list[Redrive]:
        """The last job of each group."""
        jobs = [self._jobs[group].copy() for group in sorted(self._jobs)]
        if self._tools.role.role not in self.runs_as:
            for job in jobs:
                if job.state is RedriveState.RUNNING:
                    job.problem = f"it waits: this broker is {self._tools.role.role.value}"
        return jobs

    async def change(self, group: str, action: RedriveAction) -> Redrive:
        """Pause, resume or stop a group's job.

        Raises:
            RemotingError: QUERY_NOT_FOUND, the group has no job; ILLEGAL_OPERATION, the job has ended;
                SERVICE_NOT_AVAILABLE, this broker is no master.
        """
        self._check_role()
        job = self._jobs.get(group)
        if job is None:
            raise RemotingError(ResponseCode.QUERY_NOT_FOUND, f"there is no redrive of group {group}")
        facts = job.facts
        if facts.state not in _OPEN:
            raise RemotingError(
                ResponseCode.ILLEGAL_OPERATION, f"the redrive of group {group} is {facts.state.value.lower()}"
            )
        if action is RedriveAction.RESUME:
            facts.state = RedriveState.RUNNING
            self._work_on(job)
        else:
            paused = action is RedriveAction.PAUSE
            facts.state = RedriveState.PAUSED if paused else RedriveState.STOPPED
            facts.ended_ms = 0 if paused else self._tools.clock.now_ms()
            # The job saves its new state itself when it has found out what it sent, which may take a search
            # of the log.
            self._work_on(job)
            await job.written(WRITTEN_S)
        await self._written(REDRIVES)
        return job.copy()

    def _check_role(self) -> None:
        role = self._tools.role.role
        if role is not Role.MASTER:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"a broker that is {role.value} sends nothing again"
            )

    def _checked(self, request: RedriveRequest) -> Redrive:
        store = self._tools.store
        self._check_role()
        names.check_group(request.group)
        for field, lowest, highest in _LIMITS:
            value = getattr(request, field)
            if value is not None and not lowest <= value <= highest:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER, f"{field} is {value}, expected {lowest} to {highest}"
                )
        if request.only is not None and (fault := ranges_fault(request.only)):
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"only {fault}")
        dead = dead_letter_topic(request.group)
        low, high = store.min_offset(dead, QUEUE), store.max_offset(dead, QUEUE)
        if low >= high:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST, f"group {request.group} has no dead letters at this broker"
            )
        if request.to_topic is not None and self._tools.writable(request.to_topic) is None:
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {request.to_topic} is not there, or takes no messages"
            )
        self._filter(request)
        before = self._jobs.get(request.group)
        done = Ranges(before.done.plain() if before is not None else ())
        done.drop_below(low)
        begin, end = request.begin_ms, request.end_ms
        return Redrive(
            request=replace(request),
            broker_name=self._broker_name,
            started_ms=self._tools.clock.now_ms(),
            position=low if begin is None else store.offset_by_time(dead, QUEUE, begin),
            end=high if end is None else min(high, store.offset_by_time(dead, QUEUE, end)),
            done=done.plain(),
        )

    def _filter(self, request: RedriveRequest) -> MessageFilter:
        if request.sql is None:
            return PASS_ALL
        return self._filters.of_expression(dead_letter_topic(request.group), request.sql, SQL92)

    # -- work ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Resume the jobs that an earlier run, or the previous master, has left."""
        self._started = True
        for group, job in list(self._jobs.items()):
            if dead_letter_topic(group) in self._tools.topics:
                if job.facts.state is RedriveState.RUNNING:
                    self._work_on(job)
            else:
                self._forget(group)

    async def end_work(self) -> None:
        await super().end_work()
        for group, facts in self._saved.items():
            # Dead letters that were sent after the last save are found in the log.
            self._jobs[group] = Job(self._tools, facts, self._save, search=True)

    def _topic_changed(self, event: TopicChanged) -> None:
        if self._started and event.config is None and event.topic.startswith(DLQ_PREFIX):
            self._forget(event.topic.removeprefix(DLQ_PREFIX))

    def _forget(self, group: str) -> None:
        """Forget a job whose dead letters are gone: later dead letters get the same offsets."""
        job = self._jobs.pop(group, None)
        if job is None:
            return
        if job.task is not None:
            job.task.cancel()
        self._saved.pop(group, None)
        self._feed.changed(REDRIVES, group, None)

    def _work_on(self, job: Job) -> None:
        if not job.at_work:
            job.task = self._spawn(self._run(job), f"redrive of {job.group}")

    async def _run(self, job: Job) -> None:
        facts = job.facts
        try:
            await job.run(self._filter(facts.request))
        except StoreClosedError as error:
            log.info("redrive of group %s goes on with the next start: %s", job.group, error)
        except OrbitError as error:
            log.warning("redrive of group %s failed: %s", job.group, error)
            facts.state = RedriveState.FAILED
            facts.problem = error.remark if isinstance(error, RemotingError) else str(error)
            facts.ended_ms = self._tools.clock.now_ms()
            await job.save()
        else:
            log.info("redrive of group %s: %s, %d sent", job.group, facts.state.value.lower(), facts.sent)

    # -- the table -------------------------------------------------------------------------------------

    def _save(self, facts: Redrive) -> None:
        self._saved[facts.request.group] = facts
        self._feed.changed(REDRIVES, facts.request.group, facts)

    def _apply(self, group: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._forget(group)
            return
        facts = Redrive.from_json(value)
        self._jobs[group] = Job(self._tools, facts, self._save, search=True)
        self._save(replace(facts))

    def tables(self) -> Sequence[Table]:
        return (Table(REDRIVES, self),)

    def file_text(self) -> Iterator[str]:
        """``redrives.json``, piece by piece."""
        entries = [
            (quoted(group), body_text(facts, "\n\t\t")) for group, facts in sorted(self._saved.items())
        ]
        return file_text([("redrives", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``redrives.json``."""
        for group, plain in (content.get("redrives") or {}).items():
            self._saved[group] = Redrive.from_json(plain)
            facts = Redrive.from_json(plain)
            self._jobs[group] = Job(self._tools, facts, self._save, search=True)
