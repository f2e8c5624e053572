"""Base of consumers that share queues with their group: life, subscriptions, pauses, progress."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import suppress

from orbitmq.client.consumer.admin_requests import PushMember
from orbitmq.client.consumer.allocation import ByBroker
from orbitmq.client.consumer.assigned_queues import AssignedQueues
from orbitmq.client.consumer.assignment_watch import AssignmentWatch
from orbitmq.client.consumer.filter_checks import Checked, FilterChecks
from orbitmq.client.consumer.intake import FetchControl
from orbitmq.client.consumer.membership import Membership, tag_filter
from orbitmq.client.consumer.mode import ConsumeMode, assemble
from orbitmq.client.consumer.offsets import LocalOffsets
from orbitmq.client.consumer.options import ConsumerOptions
from orbitmq.client.consumer.popped_queues import PoppedQueues
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.consumer.queue_locks import FIRST_RENEWAL_S, RENEW_EVERY_S
from orbitmq.client.consumer.rebalance import Rebalancer
from orbitmq.client.consumer.topic_patterns import LOOK_EVERY_S, TopicPatterns
from orbitmq.client.core.broker_calls import Filter, PullOptions, QueueOffset
from orbitmq.client.core.pop_calls import PopOptions
from orbitmq.client.hooks import ConsumeHooks
from orbitmq.client.life import AsyncContext, ClientState
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.observe.trace import ConsumeTrace
from orbitmq.client.producer.inner import InternalProducer, make_tracer
from orbitmq.client.validation import check_topic
from orbitmq.durations import as_seconds
from orbitmq.errors import ClientStateError
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.reserved import INNER_PRODUCER_GROUP, retry_topic
from orbitmq.parameters import refuses_unknown
from orbitmq.runtime.tasks import Background, every
from orbitmq.wire.bodies.client import ConsumeMessageDirectlyResult

COMMIT_EVERY_S = 5.0


@refuses_unknown
class GroupConsumer(AsyncContext):
    """A member of a group, which pulls its share of the queues. Subclasses hand the messages to the user's
    code.

    Args:
        settings: the consumer's options.
        mode: the consume mode.
    """

    def __init__(self, group: str, settings: ConsumerOptions, mode: ConsumeMode) -> None:
        self._membership = membership = Membership(group, settings, settings.consume_timestamp)
        self.group = group = membership.group
        self._namespace, self._client = membership.namespace, membership.client
        self._settings = settings
        self._sender = InternalProducer(self._client, INNER_PRODUCER_GROUP)
        self._trace_sender, self._tracer = make_tracer(self._client, settings.trace)
        hooks = tuple(settings.hooks)
        if self._tracer is not None:
            hooks = (*hooks, ConsumeTrace(self._tracer, self._namespace))
        clock = self._client.runtime.clock
        self._hooks = ConsumeHooks(group, hooks, clock, mode.consume_timeout_s) if hooks else None
        self._filters: dict[str, Filter] = {}
        self._filter_checks = FilterChecks(membership)
        self._patterns = TopicPatterns(
            membership, self._filters.keys(), lambda topic, tags, sql: self.subscribe(topic, tags, sql=sql)
        )
        self._background = Background(f"consumer {group}")
        # A separate set of tasks: messages settled at the last moment go to the brokers after all other tasks
        # have ended.
        self._settling = Background(f"settling of {group}")
        self._paused: set[str] | None = set()
        self._life = ClientState(f"consumer {group!r}")
        # The tasks that run the user's handlers.
        self._workers: set[asyncio.Task[None]] = set()
        self._mode = mode
        self._watch = AssignmentWatch(
            group, settings.on_assigned, settings.on_revoked, self._client.runtime.threads
        )
        self._assemble()

    def _assemble(self) -> None:
        calls, group, settings = self._membership.calls, self.group, self._settings
        limits = settings.limits or FlowLimits()
        self._intake = FetchControl(self._filters)
        parts = assemble(
            self._mode,
            self._client,
            calls,
            group,
            self._namespace,
            self._sender.send,
            self._lock_lost,
            self._settling.spawn,
            self._hooks,
        )
        self._offsets, self._delivery, self._locks = parts.offsets, parts.delivery, parts.locks
        self._queues = AssignedQueues(
            self._client,
            calls,
            self._background,
            self._offsets,
            self._delivery,
            self._intake,
            PullOptions(
                group, settings.pull_batch_size, commits=self._mode.commits_with_pulls, lite=self._mode.pulls
            ),
            limits,
            self._start_offset,
            self._locks,
            self._mode.consume_timeout_s,
        )
        self._popped = self._may_pop(limits)
        allocate = None if settings.broadcast else settings.allocate
        self._rebalancer = Rebalancer(
            self._client, calls, group, self._queues, self._popped, allocate, self._queues_changed
        )
        self._member = PushMember(
            self._membership,
            self._mode,
            self._filters,
            self._queues,
            self._popped,
            self._offsets,
            rebalance_soon=self._rebalancer.soon,
            consume=self._consume_now,
        )

    def _may_pop(self, limits: FlowLimits) -> PoppedQueues | None:
        """The queues that this consumer pops when its broker sets the group to popping; None if it never
        pops.
        """
        settings, mode = self._settings, self._mode
        by_hand = mode.pulls and not mode.auto_commit  # a popped message has no offset to commit
        if by_hand or mode.broadcast or not isinstance(settings.allocate, ByBroker):
            return None
        return PoppedQueues(
            self._client,
            self._membership.calls,
            self._background,
            self._intake,
            self._delivery,
            PopOptions(self.group, settings.consume_from is not ConsumeFrom.FIRST, mode.ordered),
            limits,
            batch_size=settings.pop_batch_size,
            invisible_s=as_seconds(settings.pop_invisible_for),
            most_redeliveries=mode.max_reconsume_times if mode.max_reconsume_times >= 0 else None,
        )

    async def _start_offset(self, queue: MessageQueue, leader: str | None) -> QueueOffset:
        if not self._settings.broadcast:
            return await self._membership.start_offset(queue, leader)
        known = self._offsets.get(queue)
        if known >= 0:
            # The file does not hold the creation stamp of the topic.
            return QueueOffset(known, (await self._membership.calls.min_offset(queue)).made_at)
        return await self._membership.first_offset(queue)

    async def _lock_lost(self, queue: MessageQueue) -> None:
        await self._queues.drop(queue)
        self._queues_changed()
        self._rebalancer.soon()

    def _queues_changed(self) -> None:
        if self._watch.wanted and self._life.running:
            self._background.spawn(self._watch.tell(self.assignment), "assignment")

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and begin to consume. Subscriptions may be made before or after.

        Raises:
            ClientStateError: the consumer was started before or was closed meanwhile, or the client has a
                consumer of the group already. In broadcasting: another member has the same progress file.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        with self._life.starting():
            self._client.register_consumer(self.group, self._member)
        self._member.started_ms = self._now_ms()
        self._delivery.start()
        if self._popped is not None:
            self._popped.start()
        await self._client.start()
        try:
            await self._filter_checks.check_all(self._filters)
            if isinstance(self._offsets, LocalOffsets):
                await self._offsets.load()
            self._life.check_here()  # raises if the consumer was closed meanwhile
        except BaseException:
            # Leave the group after a cancellation, too: otherwise a member that reads nothing would keep its
            # queues.
            await self.close()
            raise
        await self._begin()

    async def _begin(self) -> None:
        clock = self._client.runtime.clock
        if self._tracer is not None:
            await self._tracer.start()
        self._read_retries()
        if self._locks is not None:
            renewals = every(clock, RENEW_EVERY_S, self._locks.renew, first_s=FIRST_RENEWAL_S)
            self._background.spawn(renewals, "locks")
        self._background.spawn(self._rebalancer.run(), "rebalance")
        self._background.spawn(every(clock, LOOK_EVERY_S, self._patterns.look, first_s=0), "topics")
        self._background.spawn(every(clock, COMMIT_EVERY_S, self._offsets.commit_periodically), "commit")
        self._background.spawn(every(clock, self._delivery.expiry_s, self._expire), "expiry")

    def _read_retries(self) -> None:
        """Subscribe to the group's retry topic. Broadcasting has no retry topic."""
        if not isinstance(self._offsets, LocalOffsets):
            self._filters.setdefault(retry_topic(self.group), tag_filter("*", self._now_ms()))
            self._client.watch(retry_topic(self.group))

    async def close(self) -> None:
        """Stop pulling, let running handler calls end, commit the offsets and leave the group.

        A cancelled call closes the consumer all the same; a second call waits until it is closed.
        """
        await self._life.end(self._leave, self._workers)

    async def _leave(self) -> None:
        self._delivery.close()
        self._filter_checks.close()
        await self._background.stop()
        await self._user_code_ended()
        await self._settling.ended(as_seconds(self._settings.close_timeout))
        await self._queues.close()
        if isinstance(self._offsets, LocalOffsets):
            await self._offsets.close()
        if self._popped is not None:
            await self._popped.close(as_seconds(self._settings.close_timeout))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._watch.tell(tuple), as_seconds(self._settings.close_timeout))
        await self._client.unregister_consumer(self.group)
        if self._tracer is not None:
            await self._tracer.close()
        for sender in (self._sender, self._trace_sender):
            if sender is not None:
                await sender.close()
        await self._client.close()

    async def _user_code_ended(self) -> None:
        """Wait for the handlers that still work on messages. Subclasses override this."""

    async def _consume_now(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult | None:
        """Handle this message at once, outside its queue, for an operator; None if the consumer has no
        handler.
        """
        return None

    async def _expire(self) -> None:
        popped = self._popped.process_queues() if self._popped is not None else ()
        await self._delivery.expire([*self._queues.process_queues().values(), *popped])

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(
        self, topic: str | re.Pattern[str], tags: str = "*", *, sql: str | None = None
    ) -> Awaitable[None]:
        """Receive the messages of ``topic``; replaces an earlier subscription to it.

        Args:
            topic: a name, or ``re.compile(...)`` for all topics whose whole name matches, also topics created
                later: the search is repeated every 30 s. System topics never match.
            tags: ``*`` for all, else ``a || b``.
            sql: an SQL92 expression over properties instead of tags. The topic's brokers are asked whether
                they can filter by it: await this call's result to get a refusal here; otherwise
                :meth:`start`, :meth:`run` or the iteration raises it before the first message.

        Raises:
            ValidationError: the topic or the expression is invalid.
            BrokerError: when awaited: a broker does not filter by SQL92 expressions (code 1), or the
                expression is invalid (code 23, with the place of the mistake).
        """
        if isinstance(topic, re.Pattern):
            self._patterns.add(topic, tags, sql)
            if self._life.running:
                self._background.spawn(self._patterns.look(), "topics")
            return Checked()
        topic = self._membership.full_topic(topic)
        self._filters[topic] = wanted = self._membership.wanted(tags, sql)
        self._client.watch(topic)
        self._subscriptions_changed()
        return self._filter_checks.begin(topic, wanted) if self._life.running else Checked()

    def unsubscribe(self, topic: str | re.Pattern[str]) -> None:
        """Stop receiving the messages of ``topic``, or of the topics that a pattern has found."""
        if isinstance(topic, re.Pattern):
            for found in self._patterns.remove(topic):
                self.unsubscribe(found)
            return
        check_topic(topic)
        self._filter_checks.forget(self._namespace.full(topic))
        if self._filters.pop(self._namespace.full(topic), None) is not None:
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        if self._life.running:
            self._background.spawn(self._announce(), "announce")

    async def _announce(self) -> None:
        # The brokers must have this member's subscriptions before the first pull.
        await self._client.heartbeat()
        await self._queues.drop_unwanted()
        if self._popped is not None:
            await self._popped.drop_unwanted()
        self._queues_changed()
        self._rebalancer.soon()

    def pause(self, *topics: str) -> None:
        """Stop pulling and handing out messages of these topics, or without arguments of all; the member
        stays in its group.

        Running handlers continue. Messages of a paused topic that were pulled before stay in memory and are
        delivered first afterwards; they do not count in the limit of all queues.
        """
        for topic in topics:
            check_topic(topic)
        self._set_paused(None if not topics or self._paused is None else self._paused | set(topics))

    def resume(self, *topics: str) -> None:
        """End the pause of these topics, or every pause.

        Raises:
            ClientStateError: a topic is named, but all topics are paused: only a call without arguments ends
                that pause.
        """
        for topic in topics:
            check_topic(topic)
        if topics and self._paused is None:
            raise ClientStateError(
                "all topics are paused by pause(); only resume() without a topic ends that"
            )
        self._set_paused(self._paused - set(topics) if topics and self._paused else set())

    def _set_paused(self, topics: set[str] | None) -> None:
        self._paused = topics
        # Queues carry the topic's name with the namespace, messages the name without it.
        self._intake.pause(None if topics is None else {self._namespace.full(topic) for topic in topics})
        self._queues.pauses_changed()
        if self._popped is not None:
            self._popped.pauses_changed()
        self._delivery.pause(None if topics is None else frozenset(topics) or ())

    # -- offsets ---------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit finished messages now. Failures of the commits every 5 s and at close are only logged.

        Raises:
            ClientStateError: the consumer is not running.
            OrbitError: the offset of a queue is not committed: its broker refused it or did not answer. In
                broadcasting: the file cannot be written. The next commit tries it again.
        """
        self._life.check_here()
        await self._offsets.commit()

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member works on now; queue id -1 stands for all queues of a broker, which are
        popped.
        """
        popped = self._popped.places() if self._popped is not None else ()
        return sorted([*self._queues.process_queues(), *popped])

    def _now_ms(self) -> int:
        return self._client.runtime.clock.now_ms()
