"""Counting dead letters, and sending them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from orbitmq.admin.answers import Answers, LeftOut, Partial, lacking
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import NOT_DONE, ClusterClient, no_master, side_by_side
from orbitmq.admin.model import BrokerInfo
from orbitmq.durations import instant, instant_ms
from orbitmq.errors import BrokerError
from orbitmq.message.reserved import DLQ_PREFIX, dead_letter_topic
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.redrive import Redrive, RedriveAction, RedriveRequest
from orbitmq.wire.bodies.redrive import RedriveState as State
from orbitmq.wire.bodies.stats import TopicOffset, TopicStatsTable
from orbitmq.wire.bodies.topic import TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.refusals import is_not_offered

if TYPE_CHECKING:
    from datetime import datetime

_Ends = Sequence[TopicOffset]
RedriveState = Literal["running", "paused", "stopped", "done", "failed"]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of a group.

    Attributes:
        count: the number of stored dead letters.
        newest: the time at which the newest one became a dead letter; ``None`` if there is none.
        brokers: the number at each broker.
    """

    group: str
    count: int
    newest: datetime | None
    brokers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RedriveJob:
    """The job of one broker that sends the dead letters of a group again.

    Attributes:
        remaining: dead letters that the job has not read yet.
        sent: dead letters that were sent again; with ``dry_run`` the dead letters that would be sent.
        too_often, without_topic, too_large, passed_over: numbers of skipped dead letters: sent again
            ``max_redrives`` times already; their topic does not exist; their properties have no room for the
            redrive's mark; excluded by the filter, or sent by an earlier redrive.
        missing_topic: the last topic that did not exist.
        complete: with ``dry_run``, whether all dead letters were counted in time.
        problem: the reason why the job waits or has failed.
    """

    group: str
    broker_name: str
    state: RedriveState
    started: datetime | None
    ended: datetime | None
    dry_run: bool
    sent: int
    remaining: int
    too_often: int
    without_topic: int
    too_large: int
    passed_over: int
    missing_topic: str | None
    complete: bool
    problem: str | None


@checks_arguments
class DeadLetterAdmin:
    """Operations on dead letters in all clusters, at each master, or at a slave if the master is gone.

    Redrives need OrbitMQ's brokers.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list(self) -> Partial[Sequence[DeadLetters]]:
        """The groups that have dead letters.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = await self._cluster.name_servers.ask(
            lambda: command, TopicList.decode, self._cluster.timeout_ms
        )
        names = [
            topic.removeprefix(DLQ_PREFIX)
            for topic in sorted(topics.topic_list)
            if topic.startswith(DLQ_PREFIX)
        ]

        async def look(broker: BrokerInfo) -> Sequence[_Ends]:
            return await side_by_side(names, lambda name: self._ends(broker, name))

        answers = await self._cluster.at_each(await self._cluster.leaders(), look)
        found = [
            _sum(name, {broker.name: ends[number] for broker, ends in answers.pairs})
            for number, name in enumerate(names)
        ]
        return answers.partial([one for one in found if one.count])

    async def show(self, group: str) -> Partial[DeadLetters]:
        """The number of dead letters of a group; errors as :meth:`list`."""
        answers = await self._stats(group, await self._cluster.leaders())
        return answers.partial(_sum(group, {broker.name: ends for broker, ends in answers.pairs}))

    async def _stats(self, group: str, brokers: Sequence[BrokerInfo]) -> Answers[_Ends]:
        return await self._cluster.at_each(brokers, lambda broker: self._ends(broker, group))

    async def _ends(self, broker: BrokerInfo, group: str) -> _Ends:
        """The smallest and next offsets of the queues with a group's dead letters at one broker."""
        request = headers.GetTopicStatsInfoRequest(topic=dead_letter_topic(group)).command()
        answer = await self._cluster.ask_unless(broker.address, request, ResponseCode.TOPIC_NOT_EXIST)
        return () if answer is None else tuple(TopicStatsTable.decode(answer.body).offset_table.values())

    async def redrive(
        self,
        group: str,
        *,
        to_topic: str | None = None,
        sql: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        rate: int | None = None,
        limit: int | None = None,
        max_redrives: int = 3,
        dry_run: bool = False,
        only: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    ) -> Sequence[RedriveJob]:
        """Send the dead letters of a group again, by a job at each broker that has some.

        Dead letters that an earlier redrive has sent are skipped. The brokers run the jobs in the background
        and continue them after a restart; see :meth:`redrives`. A broker group without a master sends
        nothing: the result contains its job as failed.

        Args:
            to_topic: the topic to send to; ``None``: the topic that each dead letter came from.
            sql: send only dead letters that this SQL92 expression matches.
            begin, end: send only messages that became dead letters between these times.
            rate: messages a second, divided among the brokers; ``None`` for no limit.
            limit: most dead letters to send of each broker; ``None`` for all.
            max_redrives: dead letters that were sent again this many times are skipped.
            dry_run: count the dead letters, send nothing.
            only: by broker name, the queue offsets of the dead letters to send, as ranges (first, last + 1)
                in order; a broker that is not named sends none. ``None``: all dead letters of all brokers.

        Raises:
            ValidationError: a time has no time zone.
            BrokerError: the group has no dead letters (code 17).
            IncompleteError: a broker refuses or does not answer; the other brokers run their jobs, which the
                error contains.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        leaders = await self._cluster.leaders()
        request = RedriveRequest(
            group, to_topic, sql, _time_ms("begin", begin), _time_ms("end", end), rate, limit, max_redrives,
            dry_run,
        )  # fmt: skip
        chosen = [broker for broker in leaders if only is None or only.get(broker.name)]
        stats = await self._stats(group, chosen)
        counts = {
            broker: sum(one.max_offset - one.min_offset for one in ends) for broker, ends in stats.pairs
        }
        holders = [broker for broker, count in counts.items() if count]
        if not holders:
            stats.partial(None, f"no broker that answers has dead letters of group {group}").whole()
            raise lacking(ResponseCode.TOPIC_NOT_EXIST, f"group {group} has no dead letters", leaders)
        if rate is not None and rate > len(holders):
            request = replace(request, rate=rate // len(holders))

        async def begin_job(broker: BrokerInfo) -> RedriveJob:
            own = request
            if only is not None:
                own = replace(request, only=[[first, behind] for first, behind in only[broker.name]])
            if not broker.is_master:
                return _job(_left(own, broker.name, counts[broker]))
            command = headers.StartRedriveRequest().command(own.encode())
            return _job(Redrive.decode((await self._cluster.ask(broker.address, command)).body))

        begun = await self._cluster.at_each(holders, begin_job)
        return begun.beside(stats.left_out).partial([job for _, job in begun.pairs], NOT_DONE).whole()

    async def redrives(self, group: str | None = None) -> Partial[Sequence[RedriveJob]]:
        """The last redrive job of each group, or of one group, at each broker. Apache's brokers have none.

        Raises:
            BrokerError: no broker offers jobs (code 3).
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answers = await self._jobs(group)
        return answers.partial([job for _, jobs in answers.pairs for job in jobs])

    async def _jobs(self, group: str | None) -> Answers[Sequence[RedriveJob]]:
        def read(_: BrokerInfo, answer: Command) -> Sequence[RedriveJob]:
            jobs = Redrive.decode_list(answer.body)
            return [_job(job) for job in jobs if group in (None, job.request.group)]

        answers = await self._cluster.ask_all(
            await self._cluster.leaders(), headers.ListRedrivesRequest().command(), read
        )
        missing = [one for one in answers.left_out if not _is_of_apache(one)]
        if not (answers.pairs or missing):
            raise answers.left_out[0].error
        return Answers(answers.asked, answers.pairs, missing)

    async def pause(self, group: str) -> Sequence[RedriveJob]:
        """Pause a group's jobs that have not ended. Errors as :meth:`stop`."""
        return await self._change(group, RedriveAction.PAUSE)

    async def resume(self, group: str) -> Sequence[RedriveJob]:
        """Resume a group's paused jobs. Errors as :meth:`stop`."""
        return await self._change(group, RedriveAction.RESUME)

    async def stop(self, group: str) -> Sequence[RedriveJob]:
        """End a group's jobs. Messages already sent stay sent; the next redrive continues with the rest.

        Raises:
            BrokerError: the group has no job in progress (code 22), or no broker offers jobs (code 3).
            IncompleteError: a broker refuses or does not answer; the error contains the changed jobs of the
                other brokers.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        return await self._change(group, RedriveAction.STOP)

    async def _change(self, group: str, action: RedriveAction) -> Sequence[RedriveJob]:
        found = await self._jobs(group)
        chosen = [broker for broker, jobs in found.pairs if any(job.ended is None for job in jobs)]
        if not chosen:
            found.partial(None, f"no broker that answers has a redrive of group {group} under way").whole()
            brokers = await self._cluster.leaders()
            text = f"no redrive of group {group} is under way"
            raise lacking(ResponseCode.QUERY_NOT_FOUND, text, brokers)
        command = headers.ChangeRedriveRequest(group=group, action=action.value).command()
        answers = await self._cluster.ask_all(
            chosen, command, lambda _, answer: _job(Redrive.decode(answer.body))
        )
        done = [job for _, job in answers.pairs]
        return answers.beside(found.left_out).partial(done, NOT_DONE).whole()


def _is_of_apache(one: LeftOut) -> bool:
    return isinstance(one.error, BrokerError) and is_not_offered(one.error)


def _time_ms(name: str, value: datetime | None) -> int | None:
    return None if value is None else instant_ms(name, value)


def _job(job: Redrive) -> RedriveJob:
    states: Mapping[object, RedriveState] = {
        State.RUNNING: "running",
        State.PAUSED: "paused",
        State.STOPPED: "stopped",
        State.DONE: "done",
        State.FAILED: "failed",
    }
    return RedriveJob(
        group=job.request.group,
        broker_name=job.broker_name,
        state=states[job.state],
        started=instant(job.started_ms) if job.started_ms else None,
        ended=instant(job.ended_ms) if job.ended_ms else None,
        dry_run=job.request.dry_run,
        sent=job.sent,
        remaining=max(0, job.end - job.position),
        too_often=job.too_often,
        without_topic=job.without_topic,
        too_large=job.too_large,
        passed_over=job.filtered,
        missing_topic=job.missing_topic,
        complete=job.complete,
        problem=job.problem,
    )


def _sum(group: str, ends: Mapping[str, _Ends]) -> DeadLetters:
    """The number of dead letters of a group, from the ends of their queues at each broker."""
    counts = {name: sum(one.max_offset - one.min_offset for one in own) for name, own in ends.items()}
    newest = max((one.last_update_timestamp for own in ends.values() for one in own), default=0)
    brokers = {name: count for name, count in counts.items() if count}
    return DeadLetters(group, sum(counts.values()), instant(newest) if newest > 0 else None, brokers)


def _left(request: RedriveRequest, broker_name: str, count: int) -> Redrive:
    """A failed job, for a broker group without a master."""
    return Redrive(
        request, State.FAILED, broker_name, end=count, problem=f"{no_master(broker_name)}: these stay"
    )
