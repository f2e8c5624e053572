"""Which messages of the timer topic are in it once more, to wait for the rest of their time (TW-17)."""

from __future__ import annotations

import logging
from collections import Counter

from orbitmq.broker.delay.delivered import Identity, identity_of
from orbitmq.broker.timers import forms
from orbitmq.broker.timers.forms import Timer
from orbitmq.message import property_names, reserved
from orbitmq.message.numbers import whole_number
from orbitmq.message.record import Record, iter_records
from orbitmq.store import GetStatus, MessageStore

log = logging.getLogger(__name__)

TOPIC = reserved.TIMER_TOPIC
# More are not kept: they come again.
MAX_NOTED = 200_000
NOTE_MESSAGES = 512
NOTE_BYTES = 1 << 20
_NAME = property_names.TIMER_ROLL_TIMES.encode()


class RolledCopies:
    """What was stored again, noted before messages are looked at anew.

    The progress alone does not say: where a long wait is cut depends on settings, which may have changed.

    Attributes:
        left_out: whether a message was left out for its copy; without that it has to wait again.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._at = self._end = 0
        # By the message and when it began to wait: its copy is the same but for that.
        self._noted: Counter[tuple[Identity, int]] = Counter()
        self._is_full = False
        self.left_out = False

    def forget(self) -> None:
        """Nothing is looked at anew."""
        self._noted.clear()
        self._at = self._end = 0
        self._is_full = False

    def begin(self, position: int) -> None:
        """Messages from this offset of the queue to its end are to be looked at anew."""
        self.forget()
        self._at, self._end = position, self._store.max_offset(TOPIC, 0)

    @property
    def are_known(self) -> bool:
        """Whether there is no more to :meth:`note`; the end of the queue may have been cut off since."""
        return self._at >= min(self._end, self._store.max_offset(TOPIC, 0))

    def note(self) -> None:
        """Note those among the next messages, some hundred at most."""
        self._at = max(self._at, self._store.min_offset(TOPIC, 0))
        found = self._store.get(TOPIC, 0, self._at, NOTE_MESSAGES, max_bytes=NOTE_BYTES)
        if found.status is GetStatus.FOUND and _NAME in found.body:
            for record in iter_records(found.body):
                self._note(record)
        least = self._at + (found.status is not GetStatus.MESSAGE_WAS_REMOVING)
        self._at = max(least, found.next_offset)

    def _note(self, record: Record) -> None:
        properties = forms.properties_of(record)
        since = whole_number(properties.get(property_names.TIMER_ENQUEUE_MS, ""))
        if property_names.TIMER_ROLL_TIMES not in properties or since is None:
            return
        timer = forms.timer_of(record, properties)
        # One that a power cut may take leaves nothing: its message must not be left out for it.
        is_stored = record.physical_offset + record.total_size <= self._store.flushed_offset
        if timer is None or not is_stored:
            return
        if len(self._noted) < MAX_NOTED:
            self._noted[identity_of(record, timer.topic, timer.unique_id), since] += 1
        elif not self._is_full:
            self._is_full = True
            log.warning("more than %d timers were stored again: some may come twice", MAX_NOTED)

    def take(self, record: Record, timer: Timer) -> bool:
        """Whether this message has a copy, each of which counts for one message."""
        if record.queue_offset >= self._end:
            self.forget()
        if not self._noted:
            return False
        name = identity_of(record, timer.topic, timer.unique_id), record.store_timestamp
        if not self._noted[name]:
            del self._noted[name]
            return False
        self._noted[name] -= 1
        self.left_out = True
        return True
