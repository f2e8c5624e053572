"""Dead letters: how many there are, and sending them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orbitmq.admin.asking import Asking, no_master
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError
from orbitmq.message.reserved import DLQ_PREFIX, dead_letter_topic
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.redrive import Redrive, RedriveAction, RedriveRequest, RedriveState
from orbitmq.wire.bodies.stats import TopicStatsTable
from orbitmq.wire.bodies.topic import TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


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
            BrokerError, TransportError, NameServerError: a server refuses or does not answer.
        """
        command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = await self._asking.name_servers.ask(
            lambda: command, TopicList.decode, self._asking.timeout_ms
        )
        found = [
            await self.of(topic.removeprefix(DLQ_PREFIX))
            for topic in sorted(topics.topic_list)
            if topic.startswith(DLQ_PREFIX)
        ]
        return [one for one in found if one.count]

    async def of(self, group: str) -> DeadLetters:
        """How many dead letters a group has; errors as :meth:`groups`."""
        stats = await self._stats(group)
        ends = {broker.name: list(table.offset_table.values()) for broker, table in stats}
        counts = {name: sum(one.max_offset - one.min_offset for one in own) for name, own in ends.items()}
        newest = max((one.last_update_timestamp for own in ends.values() for one in own), default=0)
        return DeadLetters(group, sum(counts.values()), newest, {n: c for n, c in counts.items() if c})

    async def _stats(self, group: str) -> list[tuple[BrokerInfo, TopicStatsTable]]:
        request = headers.GetTopicStatsInfoRequest(topic=dead_letter_topic(group)).command()
        brokers = await self._asking.leaders()
        answers = await self._asking.ask_all(brokers, request, without=ResponseCode.TOPIC_NOT_EXIST)
        return [(broker, TopicStatsTable.decode(answer.body)) for broker, answer in answers]

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
            BrokerError: the group has no dead letters (code 17), or a broker refuses; jobs of the brokers
                before it run.
            TransportError, NameServerError: a server does not answer.
        """
        counts = {
            broker: sum(one.max_offset - one.min_offset for one in table.offset_table.values())
            for broker, table in await self._stats(request.group)
            if only is None or only.get(broker.name)
        }
        holders = [broker for broker, count in counts.items() if count]
        if not holders:
            brokers = await self._asking.leaders()
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST, f"group {request.group} has no dead letters", brokers[0].address
            )
        if request.rate is not None and request.rate > len(holders):
            request = replace(request, rate=request.rate // len(holders))
        begun = []
        for broker in holders:
            if only is not None:
                request = replace(request, only=only[broker.name])
            if not broker.is_master:
                begun.append(_left(request, broker.name, counts[broker]))
                continue
            command = headers.StartRedriveRequest().command(request.encode())
            begun.append(Redrive.decode((await self._asking.ask(broker.address, command)).body))
        return begun

    async def status(self, group: str | None = None) -> Sequence[Redrive]:
        """The last job of each group, or of one, at each broker; Apache's brokers have none.

        Raises:
            BrokerError, TransportError, NameServerError: a server refuses or does not answer.
        """
        answers = await self._asking.ask_all(
            await self._asking.leaders(),
            headers.ListRedrivesRequest().command(),
            without=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        )
        jobs = [job for _, answer in answers for job in Redrive.decode_list(answer.body)]
        return [job for job in jobs if group in (None, job.request.group)]

    async def change(self, group: str, action: RedriveAction) -> Sequence[Redrive]:
        """Pause, resume or stop a group's jobs that have not ended.

        Raises:
            BrokerError: there is none (code 22), or a broker refuses.
            TransportError, NameServerError: a server does not answer.
        """
        brokers = await self._asking.leaders()
        names = {job.broker_name for job in await self.status(group) if not job.ended_ms}
        if not names:
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND, f"no redrive of group {group} is under way", brokers[0].address
            )
        command = headers.ChangeRedriveRequest(group=group, action=action.value).command()
        chosen = [broker for broker in brokers if broker.name in names]
        answers = await self._asking.ask_all(chosen, command)
        return [Redrive.decode(answer.body) for _, answer in answers]


def _left(request: RedriveRequest, broker_name: str, count: int) -> Redrive:
    """What is told of dead letters that nobody can send again now."""
    return Redrive(
        request, RedriveState.FAILED, broker_name, end=count, problem=f"{no_master(broker_name)}: these stay"
    )
