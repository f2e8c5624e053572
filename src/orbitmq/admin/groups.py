"""Consumer groups: who is in them, how far they are, and moving them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orbitmq.admin.asking import Asking
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import SYSTEM_GROUPS, is_system_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerConnection, SubscriptionConflict
from orbitmq.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.wire.bodies.stats import ConsumeStats, QueryConsumeTimeSpanBody, TopicStatsTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SERVER_SIDE_RESET = "useServerSideResetOffset"


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
            BrokerError, TransportError, NameServerError: a server refuses or does not answer.
        """
        found: dict[str, list[str]] = {}
        for broker in await self._asking.leaders(cluster):
            for name in await self._configs(broker):
                if system or not (is_system_group(name) or name in SYSTEM_GROUPS):
                    found.setdefault(name, []).append(broker.name)
        return dict(sorted(found.items()))

    async def _configs(self, broker: BrokerInfo) -> Mapping[str, SubscriptionGroupConfig]:
        answer = await self._asking.ask(broker.address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table

    async def show(self, group: str) -> GroupDetails:
        """A group's settings, members, subscriptions and conflicts.

        Raises:
            BrokerError: no broker knows the group (code 26), or one refuses.
            TransportError, NameServerError: a server does not answer.
        """
        brokers = await self._asking.leaders()
        configs: dict[str, SubscriptionGroupConfig] = {}
        for broker in brokers:
            config = (await self._configs(broker)).get(group)
            if config is not None:
                configs[broker.name] = config
        if not configs:
            raise _unknown(group, brokers)
        request = headers.GetConsumerConnectionListRequest(consumer_group=group).command()
        answers = await self._asking.ask_all(brokers, request, without=ResponseCode.CONSUMER_NOT_ONLINE)
        online = [ConsumerConnection.decode(answer.body) for _, answer in answers]
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

    async def lag(self, group: str, *, topic: str | None = None) -> list[QueueLag]:
        """How far a group is behind in every queue that it reads, by topic, broker and queue id.

        Raises:
            BrokerError: no broker knows the group, or one refuses.
            TransportError, NameServerError: a server does not answer.
        """
        brokers = await self._asking.leaders()
        request = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic or "").command()
        answers = await self._asking.ask_all(
            brokers, request, without=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        )
        found: list[QueueLag] = []
        for broker, answer in answers:
            table = ConsumeStats.decode(answer.body).offset_table
            waits = await self._waits(broker, group, {queue.topic for queue in table})
            found += [
                QueueLag(
                    queue,
                    progress.consumer_offset,
                    progress.broker_offset,
                    max(0, progress.pull_offset - progress.consumer_offset),
                    waits.get(queue, 0) / 1000 if progress.broker_offset > progress.consumer_offset else 0.0,
                )
                for queue, progress in table.items()
            ]
        if not found and group not in await self.names(system=True):
            raise _unknown(group, brokers)
        return sorted(found, key=lambda one: one.queue)

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
        """
        targets: dict[MessageQueue, int] = {}
        for broker, queue in [(b, q) for b, qs in (await self._ends(topic)).items() for q in qs]:
            request = headers.SearchOffsetByTimestampRequest(
                topic=topic, queue_id=queue.queue_id, timestamp=time_ms
            )
            answer = await self._asking.ask(broker.address, request.command())
            targets[queue] = headers.SearchOffsetByTimestampResponse.from_ext(answer.ext).offset
        return await self.plan(group, targets)

    async def plan_to_first(self, group: str, topic: str) -> Sequence[Move]:
        """A reset to the oldest message of every queue."""
        return await self.plan(
            group, {q: low for ends in (await self._ends(topic)).values() for q, (low, _) in ends.items()}
        )

    async def plan_to_last(self, group: str, topic: str) -> Sequence[Move]:
        """A reset behind the newest message of every queue: what has piled up is skipped."""
        return await self.plan(
            group, {q: high for ends in (await self._ends(topic)).values() for q, (_, high) in ends.items()}
        )

    async def plan(self, group: str, targets: Mapping[MessageQueue, int]) -> Sequence[Move]:
        """What :meth:`move` would do, with where the group is now.

        Raises:
            ValidationError: a queue that is not there, or an offset that it does not have.
            BrokerError: no broker knows the group or the topic, or one refuses.
            TransportError, NameServerError: a server does not answer.
        """
        moves: list[Move] = []
        for topic in sorted({queue.topic for queue in targets}):
            for broker, ends in (await self._ends(topic)).items():
                for queue, (low, high) in sorted(ends.items()):
                    if queue not in targets:
                        continue
                    if not low <= targets[queue] <= high:
                        raise ValidationError(
                            f"{_name(queue)} has the offsets {low} to {high}, not {targets[queue]}"
                        )
                    moves.append(Move(queue, await self._committed(broker, group, queue), targets[queue]))
        missing = sorted(set(targets) - {move.queue for move in moves})
        if missing:
            raise ValidationError(f"there is no queue {_name(missing[0])}")
        return moves

    async def move(self, group: str, moves: Iterable[Move]) -> None:
        """Let the group go on at ``to`` in each queue, whether members are online or not.

        A queue without ``before`` is moved too. Brokers that do not reset by themselves (before 5.0, or with
        ``useServerSideResetOffset=false``) can only move a group that is offline.

        Raises:
            ValidationError: such a broker, and members are online. Queues before it are moved.
            BrokerError, TransportError, NameServerError: a server refuses or does not answer.
        """
        brokers = {broker.name: broker for broker in await self._asking.leaders()}
        resets: dict[str, bool] = {}
        for move in moves:
            broker = brokers.get(move.queue.broker_name)
            if broker is None:
                raise ValidationError(f"no broker of {move.queue.broker_name} is online")
            if broker.name not in resets:
                resets[broker.name] = await self._resets(broker, group)
            await self._asking.ask(broker.address, _reset(group, move, by_broker=resets[broker.name]))

    async def _resets(self, broker: BrokerInfo, group: str) -> bool:
        """Whether the broker moves groups by itself; else members must be offline."""
        answer = await self._asking.ask(broker.address, Command(RequestCode.GET_BROKER_CONFIG))
        if f"{SERVER_SIDE_RESET}=true" in answer.body.decode().splitlines():
            return True
        request = headers.GetConsumerConnectionListRequest(consumer_group=group).command()
        if await self._asking.ask_all([broker], request, without=ResponseCode.CONSUMER_NOT_ONLINE):
            raise ValidationError(
                f"broker {broker.name} does not move a group by itself ({SERVER_SIDE_RESET}), and members of "
                f"{group} are online: stop them first"
            )
        return False

    async def clone(self, source: str, target: str, *, topic: str | None = None) -> list[str]:
        """Give ``target`` the offsets of ``source``, in one topic or in all; names of the brokers asked.

        Raises:
            BrokerError, TransportError, NameServerError: a server refuses or does not answer.
        """
        brokers = await self._asking.leaders()
        request = headers.CloneGroupOffsetRequest(
            src_group=source, dest_group=target, topic=topic, offline=True
        )
        await self._asking.ask_all(brokers, request.command())
        return [broker.name for broker in brokers]

    async def _ends(self, topic: str) -> dict[BrokerInfo, dict[MessageQueue, tuple[int, int]]]:
        """Smallest and next offset of the topic's queues, by broker."""
        brokers = await self._asking.leaders()
        request = headers.GetTopicStatsInfoRequest(topic=topic).command()
        answers = await self._asking.ask_all(brokers, request, without=ResponseCode.TOPIC_NOT_EXIST)
        if not answers:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}", brokers[0].address
            )
        return {
            broker: {
                queue: (ends.min_offset, ends.max_offset)
                for queue, ends in TopicStatsTable.decode(answer.body).offset_table.items()
            }
            for broker, answer in answers
        }

    async def _committed(self, broker: BrokerInfo, group: str, queue: MessageQueue) -> int | None:
        request = headers.QueryConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        try:
            answer = await self._asking.ask(broker.address, request.command())
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return headers.QueryConsumerOffsetResponse.from_ext(answer.ext).offset


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


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}[{queue.queue_id}]"


def _unknown(group: str, brokers: Sequence[BrokerInfo]) -> BrokerError:
    return BrokerError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker has the group {group}", brokers[0].address
    )
