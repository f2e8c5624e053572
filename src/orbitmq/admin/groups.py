"""Consumer groups: who is in them, how far they are, and moving them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orbitmq.admin.answers import IncompleteError
from orbitmq.admin.asking import Asking
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import check_time_ms
from orbitmq.message.reserved import SYSTEM_GROUPS, is_system_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerConnection, SubscriptionConflict
from orbitmq.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.wire.bodies.stats import ConsumeStats, OffsetWrapper, QueryConsumeTimeSpanBody, TopicStatsTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SERVER_SIDE_RESET = "useServerSideResetOffset"

# Smallest and next offset of queues, and where a group is to go on in them.
Ends = Mapping[MessageQueue, tuple[int, int]]
Targets = Mapping[MessageQueue, int]
# What one broker tells of a group: its settings, and who is connected.
_Told = tuple[SubscriptionGroupConfig | None, ConsumerConnection | None]


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a group that is online."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """What the brokers say about a group.

    Attributes:
        configs: by broker name.
        members: by client id; none: the group is offline.
        subscriptions: by topic, the kind of expression and the expression that counts.
        conflicts: members that contradict each other about a topic, so that each loses messages; OrbitMQ's
            brokers tell them.
        conflict_count: how often a member began to contradict another, since the brokers' starts.
        consume_type, message_model: empty when the group is offline.
    """

    group: str
    configs: Mapping[str, SubscriptionGroupConfig]
    members: Sequence[Member]
    subscriptions: Mapping[str, tuple[str, str]]
    conflicts: Sequence[SubscriptionConflict]
    conflict_count: int
    consume_type: str = ""
    message_model: str = ""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group is behind in one queue.

    Attributes:
        committed: the next message that the group gets, as committed.
        end: where the next message will be stored.
        in_flight: handed out and not yet committed.
        lag_s: how long the oldest message that is not consumed has been stored; 0 when there is none.
    """

    queue: MessageQueue
    committed: int
    end: int
    in_flight: int
    lag_s: float

    @property
    def lag(self) -> int:
        """Messages that are not consumed."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Move:
    """One queue of a reset; ``before`` is ``None`` where the group had committed nothing."""

    queue: MessageQueue
    before: int | None
    to: int


class GroupAdmin:
    """Operations on consumer groups, in all clusters: at each master, or who has the copy of a lost one."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    # -- looking -----------------------------------------------------------------------------------------

    async def names(self, *, cluster: str | None = None, system: bool = False) -> dict[str, list[str]]:
        """Names of the groups, each with the brokers that know it; RocketMQ's own only with ``system``.

        Raises:
            IncompleteError: a broker refuses or does not answer; what the others told is in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answers = await self._asking.at_each(await self._asking.leaders(cluster), self._configs)
        found: dict[str, list[str]] = {}
        for broker, configs in answers.told:
            for name in configs:
                if system or not (is_system_group(name) or name in SYSTEM_GROUPS):
                    found.setdefault(name, []).append(broker.name)
        return answers.whole(dict(sorted(found.items())))

    async def _configs(self, broker: BrokerInfo) -> Mapping[str, SubscriptionGroupConfig]:
        answer = await self._asking.ask(broker.address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table

    async def show(self, group: str, *, cluster: str | None = None) -> GroupDetails:
        """A group's settings, members, subscriptions and conflicts.

        Raises:
            BrokerError: no broker knows the group (code 26).
            IncompleteError: a broker refuses or does not answer; what the others told is in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        brokers = await self._asking.leaders(cluster)
        request = headers.GetConsumerConnectionListRequest(consumer_group=group)

        async def look(broker: BrokerInfo) -> _Told:
            config = (await self._configs(broker)).get(group)
            answer = await self._asking.ask_unless(
                broker.address, request.command(), ResponseCode.CONSUMER_NOT_ONLINE
            )
            return config, None if answer is None else ConsumerConnection.decode(answer.body)

        answers = await self._asking.at_each(brokers, look)
        configs = {broker.name: config for broker, (config, _) in answers.told if config is not None}
        if not configs:
            answers.whole(None, f"no broker that answers has the group {group}")
            raise unknown_group(group, brokers)
        online = [one for _, (_, one) in answers.told if one is not None]
        return answers.whole(_details(group, configs, online))

    async def lag(self, group: str, *, topic: str | None = None) -> list[QueueLag]:
        """How far a group is behind in every queue that it reads, by topic, broker and queue id.

        Raises:
            BrokerError: no broker knows the group.
            IncompleteError: a broker refuses or does not answer; what the others told is in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        brokers = await self._asking.leaders()
        request = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic or "")

        async def look(broker: BrokerInfo) -> list[QueueLag]:
            answer = await self._asking.ask_unless(
                broker.address, request.command(), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
            table = {} if answer is None else ConsumeStats.decode(answer.body).offset_table
            waits = await self._waits(broker, group, {queue.topic for queue in table})
            return [_lag(queue, progress, waits.get(queue, 0)) for queue, progress in table.items()]

        answers = await self._asking.at_each(brokers, look)
        found = sorted((one for _, lags in answers.told for one in lags), key=lambda one: one.queue)
        if not (found or answers.left_out) and group not in await self.names(system=True):
            raise unknown_group(group, brokers)
        return answers.whole(found)

    async def _waits(self, broker: BrokerInfo, group: str, topics: Iterable[str]) -> dict[MessageQueue, int]:
        """Age of the oldest message of each queue that is not consumed, ms."""
        waits: dict[MessageQueue, int] = {}
        for topic in topics:
            request = headers.QueryConsumeTimeSpanRequest(topic=topic, group=group)
            answer = await self._asking.ask(broker.address, request.command())
            for span in QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set:
                if span.message_queue is not None:
                    waits[span.message_queue] = max(0, span.delay_time)
        return waits

    # -- moving ------------------------------------------------------------------------------------------

    async def plan_to_time(self, group: str, topic: str, time_ms: int) -> Sequence[Move]:
        """A reset to the first message that was stored at ``time_ms`` or later, in every queue.

        Nothing is changed: see :meth:`move`. Errors of all ``plan_*`` as :meth:`plan`.

        Args:
            time_ms: milliseconds since the epoch; a number with less or more than 13 digits is refused.
        """
        check_time_ms("time_ms", time_ms)

        async def stored(broker: BrokerInfo, ends: Ends) -> Targets:
            return {queue: await self._offset_at(broker, queue, time_ms) for queue in ends}

        return await self._plan_all(group, topic, stored)

    async def plan_to_first(self, group: str, topic: str) -> Sequence[Move]:
        """A reset to the oldest message of every queue."""

        async def first(_: BrokerInfo, ends: Ends) -> Targets:
            return {queue: low for queue, (low, _) in ends.items()}

        return await self._plan_all(group, topic, first)

    async def plan_to_last(self, group: str, topic: str) -> Sequence[Move]:
        """A reset behind the newest message of every queue: what has piled up is skipped."""

        async def last(_: BrokerInfo, ends: Ends) -> Targets:
            return {queue: high for queue, (_, high) in ends.items()}

        return await self._plan_all(group, topic, last)

    async def plan(self, group: str, targets: Targets) -> Sequence[Move]:
        """What :meth:`move` would do, with where the group is now. Brokers without targets are not asked.

        Raises:
            ValidationError: a queue that is not there, or an offset that it does not have.
            BrokerError: no broker knows the topic.
            IncompleteError: a broker refuses or does not answer; the moves at the others are in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        names = {queue.broker_name for queue in targets}
        brokers = [broker for broker in await self._asking.leaders() if broker.name in names]
        gone = names - {broker.name for broker in brokers}
        for queue in sorted(targets):
            if queue.broker_name in gone:
                raise _no_queue(queue)

        async def chosen(broker: BrokerInfo) -> list[Move]:
            moves: list[Move] = []
            own = {queue: to for queue, to in targets.items() if queue.broker_name == broker.name}
            for topic in sorted({queue.topic for queue in own}):
                ends = await self._ends(broker, topic) or {}
                wanted = {queue: own[queue] for queue in sorted(own) if queue.topic == topic}
                moves += await self._moves(broker, group, _checked(wanted, ends))
            return moves

        answers = await self._asking.at_each(brokers, chosen)
        return answers.whole(_sorted(move for _, moves in answers.told for move in moves))

    async def _plan_all(
        self, group: str, topic: str, choose: Callable[[BrokerInfo, Ends], Awaitable[Targets]]
    ) -> Sequence[Move]:
        """The moves in all queues of a topic to what ``choose`` says."""
        brokers = await self._asking.leaders()

        async def planned(broker: BrokerInfo) -> list[Move] | None:
            ends = await self._ends(broker, topic)
            return None if ends is None else await self._moves(broker, group, await choose(broker, ends))

        answers = await self._asking.at_each(brokers, planned)
        found = [moves for _, moves in answers.told if moves is not None]
        if not (found or answers.left_out):
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}", brokers[0].address
            )
        return answers.whole(_sorted(move for moves in found for move in moves))

    async def _moves(self, broker: BrokerInfo, group: str, targets: Targets) -> list[Move]:
        return [Move(queue, await self._committed(broker, group, queue), to) for queue, to in targets.items()]

    async def move(self, group: str, moves: Iterable[Move]) -> Sequence[Move]:
        """Let the group go on at ``to`` in each queue, whether members are online or not; returns the moves.

        A queue without ``before`` is moved too. Brokers that do not reset by themselves (before 5.0, or with
        ``useServerSideResetOffset=false``) can only move a group that is offline.

        Raises:
            ValidationError: such a broker, and members are online; or no broker of a queue is online. Nothing
                is moved.
            IncompleteError: a broker refuses or does not answer; what was moved is in it.
            BrokerError, TransportError, NameServerError: nothing was moved; of the first broker.
        """
        leaders = {broker.name: broker for broker in await self._asking.leaders()}
        own: dict[BrokerInfo, list[Move]] = {}
        for move in moves:
            name = move.queue.broker_name
            if name not in leaders:
                raise ValidationError(f"no broker of {name} is online")
            own.setdefault(leaders[name], []).append(move)
        resets = await self._asking.at_each(list(own), lambda broker: self._resets(broker, group))
        by_broker = dict(resets.told)
        moved: list[Move] = []

        async def carry_out(broker: BrokerInfo) -> None:
            for move in own[broker]:
                command = _reset(group, move, by_broker=by_broker[broker])
                await self._asking.ask(broker.address, command)
                moved.append(move)

        done = await self._asking.at_each(list(by_broker), carry_out)
        left_out = [*resets.left_out, *done.left_out]
        if left_out and not moved:
            raise left_out[0].error
        if left_out:
            raise IncompleteError(_sorted(moved), left_out)
        return _sorted(moved)

    async def _resets(self, broker: BrokerInfo, group: str) -> bool:
        """Whether the broker moves groups by itself; else members must be offline."""
        answer = await self._asking.ask(broker.address, Command(RequestCode.GET_BROKER_CONFIG))
        if f"{SERVER_SIDE_RESET}=true" in answer.body.decode(errors="replace").splitlines():
            return True
        request = headers.GetConsumerConnectionListRequest(consumer_group=group).command()
        if await self._asking.ask_unless(broker.address, request, ResponseCode.CONSUMER_NOT_ONLINE):
            raise ValidationError(
                f"broker {broker.name} does not move a group by itself ({SERVER_SIDE_RESET}), and members of "
                f"{group} are online: stop them first"
            )
        return False

    async def clone(self, source: str, target: str, *, topic: str | None = None) -> list[str]:
        """Give ``target`` the offsets of ``source``, in one topic or in all; names of the brokers that did.

        Raises:
            IncompleteError: some did, another refuses or does not answer.
            BrokerError, TransportError, NameServerError: none did, or no name server answers.
        """
        request = headers.CloneGroupOffsetRequest(
            src_group=source, dest_group=target, topic=topic, offline=True
        )
        return await self._asking.tell_all(await self._asking.leaders(), request.command())

    async def _ends(self, broker: BrokerInfo, topic: str) -> Ends | None:
        """Smallest and next offset of the topic's queues; ``None``: the broker does not have it."""
        request = headers.GetTopicStatsInfoRequest(topic=topic).command()
        answer = await self._asking.ask_unless(broker.address, request, ResponseCode.TOPIC_NOT_EXIST)
        if answer is None:
            return None
        table = TopicStatsTable.decode(answer.body).offset_table
        return {queue: (table[queue].min_offset, table[queue].max_offset) for queue in sorted(table)}

    async def _offset_at(self, broker: BrokerInfo, queue: MessageQueue, time_ms: int) -> int:
        request = headers.SearchOffsetByTimestampRequest(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms
        )
        answer = await self._asking.ask(broker.address, request.command())
        return headers.SearchOffsetByTimestampResponse.from_ext(answer.ext).offset

    async def _committed(self, broker: BrokerInfo, group: str, queue: MessageQueue) -> int | None:
        request = headers.QueryConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        answer = await self._asking.ask_unless(
            broker.address, request.command(), ResponseCode.QUERY_NOT_FOUND
        )
        return None if answer is None else headers.QueryConsumerOffsetResponse.from_ext(answer.ext).offset


def _details(
    group: str, configs: Mapping[str, SubscriptionGroupConfig], online: Sequence[ConsumerConnection]
) -> GroupDetails:
    members = {
        one.client_id: Member(one.client_id, one.client_addr, one.language, one.version)
        for found in online
        for one in found.connection_set
    }
    conflicts = {
        (c.topic, c.client_id, c.other_client_id): c for found in online for c in found.conflicts or ()
    }
    first = online[0] if online else ConsumerConnection()
    return GroupDetails(
        group,
        configs,
        [members[name] for name in sorted(members)],
        {
            topic: (data.expression_type, data.sub_string)
            for found in online
            for topic, data in sorted(found.subscription_table.items())
        },
        list(conflicts.values()),
        sum(found.conflict_count or 0 for found in online),
        str(first.consume_type or ""),
        str(first.message_model or ""),
    )


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


def _lag(queue: MessageQueue, progress: OffsetWrapper, waits_ms: int) -> QueueLag:
    committed, end = progress.consumer_offset, progress.broker_offset
    in_flight = max(0, progress.pull_offset - committed)
    return QueueLag(queue, committed, end, in_flight, waits_ms / 1000 if end > committed else 0.0)


def _checked(targets: Targets, ends: Ends) -> Targets:
    """The targets, all of which a broker has.

    Raises:
        ValidationError: it does not have one.
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


def unknown_group(group: str, brokers: Sequence[BrokerInfo]) -> BrokerError:
    """What is raised when all brokers answered that they do not know the group."""
    return BrokerError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker has the group {group}", brokers[0].address
    )
