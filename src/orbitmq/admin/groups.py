"""Consumer groups: their settings, members and lag; resets of their offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from orbitmq.admin.answers import Partial, lacking
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import NOT_DONE, ClusterClient, side_by_side
from orbitmq.admin.group_model import Conflict, GroupDetails, Member, Move, QueueLag, Subscription
from orbitmq.admin.group_moves import GroupMoves
from orbitmq.admin.group_settings import GroupSettings, from_wire, to_wire
from orbitmq.admin.lag_causes import LagReport
from orbitmq.admin.lag_reports import explained
from orbitmq.admin.model import BrokerInfo
from orbitmq.admin.progress import (
    QueueProgress,
    TopicLag,
    lags_of_all,
    progress_in,
    progress_of_all,
    topic_lags_of_all,
)
from orbitmq.admin.tables import Tables
from orbitmq.client.ranges import check_kind
from orbitmq.durations import instant_ms
from orbitmq.errors import BrokerError, NotPermittedError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import RETRY_PREFIX, is_built_in_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerConnection
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.stats import ConsumeStats, OffsetWrapper, QueryConsumeTimeSpanBody, QueueTimeSpan
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    from datetime import datetime

# One broker's part of a group: its settings, and its connected members.
_Told = tuple[GroupSettings | None, ConsumerConnection | None]


@checks_arguments
class GroupAdmin:
    """Operations on consumer groups of all clusters, at each master, or at its acting master."""

    def __init__(self, cluster: ClusterClient, tables: Tables[GroupSettings]) -> None:
        self._cluster = cluster
        self._tables = tables
        self._moves = GroupMoves(cluster)

    # -- looking -----------------------------------------------------------------------------------------

    async def list(
        self, *, cluster: str | None = None, system: bool = False
    ) -> Partial[Mapping[str, Sequence[str]]]:
        """Names of the groups, each with the brokers that have it; RocketMQ's own groups only with
        ``system``.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answers = await self._cluster.at_each(await self._cluster.leaders(cluster), self._tables.of)
        found: dict[str, list[str]] = {}
        for broker, table in answers.pairs:
            for name in table:
                if name in found or system or not is_built_in_group(name):
                    found.setdefault(name, []).append(broker.name)
        return answers.partial(dict(sorted(found.items())))

    async def settings(
        self, *, cluster: str | None = None
    ) -> Partial[Mapping[str, Mapping[str, GroupSettings]]]:
        """The settings of every group, by group and broker, without RocketMQ's own groups.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answers = await self._cluster.at_each(await self._cluster.leaders(cluster), self._tables.of)
        found: dict[str, dict[str, GroupSettings]] = {}
        for broker, table in answers.pairs:
            for name, settings in table.items():
                if name in found or not is_built_in_group(name):
                    found.setdefault(name, {})[broker.name] = settings
        return answers.partial(dict(sorted(found.items())))

    async def _settings(self, broker: BrokerInfo, group: str) -> GroupSettings | None:
        """The settings of a group at a broker; ``None`` if the broker does not have the group.

        A broker that is not known to be OrbitMQ's is asked for the table of all groups, since Apache's
        brokers create a group that a request asks about. If the user may not read the table, the request is
        for the group itself.
        """
        if not self._cluster.is_orbitmq(broker.address):
            try:
                return (await self._tables.of(broker)).get(group)
            except NotPermittedError:
                pass
        answer = await self._cluster.ask_unless(
            broker.address,
            headers.GetSubscriptiongroupConfigRequest(group=group).command(),
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
        return None if answer is None else from_wire(SubscriptionGroupConfig.decode(answer.body))

    async def show(self, group: str, *, cluster: str | None = None) -> Partial[GroupDetails]:
        """A group's settings, members, subscriptions and conflicts.

        Raises:
            BrokerError: no broker has the group (code 26).
            IncompleteError: no broker that answers has the group, and another one does not answer.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        brokers = await self._cluster.leaders(cluster)
        request = headers.GetConsumerConnectionListRequest(consumer_group=group)

        async def look(broker: BrokerInfo) -> _Told:
            answer = await self._cluster.ask_unless(
                broker.address, request.command(), ResponseCode.CONSUMER_NOT_ONLINE
            )
            settings = await self._settings(broker, group)
            return settings, None if answer is None else ConsumerConnection.decode(answer.body)

        answers = await self._cluster.at_each(brokers, look)
        settings = {broker.name: own for broker, (own, _) in answers.pairs if own is not None}
        if not settings:
            answers.partial(None, f"no broker that answers has the group {group}").whole()
            raise unknown_group(group, brokers)
        online = [one for _, (_, one) in answers.pairs if one is not None]
        return answers.partial(_details(group, settings, online))

    async def lag(self, group: str, *, topic: str | None = None) -> Partial[Sequence[QueueLag]]:
        """The lag of a group in every queue that it reads, by topic, broker and queue id.

        Raises:
            BrokerError: no broker has the group.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        brokers = await self._cluster.leaders()
        request = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic or "")

        async def look(broker: BrokerInfo) -> Sequence[QueueLag]:
            answer = await self._cluster.ask_unless(
                broker.address, request.command(), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
            table = {} if answer is None else ConsumeStats.decode(answer.body).offset_table
            waits = await self._waits(broker, group, sorted({queue.topic for queue in table}))
            # The broker continues to report the fetched offset of a member that has left.
            fetched = any(one.pull_offset > one.consumer_offset for one in table.values())
            online = fetched and await self._is_online(broker, group)
            return [
                _lag(queue, progress, waits.get(queue, 0), online=online) for queue, progress in table.items()
            ]

        answers = await self._cluster.at_each(brokers, look)
        found = sorted((one for _, lags in answers.pairs for one in lags), key=lambda one: one.queue)
        if not (found or answers.left_out):
            known = await self._cluster.at_each(brokers, lambda broker: self._settings(broker, group))
            if not (known.left_out or any(own is not None for _, own in known.pairs)):
                raise unknown_group(group, brokers)
            return known.partial(found)
        return answers.partial(found)

    async def progress(
        self, *, cluster: str | None = None, topic: str | None = None
    ) -> Partial[Sequence[QueueProgress]]:
        """The progress of every group in every queue that it reads, without RocketMQ's own groups. Each
        broker gets one request for all groups, or with ``topic`` one request for each group that reads the
        topic.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        if topic is None:
            return await progress_of_all(self._cluster, cluster)
        return await progress_in(self._cluster, cluster, topic)

    async def topic_lags(self, *, cluster: str | None = None) -> Partial[Sequence[TopicLag]]:
        """The lag of every group that has committed offsets, by topic and broker; each broker gets one
        request.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        return await topic_lags_of_all(self._cluster, cluster)

    async def lags(self) -> Partial[Mapping[str, int]]:
        """The lag of every group that has committed offsets: the sums of :meth:`topic_lags`."""
        return await lags_of_all(self._cluster, None)

    async def why(self, group: str) -> Partial[LagReport]:
        """How far a group is behind, and why: no member is online, one queue makes no progress, there are too
        few members or queues, a conflict, or consuming is switched off.

        If one queue has most of the lag, the member that reads it is found and observed for a second.

        Raises:
            BrokerError: no broker has the group (code 26).
            IncompleteError: no broker that answers has the group, and another one does not answer.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        lagging = asyncio.ensure_future(self.lag(group))
        try:
            return await self.explain(await self.show(group), await lagging)
        finally:
            lagging.cancel()
            await asyncio.gather(lagging, return_exceptions=True)

    async def explain(
        self, details: Partial[GroupDetails], lag: Partial[Sequence[QueueLag]]
    ) -> Partial[LagReport]:
        """As :meth:`why`, from the answers of :meth:`show` and :meth:`lag`: only members get requests."""
        return await explained(self._cluster, details, lag)

    async def _is_online(self, broker: BrokerInfo, group: str) -> bool:
        request = headers.GetConsumerConnectionListRequest(consumer_group=group).command()
        return (
            await self._cluster.ask_unless(broker.address, request, ResponseCode.CONSUMER_NOT_ONLINE)
            is not None
        )

    async def _waits(self, broker: BrokerInfo, group: str, topics: Sequence[str]) -> dict[MessageQueue, int]:
        """Age of the oldest unconsumed message of each queue in milliseconds; all topics are requested
        concurrently.
        """

        async def spans(topic: str) -> Sequence[QueueTimeSpan]:
            request = headers.QueryConsumeTimeSpanRequest(topic=topic, group=group)
            answer = await self._cluster.ask(broker.address, request.command())
            return QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set

        each = await side_by_side(topics, spans)
        return {
            span.message_queue: max(0, span.delay_time)
            for found in each
            for span in found
            if span.message_queue is not None
        }

    # -- creating and deleting ---------------------------------------------------------------------------

    async def create(
        self, group: str, settings: GroupSettings | None = None, *, cluster: str | None = None
    ) -> Sequence[str]:
        """Create a consumer group, or replace its settings, on every master of ``cluster`` (default: of all
        clusters).

        Returns:
            Names of the brokers at which the group was created or changed.

        Raises:
            ValidationError: a setting is out of its range.
            IncompleteError: some brokers have made the change, another one refuses or does not answer.
            BrokerError, TransportError: no broker has made the change; the error of the first one.
            NameServerError: no name server answers, or it knows no master.
        """
        body = to_wire(group, GroupSettings() if settings is None else settings).encode()
        request = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        return await self._cluster.tell_all(await self._cluster.masters(cluster), request)

    async def delete(
        self, group: str, *, clean_offsets: bool = False, cluster: str | None = None
    ) -> Sequence[str]:
        """Delete a consumer group on every master of ``cluster`` (default: of all clusters).

        Args:
            clean_offsets: delete the committed offsets, too.

        Returns:
            Names of the brokers that have deleted the group.

        Raises:
            ValidationError: a broker group has no master online, which would bring the group back. Nothing is
                done.
            IncompleteError: some brokers have deleted the group, another one refuses or does not answer. The
                same call finishes it later.
            BrokerError, TransportError: no broker has deleted it; the error of the first one.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._cluster.every_master(cluster)
        header = headers.DeleteSubscriptiongroupRequest(group_name=group, clean_offset=clean_offsets)
        return await self._cluster.tell_all(masters, header.command())

    # -- moving ------------------------------------------------------------------------------------------

    async def plan_to_time(self, group: str, topic: str, time: datetime) -> Partial[Sequence[Move]]:
        """Plan a reset to the first message that was stored at ``time`` or later, in every queue.

        Nothing is changed; :meth:`move` carries out a plan. All ``plan_*`` raise the errors of :meth:`plan`.

        Args:
            time: a datetime with a time zone.
        """
        return await self._moves.planned_to_time(group, topic, instant_ms("time", time))

    async def plan_to_first(self, group: str, topic: str) -> Partial[Sequence[Move]]:
        """Plan a reset to the oldest message of every queue."""
        return await self._moves.planned_to_first(group, topic)

    async def plan_to_last(self, group: str, topic: str) -> Partial[Sequence[Move]]:
        """Plan a reset to the end of every queue: the group skips all messages that wait."""
        return await self._moves.planned_to_last(group, topic)

    async def plan(self, group: str, targets: Mapping[MessageQueue, int]) -> Partial[Sequence[Move]]:
        """Plan a reset to the offsets of ``targets``, with the present offsets. Only brokers of these queues
        are asked.

        Raises:
            ValidationError: a queue does not exist, or does not have the offset.
            BrokerError: no broker has the topic.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        return await self._moves.planned(group, targets)

    async def move(self, group: str, moves: Iterable[Move]) -> Sequence[Move]:
        """Set the group's offset to ``to`` in each queue, whether members are online or not; returns the
        moves.

        Queues without a committed offset (``before`` is ``None``) are set, too. Brokers that cannot reset the
        offsets of online members (before 5.0, or with ``useServerSideResetOffset=false``) can only move a
        group that is offline.

        Raises:
            ValidationError: members are online and a broker cannot reset their offsets; or no broker of a
                queue is online. Nothing is moved.
            IncompleteError: a broker refuses or does not answer; the error contains the moves that were made.
            BrokerError, TransportError, NameServerError: nothing was moved; the error of the first broker.
        """
        wanted = list(moves)
        for move in wanted:
            check_kind("each of moves", move, Move)
        return await self._moves.carried_out(group, wanted)

    async def clone(self, source: str, target: str, *, topic: str | None = None) -> Sequence[str]:
        """Give ``target`` the offsets of ``source``, in one topic or in all; returns the names of the
        brokers.

        Raises:
            ValidationError: ``source`` has no committed offset in the topic, or at all; nothing is done.
            IncompleteError: some brokers have set the offsets, another one refuses or does not answer.
            BrokerError, TransportError, NameServerError: no broker has set the offsets, or no name server
                answers.
        """
        state = headers.GetConsumeStatsRequest(consumer_group=source, topic=topic or "")

        async def clone_at(broker: BrokerInfo) -> bool:
            """Whether the source group has offsets at the broker; if so, they are cloned."""
            answer = await self._cluster.ask_unless(
                broker.address, state.command(), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
            table = {} if answer is None else ConsumeStats.decode(answer.body).offset_table
            topics: set[str | None] = {topic} if table else set()
            if topic is None and not self._cluster.is_orbitmq(broker.address):
                # Asked about all topics, Apache's brokers answer with success and set no offset.
                topics = {queue.topic for queue in table if not queue.topic.startswith(RETRY_PREFIX)}

            async def clone_in(one: str | None) -> None:
                request = headers.CloneGroupOffsetRequest(
                    src_group=source, dest_group=target, topic=one, offline=True
                )
                await self._cluster.ask(broker.address, request.command())

            await side_by_side(topics, clone_in)
            return bool(topics)

        answers = await self._cluster.at_each(await self._cluster.leaders(), clone_at)
        cloned = [broker.name for broker, has_offsets in answers.pairs if has_offsets]
        if not (cloned or answers.left_out):
            where = f" in topic {topic}" if topic else ""
            raise ValidationError(f"group {source} has committed no offset{where}")
        return answers.partial(cloned, NOT_DONE).whole()


def _details(
    group: str, settings: Mapping[str, GroupSettings], online: Sequence[ConsumerConnection]
) -> GroupDetails:
    members = {
        one.client_id: Member(one.client_id, one.client_addr, one.language, one.version)
        for found in online
        for one in found.connection_set
    }
    conflicts = {
        (c.topic, c.client_id, c.other_client_id): Conflict(
            c.topic, c.client_id, c.wanted, c.other_client_id, c.other_wanted
        )
        for found in online
        for c in found.conflicts or ()
    }
    first = online[0] if online else ConsumerConnection()
    return GroupDetails(
        group,
        settings,
        [members[name] for name in sorted(members)],
        {
            topic: Subscription(data.expression_type, data.sub_string)
            for found in online
            for topic, data in sorted(found.subscription_table.items())
        },
        list(conflicts.values()),
        sum(found.conflict_count or 0 for found in online),
        str(first.consume_type or ""),
        str(first.message_model or ""),
    )


def _lag(queue: MessageQueue, progress: OffsetWrapper, waits_ms: int, *, online: bool) -> QueueLag:
    """The lag in a queue. ``online``: whether the group has a member, which may have fetched messages."""
    committed, end = progress.consumer_offset, progress.broker_offset
    popped = progress.pop_in_flight
    fetched = max(0, progress.pull_offset - committed) if online else 0
    in_flight = fetched + (popped or 0)
    age = waits_ms / 1000 if end > committed or popped else 0.0
    return QueueLag(queue, committed, end, in_flight, age, popped)


def unknown_group(group: str, brokers: Sequence[BrokerInfo]) -> BrokerError:
    """The error for a group that no broker has."""
    return lacking(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no broker has the group {group}", brokers)
