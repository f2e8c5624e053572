"""Queues for tests of the store's inner loops."""

from __future__ import annotations

from orbitmq.store.log.appender import Appender
from orbitmq.store.queues import layout


def add_slot(appender: Appender, next_offset: int, min_offset: int) -> int:
    """A new queue whose file holds the entries up to ``next_offset``; returns its slot number."""
    slot = appender.add_slots(1)
    appender.reset_slot(slot, next_offset, min_offset)
    appender.set(slot, layout.Q_COUNTS, 0)
    return slot
