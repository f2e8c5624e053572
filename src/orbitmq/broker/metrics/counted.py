"""Writes the metrics of events that the broker counts when they happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from orbitmq.broker.counts import Counts
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message.reserved import is_system_group
from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.tasks import in_slices

# How many series are written before the event loop gets time for other work: less than a millisecond.
PER_TURN = 200
Attached: TypeAlias = Callable[[Exposition], Awaitable[None]]

_STORED_ON = {"storage_type": "local", "storage_medium": "disk"}


class CountedMetrics:
    """Writes the metrics of :class:`Counts`, and those that attached parts count for themselves.

    Args:
        attached: the figures of these parts; grows while parts are attached.
    """

    def __init__(self, counts: Counts, topics: TopicConfigs, attached: Sequence[Attached]) -> None:
        self._counts = counts
        self._topics = topics
        self._attached = attached

    async def write(self, text: Exposition) -> None:
        """Add all metrics that are counted."""
        self._creations(text)
        await self._by_topic(text)
        await self._by_group(text)
        for write in self._attached:
            await write(text)

    def _creations(self, text: Exposition) -> None:
        family = text.family(
            "rocketmq_topic_create_execution_time_milliseconds",
            "histogram",
            "How long creations of topics took",
        )
        for (success, system), found in self._counts.topic_ms.items():
            family.add_histogram(found, invocation_status=_status(success), is_system=str(system).lower())
        family = text.family(
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "histogram",
            "How long creations of groups took",
        )
        for success, found in self._counts.group_ms.items():
            family.add_histogram(found, invocation_status=_status(success))

    async def _by_topic(self, text: Exposition) -> None:
        counts = self._counts
        for name, meaning, found, common in (
            ("rocketmq_commit_messages_total", "Transactions that were committed", counts.committed, {}),
            ("rocketmq_rollback_messages_total", "Transactions that were rolled back",
             counts.rolled_back, {}),
            ("rocketmq_timer_enqueue_total", "Timer messages that began to wait", counts.timers_in,
             _STORED_ON),
            ("rocketmq_timer_dequeue_total", "Timer messages that were delivered", counts.timers_out,
             _STORED_ON),
        ):  # fmt: skip
            family = text.family(name, "counter", meaning, **common)
            async for topic, number in in_slices(list(found.items()), PER_TURN):
                family.add(number, topic=topic)
        family = text.family(
            "rocketmq_finish_message_latency_milliseconds",
            "histogram",
            "From the birth of a half message to its commit, in seconds whatever the name says",
        )
        async for topic, finished in in_slices(list(counts.finish_s.items()), PER_TURN // 10):
            family.add_histogram(finished, topic=topic)

        family = text.family(
            "rocketmq_delay_message_latency_seconds",
            "histogram",
            "From the birth of a timer message to its time",
            **_STORED_ON,
        )
        async for topic, waits in in_slices(list(counts.timer_wait_s.items()), PER_TURN // 10):
            family.add_histogram(waits, topic=topic)

    async def _by_group(self, text: Exposition) -> None:
        revived = text.family(
            "rocketmq_pop_revive_retry_messages_total",
            "counter",
            "Popped messages that were not acknowledged in time, put into a retry topic",
        )
        async for (group, topic), number in in_slices(list(self._counts.revived.items()), PER_TURN):
            revived.add(number, consumer_group=group, topic=topic, put_status="PUT_OK")
        family = text.family(
            "rocketmq_send_to_dlq_messages_total", "counter", "Messages that became dead letters"
        )
        async for (group, topic), number in in_slices(list(self._counts.dead.items()), PER_TURN):
            system = str(self._topics.is_system(topic) or is_system_group(group)).lower()
            family.add(number, consumer_group=group, topic=topic, is_system=system)


def _status(success: bool) -> str:
    return "success" if success else "failure"
