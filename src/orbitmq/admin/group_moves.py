"""Plans moves of a consumer group's offsets, and carries them out at the brokers.

A plan has the present and the new offset of each queue, and changes nothing. A move sets the offset at the
broker, which notifies the members; brokers without this feature move only groups whose members are offline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from orbitmq.admin.answers import IncompleteError, Partial, lacking
from orbitmq.admin.cluster_client import NOT_DONE, ClusterClient
from orbitmq.admin.group_model import Move
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import TopicStatsTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SERVER_SIDE_RESET = "useServerSideResetOffset"

# By queue: its smallest and its next offset; and by queue: the group's new offset.
Ends = Mapping[MessageQueue, tuple[int, int]]
Targets = Mapping[MessageQueue, int]


class GroupMoves:
    """The moves of :class:`orbitmq.admin.groups.GroupAdmin`, whose methods document the errors."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def planned_to_time(self, group: str, topic: str, time_ms: int) -> Partial[Sequence[Move]]:
        """Plan a move to the first message stored at this time or later, in every queue."""

        async def stored(broker: BrokerInfo, ends: Ends) -> Targets:
            return {queue: await self._offset_at(broker, queue, time_ms) for queue in ends}

        return await self._plan_all(group, topic, stored)

    async def planned_to_first(self, group: str, topic: str) -> Partial[Sequence[Move]]:
        """Plan a move to the oldest message of every queue."""

        async def first(_: BrokerInfo, ends: Ends) -> Targets:
            return {queue: low for queue, (low, _) in ends.items()}

        return await self._plan_all(group, topic, first)

    async def planned_to_last(self, group: str, topic: str) -> Partial[Sequence[Move]]:
        """Plan a move to the end of every queue."""

        async def last(_: BrokerInfo, ends: Ends) -> Targets:
            return {queue: high for queue, (_, high) in ends.items()}

        return await self._plan_all(group, topic, last)

    async def planned(self, group: str, targets: Targets) -> Partial[Sequence[Move]]:
        """Plan a move to the offsets of ``targets``; only the brokers of these queues are asked."""
        names = {queue.broker_name for queue in targets}
        brokers = [broker for broker in await self._cluster.leaders() if broker.name in names]
        gone = names - {broker.name for broker in brokers}
        for queue in sorted(targets):
            if queue.broker_name in gone:
                raise _no_queue(queue)

        async def chosen(broker: BrokerInfo) -> Sequence[Move]:
            moves: list[Move] = []
            own = {queue: to for queue, to in targets.items() if queue.broker_name == broker.name}
            for topic in sorted({queue.topic for queue in own}):
                ends = await self._ends(broker, topic) or {}
                wanted = {queue: own[queue] for queue in sorted(own) if queue.topic == topic}
                moves += await self._moves(broker, group, _checked(wanted, ends))
            return moves

        answers = await self._cluster.at_each(brokers, chosen)
        return answers.partial(_sorted(move for _, moves in answers.pairs for move in moves))

    async def _plan_all(
        self, group: str, topic: str, choose: Callable[[BrokerInfo, Ends], Awaitable[Targets]]
    ) -> Partial[Sequence[Move]]:
        """The moves in all queues of a topic; ``choose`` returns the new offset of each queue."""
        brokers = await self._cluster.leaders()

        async def planned(broker: BrokerInfo) -> Sequence[Move] | None:
            ends = await self._ends(broker, topic)
            return None if ends is None else await self._moves(broker, group, await choose(broker, ends))

        answers = await self._cluster.at_each(brokers, planned)
        found = [moves for _, moves in answers.pairs if moves is not None]
        if not (found or answers.left_out):
            raise lacking(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}", brokers)
        return answers.partial(_sorted(move for moves in found for move in moves))

    async def _moves(self, broker: BrokerInfo, group: str, targets: Targets) -> Sequence[Move]:
        return [Move(queue, await self._committed(broker, group, queue), to) for queue, to in targets.items()]

    async def carried_out(self, group: str, wanted: Sequence[Move]) -> Sequence[Move]:
        """Set the group's offsets at the brokers; returns the moves."""
        leaders = {broker.name: broker for broker in await self._cluster.leaders()}
        own: dict[BrokerInfo, list[Move]] = {}
        for move in wanted:
            name = move.queue.broker_name
            if name not in leaders:
                raise ValidationError(f"no broker of {name} is online")
            own.setdefault(leaders[name], []).append(move)
        resets = await self._cluster.at_each(list(own), lambda broker: self._resets(broker, group))
        by_broker = dict(resets.pairs)
        moved: list[Move] = []

        async def carry_out(broker: BrokerInfo) -> None:
            for move in own[broker]:
                command = _reset(group, move, by_broker=by_broker[broker])
                await self._cluster.ask(broker.address, command)
                moved.append(move)

        done = await self._cluster.at_each(list(by_broker), carry_out)
        left_out = [*resets.left_out, *done.left_out]
        if left_out and not moved:
            raise left_out[0].error
        if left_out:
            raise IncompleteError(Partial(_sorted(moved), left_out), NOT_DONE)
        return _sorted(moved)

    async def _resets(self, broker: BrokerInfo, group: str) -> bool:
        """Whether the broker can move a group whose members are online."""
        answer = await self._cluster.ask(broker.address, Command(RequestCode.GET_BROKER_CONFIG))
        if f"{SERVER_SIDE_RESET}=true" in answer.body.decode(errors="replace").splitlines():
            return True
        request = headers.GetConsumerConnectionListRequest(consumer_group=group).command()
        if await self._cluster.ask_unless(broker.address, request, ResponseCode.CONSUMER_NOT_ONLINE):
            raise ValidationError(
                f"broker {broker.name} does not move a group by itself ({SERVER_SIDE_RESET}), and members of "
                f"{group} are online: stop them first"
            )
        return False

    async def _ends(self, broker: BrokerInfo, topic: str) -> Ends | None:
        """Smallest and next offset of the topic's queues; ``None`` if the broker does not have the topic."""
        request = headers.GetTopicStatsInfoRequest(topic=topic).command()
        answer = await self._cluster.ask_unless(broker.address, request, ResponseCode.TOPIC_NOT_EXIST)
        if answer is None:
            return None
        table = TopicStatsTable.decode(answer.body).offset_table
        return {queue: (table[queue].min_offset, table[queue].max_offset) for queue in sorted(table)}

    async def _offset_at(self, broker: BrokerInfo, queue: MessageQueue, time_ms: int) -> int:
        request = headers.SearchOffsetByTimestampRequest(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms
        )
        answer = await self._cluster.ask(broker.address, request.command())
        return headers.SearchOffsetByTimestampResponse.from_ext(answer.ext).offset

    async def _committed(self, broker: BrokerInfo, group: str, queue: MessageQueue) -> int | None:
        request = headers.QueryConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        answer = await self._cluster.ask_unless(
            broker.address, request.command(), ResponseCode.QUERY_NOT_FOUND
        )
        return None if answer is None else headers.QueryConsumerOffsetResponse.from_ext(answer.ext).offset


def _reset(group: str, move: Move, *, by_broker: bool) -> Command:
    queue = move.queue
    if by_broker:
        return headers.InvokeBrokerToResetOffsetRequest(
            group=group,
            topic=queue.topic,
            timestamp=-1,
            is_force=True,
            queue_id=queue.queue_id,
            offset=move.to,
        ).command()
    return headers.UpdateConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=move.to
    ).command()


def _checked(targets: Targets, ends: Ends) -> Targets:
    """The targets, after the check that the broker has all of these offsets.

    Raises:
        ValidationError: the broker lacks one of the offsets.
    """
    for queue, to in targets.items():
        if queue not in ends:
            raise _no_queue(queue)
        low, high = ends[queue]
        if not low <= to <= high:
            raise ValidationError(f"{_name(queue)} has the offsets {low} to {high}, not {to}")
    return targets


def _no_queue(queue: MessageQueue) -> ValidationError:
    return ValidationError(f"there is no queue {_name(queue)}")


def _sorted(moves: Iterable[Move]) -> list[Move]:
    return sorted(moves, key=lambda move: move.queue)


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}[{queue.queue_id}]"
