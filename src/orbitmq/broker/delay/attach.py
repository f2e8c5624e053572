"""Adds the delay levels to a broker."""

from __future__ import annotations

from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.delay.search import DeliverySearch
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.events import SettingsChanged
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.delays import DelayHandlers


def attach(host: Host) -> Attachment:
    """Attach the schedule topic and its delivery."""
    s = host.services
    clock = s.runtime.clock
    delays = DelayProgress(clock, s.levels.highest, s.feed, s.config.delay_version_step)
    search = DeliverySearch(clock, s.runtime.threads, s.store, s.config.broker_name, s.levels, delays)
    schedule = ScheduleService(
        clock, s.config.broker_name, s.events, s.store, s.sink, s.topics, s.levels, delays, search
    )
    s.append.hooks.append(s.levels.delayed)

    def settings_changed(_event: SettingsChanged) -> None:
        delays.version_step = s.config.delay_version_step

    s.events.subscribe(SettingsChanged, settings_changed)
    return Attachment(components=[schedule], families=[DelayHandlers(delays)], status=schedule.state)
