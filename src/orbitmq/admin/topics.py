"""Operations on topics: their list, routes and offsets, and their creation and deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from orbitmq.admin.answers import IncompleteError, Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.model import QueueStatus, RouteEntry, TopicSettings
from orbitmq.admin.tables import Tables
from orbitmq.durations import instant
from orbitmq.errors import ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    TOOLS_GROUP,
    is_own_topic,
)
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import QueryConsumeTimeSpanBody, TopicStatsTable
from orbitmq.wire.bodies.topic import TopicFilterType, TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wording import counted

if TYPE_CHECKING:
    from datetime import datetime


@checks_arguments
class TopicAdmin:
    """Operations on topics, as ``Admin.topics``."""

    def __init__(self, cluster: ClusterClient, tables: Tables[TopicSettings]) -> None:
        self._cluster = cluster
        self._tables = tables

    async def list(self, *, cluster: str | None = None) -> Sequence[str]:
        """Names of all topics, or of the topics with queues in ``cluster``, sorted.

        Raises:
            NameServerError: no name server answers.
        """
        if cluster is None:
            command: Callable[[], Command] = partial(Command, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            command = headers.GetTopicsByClusterRequest(cluster=cluster).command
        found = await self._cluster.name_servers.ask(command, TopicList.decode, self._cluster.timeout_ms)
        return sorted(found.topic_list)

    async def settings(
        self, *, cluster: str | None = None
    ) -> Partial[Mapping[str, Mapping[str, TopicSettings]]]:
        """The settings of every topic, by topic and broker, without RocketMQ's own topics, retry topics and
        dead letters.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        brokers = await self._cluster.leaders(cluster)
        own = {name for broker in brokers for name in (broker.name, broker.cluster)}
        own |= {f"{broker.cluster}{REPLY_TOPIC_SUFFIX}" for broker in brokers}
        answers = await self._cluster.at_each(brokers, self._tables.of)
        found: dict[str, dict[str, TopicSettings]] = {}
        for broker, table in answers.pairs:
            for name, settings in table.items():
                if name in found or not (
                    name in own or is_own_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX))
                ):
                    found.setdefault(name, {})[broker.name] = settings
        return answers.partial(dict(sorted(found.items())))

    async def route(self, topic: str) -> Sequence[RouteEntry]:
        """The brokers with queues of ``topic``, sorted by broker name.

        Raises:
            TopicNotFoundError: the name servers do not have the topic.
            NameServerError: no name server answers.
        """
        return await self._cluster.route(topic)

    async def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        perm: int = 6,
        cluster: str | None = None,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> Sequence[str]:
        """Create ``topic``, or change it, on every master of ``cluster`` (default: of all clusters).

        Args:
            queues: read and write queues on each broker group.
            perm: sum of read 4 and write 2.
            attributes: for example ``{"message.type": "FIFO"}``.

        Returns:
            Names of the brokers at which the topic was created or changed.

        Raises:
            ValidationError: the topic already has more queues (see :meth:`would_hide`); nothing is done.
            IncompleteError: some brokers have made the change, another one refuses or does not answer.
            BrokerError, TransportError: no broker has made the change; the error of the first one.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._cluster.masters(cluster)
        if hidden := await self.would_hide(topic, queues, cluster=cluster):
            raise ValidationError(hidden)
        header = headers.UpdateAndCreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type=TopicFilterType.SINGLE_TAG,
            topic_sys_flag=0,
            order=order,
            attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()) or None,
        )
        return await self._cluster.tell_all(masters, header.command())

    async def would_hide(self, topic: str, queues: int, *, cluster: str | None = None) -> str:
        """A sentence about the messages of ``topic`` that a change to ``queues`` queues would hide; empty if
        it hides none.

        Raises:
            NameServerError: no name server answers, or it knows no master.
        """
        names = {broker.name for broker in await self._cluster.masters(cluster)}
        route = await self._cluster.name_servers.topic_route(topic, self._cluster.timeout_ms)
        for data in () if route is None else route.queue_datas:
            before = data.read_queue_nums
            if before > queues and data.broker_name in names:
                last = f"queues {queues} to {before - 1}" if queues < before - 1 else f"queue {queues}"
                return (
                    f"topic {topic} has {counted(before, 'queue')} on {data.broker_name}; with {queues} no "
                    f"consumer gets the messages in {last} any more. Keep {before} queues, or send to a new "
                    "topic and delete this one when it is consumed"
                )
        return ""

    async def delete(self, topic: str, *, cluster: str | None = None) -> Sequence[str]:
        """Delete ``topic`` and its messages on every master of ``cluster`` (default: of all clusters).

        Returns:
            Names of the brokers that have deleted the topic.

        Raises:
            ValidationError: a broker group has no master online, which would bring the topic back. Nothing is
                done.
            IncompleteError: some brokers have deleted the topic, another one refuses or does not answer, and
                the name servers still list the topic; or a name server did not confirm the deletion. The same
                call finishes it later.
            BrokerError, TransportError: no broker has deleted it; the error of the first one.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._cluster.every_master(cluster)
        at_broker = headers.DeleteTopicInBrokerRequest(topic=topic)
        names = await self._cluster.tell_all(masters, at_broker.command())
        at_name_server = headers.DeleteTopicInNamesrvRequest(topic=topic, cluster_name=cluster)
        unreached = await self._cluster.tell_name_servers(at_name_server.command())
        if unreached:
            raise IncompleteError(Partial(names, unreached), "not all name servers took it")
        return names

    async def status(self, topic: str, *, cluster: str | None = None) -> Partial[Sequence[QueueStatus]]:
        """Offsets of every queue of ``topic`` in ``cluster`` (default: in all), by broker and queue id.

        Raises:
            TopicNotFoundError: the name servers do not have the topic.
            BrokerError, TransportError: no broker answers; the error of the first one.
            NameServerError: no name server answers.
        """
        brokers = [
            broker for broker in await self._cluster.readers(topic) if cluster in (None, broker.cluster)
        ]
        request = headers.GetTopicStatsInfoRequest(topic=topic).command()
        answers = await self._cluster.ask_all(
            brokers,
            request,
            lambda _, answer: TopicStatsTable.decode(answer.body).offset_table,
            without=ResponseCode.TOPIC_NOT_EXIST,
        )
        found = [
            QueueStatus(queue, offsets.min_offset, offsets.max_offset, _newest(offsets.last_update_timestamp))
            for _, table in answers.pairs
            for queue, offsets in table.items()
        ]
        return answers.partial(sorted(found, key=lambda status: status.queue))

    async def oldest(self, topic: str) -> Partial[Mapping[MessageQueue, datetime]]:
        """The store time of the oldest message of each queue of ``topic``, without empty queues.

        Raises:
            TopicNotFoundError, BrokerError, TransportError, NameServerError: as :meth:`status`.
        """
        # The request is also about a group's position; for a group without offsets that is the first message.
        request = headers.QueryConsumeTimeSpanRequest(topic=topic, group=TOOLS_GROUP).command()
        answers = await self._cluster.ask_all(
            await self._cluster.readers(topic),
            request,
            lambda _, answer: _oldest(answer.body),
            without=ResponseCode.TOPIC_NOT_EXIST,
        )
        return answers.partial({queue: at for _, own in answers.pairs for queue, at in own.items()})


def _oldest(body: bytes) -> Mapping[MessageQueue, datetime]:
    return {
        span.message_queue: instant(span.min_time_stamp)
        for span in QueryConsumeTimeSpanBody.decode(body).consume_time_span_set
        if span.message_queue is not None and span.min_time_stamp > 0
    }


def _newest(time_ms: int) -> datetime | None:
    return instant(time_ms) if time_ms > 0 else None
