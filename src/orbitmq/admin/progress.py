"""The progress of groups: of all groups with one request per broker, or of the groups that read one topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orbitmq.admin.answers import Answers, Partial
from orbitmq.admin.cluster_client import ClusterClient, side_by_side
from orbitmq.admin.model import BrokerInfo
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import is_built_in_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from orbitmq.wire.bodies.topic import GroupList
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

_Listed: TypeAlias = list[dict[str, list[ConsumeStats]]]


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group in one queue.

    Attributes:
        committed: the committed offset, which is the offset of the next message for the group.
        end: the offset of the next message to be stored.
        popped: messages below ``committed`` that were popped and not acknowledged; ``None`` if the group does
            not pop the queue, or the broker is Apache's and does not report the number.
    """

    group: str
    queue: MessageQueue
    committed: int
    end: int
    popped: int | None = None

    @property
    def lag(self) -> int:
        """Number of unconsumed messages, those in flight included."""
        return max(0, self.end - self.committed) + (self.popped or 0)


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The progress of a group in all queues of a topic at one broker.

    Attributes:
        lag: number of unconsumed messages, those in flight included.
        end: the sum of the queues' next offsets.
    """

    group: str
    topic: str
    broker_name: str
    lag: int
    end: int


async def progress_of_all(cluster: ClusterClient, name: str | None) -> Partial[Sequence[QueueProgress]]:
    """See :meth:`orbitmq.admin.GroupAdmin.progress`. ``name``: the cluster; None for all."""
    answers: Answers[_Listed] = await cluster.ask_all(
        await cluster.leaders(name),
        headers.GetBrokerConsumeStatsRequest(is_order=False).command(),
        lambda _, answer: ConsumeStatsList.decode(answer.body).consume_stats_list,
    )
    found = [one for _, listed in answers.pairs for one in _of_queues(listed)]
    return answers.partial(sorted(found, key=lambda one: (one.group, one.queue)))


async def progress_in(
    cluster: ClusterClient, name: str | None, topic: str
) -> Partial[Sequence[QueueProgress]]:
    """The progress in one topic. Each broker is asked for the groups that read the topic, and then for each
    group's progress.
    """

    async def look(broker: BrokerInfo) -> Sequence[QueueProgress]:
        answer = await cluster.ask_unless(broker.address, _readers(topic), ResponseCode.TOPIC_NOT_EXIST)
        groups = () if answer is None else GroupList.decode(answer.body).group_list

        async def one(group: str) -> Sequence[QueueProgress]:
            # The request names no topic: with a topic, a broker also lists queues without a commit of the
            # group.
            request = headers.GetConsumeStatsRequest(consumer_group=group).command()
            told = await cluster.ask_unless(
                broker.address, request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
            table = {} if told is None else ConsumeStats.decode(told.body).offset_table
            return [_of_queue(group, queue, offsets) for queue, offsets in table.items()]

        each = await side_by_side([group for group in groups if not is_built_in_group(group)], one)
        return [queue for some in each for queue in some if queue.queue.topic == topic]

    answers = await cluster.at_each(await cluster.leaders(name), look)
    found = [one for _, some in answers.pairs for one in some]
    return answers.partial(sorted(found, key=lambda one: (one.group, one.queue)))


async def topic_lags_of_all(cluster: ClusterClient, name: str | None) -> Partial[Sequence[TopicLag]]:
    """The lag of each group in each topic by broker. ``name``: the cluster; None for all.

    OrbitMQ's brokers return sums over the queues. Apache's brokers ignore the field ``sumBy`` and list every
    queue.
    """
    request = headers.GetBrokerConsumeStatsRequest(is_order=False).command()
    request.ext["sumBy"] = "topic"
    answers = await cluster.ask_all(await cluster.leaders(name), request, _topic_lags)
    return answers.partial([one for _, found in answers.pairs for one in found])


async def lags_of_all(cluster: ClusterClient, name: str | None) -> Partial[Mapping[str, int]]:
    """The lag of each group, by the group's name. ``name``: the cluster; None for all."""
    answer = await topic_lags_of_all(cluster, name)
    return Partial(dict(sorted(by_group(answer.found).items())), answer.left_out)


def by_group(lags: Sequence[TopicLag]) -> dict[str, int]:
    """Each group's lag: the sum over its topics and brokers."""
    found: dict[str, int] = {}
    for one in lags:
        found[one.group] = found.get(one.group, 0) + one.lag
    return found


def _topic_lags(broker: BrokerInfo, answer: Command) -> Sequence[TopicLag]:
    body = ConsumeStatsList.decode(answer.body)
    if body.sums is not None:
        return [
            TopicLag(group, topic, broker.name, one.lag, one.end)
            for group, topics in body.sums.items()
            if not is_built_in_group(group)
            for topic, one in topics.items()
        ]
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for one in _of_queues(body.consume_stats_list):
        key = one.group, one.queue.topic
        lag, end = sums.get(key, (0, 0))
        sums[key] = lag + one.lag, end + one.end
    return [TopicLag(group, topic, broker.name, *found) for (group, topic), found in sums.items()]


def _readers(topic: str) -> Command:
    return headers.QueryTopicConsumeByWhoRequest(topic=topic).command()


def _of_queues(listed: _Listed) -> Iterator[QueueProgress]:
    for groups in listed:
        for group, topics in groups.items():
            if not is_built_in_group(group):
                for stats in topics:
                    for queue, offsets in stats.offset_table.items():
                        yield _of_queue(group, queue, offsets)


def _of_queue(group: str, queue: MessageQueue, offsets: OffsetWrapper) -> QueueProgress:
    return QueueProgress(group, queue, offsets.consumer_offset, offsets.broker_offset, offsets.pop_in_flight)
