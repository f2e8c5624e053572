"""Answers to administrators and slaves about timers."""

from __future__ import annotations

from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleState
from orbitmq.broker.timers import forms
from orbitmq.broker.timers.pending import TOPIC
from orbitmq.broker.timers.progress import due_of
from orbitmq.broker.timers.service import TimerService
from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import in_slices
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.stats import LateTimer, TimerMetric, TimerMetricsSerializeWrapper

TOPICS_PER_TURN = 500
# RocketMQ's bounds of the times until messages are due: a day at most.
BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
STORED_ON = {"storage_type": "local", "storage_medium": "disk"}


class TimerInspection:
    """Looks at waiting messages, and changes nothing."""

    def __init__(
        self,
        clock: Clock,
        store: MessageStore,
        role: RoleState,
        topics: TopicConfigs,
        timers: TimerService,
    ) -> None:
        self._clock = clock
        self._store = store
        self._role = role
        self._topics = topics
        self._timers = timers

    def check_point(self) -> bytes:
        """The body of GET_TIMER_CHECK_POINT."""
        return self._timers.written.check.encode()

    def state(self) -> dict[str, str]:
        """Lines of the broker's state: seconds behind, messages not looked at, waiting messages."""
        pending = self._timers.pending
        late_ms = 0 if pending.first is None else self._clock.now_ms() - due_of(pending.first)
        waiting = sum(pending.waiting.values())
        return {
            "timerReadBehind": str(max(0, late_ms) // 1000),
            "timerOffsetBehind": str(pending.behind),
            "timerCongestNum": str(max(0, waiting)),
        }

    async def write(self, text: Exposition) -> None:
        """Add figures about waiting timer messages, if this broker delivers them."""
        if not self._role.leads:
            return
        pending, waiting = self._timers.pending, self._timers.pending.waiting
        unread_ms = self._store.store_time(TOPIC, 0, pending.position) if pending.behind else 0
        late_ms = self._clock.now_ms() - unread_ms if unread_ms > 0 else 0
        text.family(
            "rocketmq_timer_enqueue_latency_milliseconds",
            "gauge",
            "Age of the oldest timer message that was not looked at yet",
            **STORED_ON,
        ).add(max(0, late_ms))
        text.family(
            "rocketmq_timer_dequeue_lag",
            "gauge",
            "Timer messages that are due, not delivered yet",
            **STORED_ON,
        ).add(pending.begun)
        ahead = text.family(
            "rocketmq_timer_message_snapshot",
            "gauge",
            "Timer messages that are due within so many seconds, and not within the bound before",
            **STORED_ON,
        )
        for bound, number in zip(BOUNDS_S, pending.ahead(self._clock.now_ms(), BOUNDS_S), strict=True):
            ahead.add(number, timer_bound_s=str(bound))
        family = text.family(
            "rocketmq_timing_messages", "gauge", "Timer messages that wait for their time", **STORED_ON
        )
        async for topic in in_slices(list(self._topics) if waiting else (), TOPICS_PER_TURN):
            if number := waiting.get(forms.topic_hash(topic.topic_name), 0):
                family.add(max(0, number), topic=topic.topic_name)

    async def metrics(self, *, detailed: bool) -> bytes:
        """The body of GET_TIMER_METRICS.

        Args:
            detailed: whether to add what Apache's broker does not have: the messages due by minute, and the
                oldest late message.
        """
        now = self._clock.now_ms()
        waiting = self._timers.pending.waiting
        counts = {}
        async for topic in in_slices(list(self._topics), TOPICS_PER_TURN):
            hashed = forms.topic_hash(topic.topic_name)
            if hashed in waiting:
                counts[topic.topic_name] = TimerMetric(max(0, waiting[hashed]), now)
        body = TimerMetricsSerializeWrapper(timing_count=counts, data_version=self._timers.written.version)
        if detailed:
            body.pending_by_minute = {
                str(at): number for at, number in self._timers.pending.minutes().items()
            }
            body.oldest_late = self._oldest_late(now)
        return body.encode()

    def _oldest_late(self, now: int) -> LateTimer | None:
        first = self._timers.pending.first
        if first is None or due_of(first) >= now:
            return None
        found = self._timers.message_of(first)
        topic, unique_id = ("", "") if found is None else (found.topic, found.unique_id)
        return LateTimer(topic, unique_id, due_of(first))
