"""Adds timers to a broker: their parts, request handlers and append hooks."""

from __future__ import annotations

from orbitmq.broker.delay.delivered import ROLLED
from orbitmq.broker.events import DeliveriesLost
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.timers import TimerHandlers
from orbitmq.broker.timers.delivered import DeliveredTimers
from orbitmq.broker.timers.following import TimerFollower
from orbitmq.broker.timers.inspection import TimerInspection
from orbitmq.broker.timers.recall import Recall
from orbitmq.broker.timers.service import TimerService


def attach(host: Host) -> Attachment:
    """Attach delivery at any time, recalls, and their inspection by administrators."""
    s = host.services
    clock = s.runtime.clock
    delivered = DeliveredTimers(s.runtime.threads, s.store, s.config.broker_name)
    timers = TimerService(
        s.runtime, s.config, s.events, s.store, s.sink, s.topics, s.feed, delivered, s.counts
    )
    s.append.hooks.append(s.timer_hook.timed)

    def lost(event: DeliveriesLost) -> None:
        back = timers.written.take_back(event.deliveries)
        # The timer log may lack messages that wait again: they were dropped as delivered, or replaced by
        # their copies.
        if back or any(each.level == ROLLED for each in event.deliveries):
            timers.pending.rebuild(timers.written.saved)

    s.events.subscribe(DeliveriesLost, lost)
    inspection = TimerInspection(clock, s.store, s.role, s.topics, timers)
    recall = Recall(clock, s.config, s.role, s.topics, s.append, timers)
    return Attachment(
        components=[timers, TimerFollower(clock, s.config, timers.pending, timers.written)],
        families=[TimerHandlers(s.config, recall, inspection)],
        status=inspection.state,
        figures=inspection.write,
        offers=[recall],
    )
