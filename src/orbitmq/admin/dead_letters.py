"""Dead letters: how many there are, and sending them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orbitmq.admin.answers import Answers
from orbitmq.admin.asking import Asking, no_master
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError
from orbitmq.message.numbers import check_time_ms
from orbitmq.message.reserved import DLQ_PREFIX, dead_letter_topic
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.redrive import Redrive, RedriveAction, RedriveRequest, RedriveState
from orbitmq.wire.bodies.stats import TopicOffset, TopicStatsTable
from orbitmq.wire.bodies.topic import TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

_Ends = list[TopicOffset]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of a group.

    Attributes:
        count: how many are stored.
        newest_ms: when the last one became a dead letter, epoch milliseconds; 0 when there is none.
        brokers: how many each broker has.
    """

    group: str
    count: int
    newest_ms: int
    brokers: dict[str, int]


class DeadLetterAdmin:
    """Operations on dead letters, in all clusters: at each master, or who has the copy of a lost one.

    Sending again needs OrbitMQ's brokers.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def groups(self) -> list[DeadLetters]:
        """The groups that have dead letters.

        Raises:
            IncompleteError: a broker refuses or does not answer; what the others told is in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = await self._asking.name_servers.ask(
            lambda: command, TopicList.decode, self._asking.timeout_ms
        )
        names = [
            topic.removeprefix(DLQ_PREFIX)
            for topic in sorted(topics.topic_list)
            if topic.startswith(DLQ_PREFIX)
        ]

        async def look(broker: BrokerInfo) -> list[_Ends]:
            return [await self._ends(broker, name) for name in names]

        answers = await self._asking.at_each(await self._asking.leaders(), look)
        found = [
            _sum(name, {broker.name: ends[number] for broker, ends in answers.told})
            for number, name in enumerate(names)
        ]
        return answers.whole([one for one in found if one.count])

    async def of(self, group: str) -> DeadLetters:
        """How many dead letters a group has; errors as :meth:`groups`."""
        answers = await self._stats(group, await self._asking.leaders())
        return answers.whole(_sum(group, {broker.name: ends for broker, ends in answers.told}))

    async def _stats(self, group: str, brokers: Sequence[BrokerInfo]) -> Answers[_Ends]:
        return await self._asking.at_each(brokers, lambda broker: self._ends(broker, group))

    async def _ends(self, broker: BrokerInfo, group: str) -> _Ends:
        """Of the queues of a group's dead letters; none when the broker has none."""
        request = headers.GetTopicStatsInfoRequest(topic=dead_letter_topic(group)).command()
        answer = await self._asking.ask_unless(broker.address, request, ResponseCode.TOPIC_NOT_EXIST)
        return [] if answer is None else list(TopicStatsTable.decode(answer.body).offset_table.values())

    async def redrive(
        self, request: RedriveRequest, *, only: Mapping[str, list[list[int]]] | None = None
    ) -> Sequence[Redrive]:
        """Send dead letters again, each to the topic it came from: a job at each broker that has some.

        Those that an earlier redrive has sent are passed over. The brokers keep their jobs, also through a
        restart; see :meth:`status`. ``limit`` holds for each broker, ``rate`` is shared by them. Those of a
        broker whose master is missing stay, and are in the result as a job that has failed.

        Args:
            only: by broker name, the dead letters to choose from, as ``RedriveRequest.only``; a broker that
                is not named sends none. ``None``: all of all brokers.

        Raises:
            BrokerError: the group has no dead letters (code 17).
            IncompleteError: a broker refuses or does not answer; the jobs of the others run and are in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        for name, value in (("begin_ms", request.begin_ms), ("end_ms", request.end_ms)):
            check_time_ms(name, 0 if value is None else value)
        leaders = await self._asking.leaders()
        chosen = [broker for broker in leaders if only is None or only.get(broker.name)]
        stats = await self._stats(request.group, chosen)
        counts = {broker: sum(one.max_offset - one.min_offset for one in ends) for broker, ends in stats.told}
        holders = [broker for broker, count in counts.items() if count]
        if not holders:
            stats.whole(None, f"no broker that answers has dead letters of group {request.group}")
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST, f"group {request.group} has no dead letters", leaders[0].address
            )
        if request.rate is not None and request.rate > len(holders):
            request = replace(request, rate=request.rate // len(holders))

        async def begin(broker: BrokerInfo) -> Redrive:
            own = request if only is None else replace(request, only=only[broker.name])
            if not broker.is_master:
                return _left(own, broker.name, counts[broker])
            command = headers.StartRedriveRequest().command(own.encode())
            return Redrive.decode((await self._asking.ask(broker.address, command)).body)

        begun = await self._asking.at_each(holders, begin)
        return begun.beside(stats.left_out).whole([job for _, job in begun.told])

    async def status(self, group: str | None = None) -> Sequence[Redrive]:
        """The last job of each group, or of one, at each broker; Apache's brokers have none.

        Raises:
            IncompleteError: a broker refuses or does not answer; the jobs of the others are in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answers = await self._jobs(group)
        return answers.whole([job for _, jobs in answers.told for job in jobs])

    async def _jobs(self, group: str | None) -> Answers[list[Redrive]]:
        def read(_: BrokerInfo, answer: Command) -> list[Redrive]:
            return [job for job in Redrive.decode_list(answer.body) if group in (None, job.request.group)]

        return await self._asking.ask_all(
            await self._asking.leaders(),
            headers.ListRedrivesRequest().command(),
            read,
            without=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        )

    async def change(self, group: str, action: RedriveAction) -> Sequence[Redrive]:
        """Pause, resume or stop a group's jobs that have not ended.

        Raises:
            BrokerError: there is none (code 22).
            IncompleteError: a broker refuses or does not answer; the changed jobs of the others are in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        found = await self._jobs(group)
        chosen = [broker for broker, jobs in found.told if any(not job.ended_ms for job in jobs)]
        if not chosen:
            found.whole(None, f"no broker that answers has a redrive of group {group} under way")
            brokers = await self._asking.leaders()
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND, f"no redrive of group {group} is under way", brokers[0].address
            )
        command = headers.ChangeRedriveRequest(group=group, action=action.value).command()
        answers = await self._asking.ask_all(chosen, command, lambda _, answer: Redrive.decode(answer.body))
        return answers.beside(found.left_out).whole([job for _, job in answers.told])


def _sum(group: str, ends: Mapping[str, _Ends]) -> DeadLetters:
    """The dead letters of a group, of the ends of their queues by broker."""
    counts = {name: sum(one.max_offset - one.min_offset for one in own) for name, own in ends.items()}
    newest = max((one.last_update_timestamp for own in ends.values() for one in own), default=0)
    return DeadLetters(group, sum(counts.values()), newest, {n: c for n, c in counts.items() if c})


def _left(request: RedriveRequest, broker_name: str, count: int) -> Redrive:
    """What is told of dead letters that nobody can send again now."""
    return Redrive(
        request, RedriveState.FAILED, broker_name, end=count, problem=f"{no_master(broker_name)}: these stay"
    )
