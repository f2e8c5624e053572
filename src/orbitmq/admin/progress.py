"""How far all groups are, with one question to each broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orbitmq.admin.answers import Answers, Partial
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import SYSTEM_GROUPS, is_system_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import ConsumeStats, ConsumeStatsList

_Listed: TypeAlias = list[dict[str, list[ConsumeStats]]]


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue.

    Attributes:
        committed: the committed offset, that of the next message for the group.
        end: the offset of the next message to be stored.
        popped: messages below ``committed`` that were popped and not acknowledged; ``None``: the group does
            not pop the queue, or the broker is RocketMQ's and does not tell.
    """

    group: str
    queue: MessageQueue
    committed: int
    end: int
    popped: int | None = None

    @property
    def lag(self) -> int:
        """Messages that are not consumed, those in flight included."""
        return max(0, self.end - self.committed) + (self.popped or 0)


async def progress_of_all(cluster: ClusterClient, name: str | None) -> Partial[Sequence[QueueProgress]]:
    """See :meth:`orbitmq.admin.GroupAdmin.progress`. ``name``: only in this cluster."""
    answers = await _asked(cluster, name)
    found = [one for _, listed in answers.pairs for one in _of_queues(listed)]
    return answers.partial(sorted(found, key=lambda one: (one.group, one.queue)))


async def lags_of_all(cluster: ClusterClient, name: str | None) -> Partial[Mapping[str, int]]:
    """The lag of each group, by its name. ``name``: only in this cluster."""
    answers = await _asked(cluster, name)
    found: dict[str, int] = {}
    for _, listed in answers.pairs:
        for one in _of_queues(listed):
            found[one.group] = found.get(one.group, 0) + one.lag
    return answers.partial(dict(sorted(found.items())))


async def _asked(cluster: ClusterClient, name: str | None) -> Answers[_Listed]:
    return await cluster.ask_all(
        await cluster.leaders(name),
        headers.GetBrokerConsumeStatsRequest(is_order=False).command(),
        lambda _, answer: ConsumeStatsList.decode(answer.body).consume_stats_list,
    )


def _of_queues(listed: _Listed) -> Iterator[QueueProgress]:
    for groups in listed:
        for group, topics in groups.items():
            if not (is_system_group(group) or group in SYSTEM_GROUPS):
                for stats in topics:
                    for queue, offsets in stats.offset_table.items():
                        yield QueueProgress(
                            group,
                            queue,
                            offsets.consumer_offset,
                            offsets.broker_offset,
                            offsets.pop_in_flight,
                        )
