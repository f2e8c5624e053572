"""Stored records: reading them, and copying them into another topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from orbitmq.message import property_names
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.record import Record, decode_record
from orbitmq.message.tags import tags_code
from orbitmq.store import MessageStore, NewMessage

log = logging.getLogger(__name__)

_MAX_COUNT = 0x7FFFFFFF


def record_at(store: MessageStore, physical_offset: int, *, quiet: bool = False) -> Record | None:
    """The record that begins at this place of the log; ``None``: there is no readable record.

    Args:
        quiet: whether to log nothing, since the caller only checks whether a record is there.
    """
    stored = store.record_at(physical_offset)
    try:
        return None if stored is None else decode_record(stored)
    except MessageFormatError as error:
        if not quiet:
            log.error("the record at %d of the log cannot be read: %s", physical_offset, error)
        return None


def record_of(store: MessageStore, topic: str, queue_id: int, offset: int) -> Record | None:
    """The record at a queue offset; ``None``: there is no readable record."""
    entry = store.entry(topic, queue_id, offset)
    record = None if entry is None else record_at(store, entry[0])
    if record is None or (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, offset):
        return record
    log.error(
        "queue %d of %s leads from offset %d to the record of another message, at %d of the log: left out "
        "(docs/operations.md, Damaged files)", queue_id, topic, offset, record.physical_offset,
    )  # fmt: skip
    return None


def copied(
    record: Record,
    properties: Mapping[str, str],
    topic: str,
    queue_id: int,
    *,
    encoded: bytes,
    reconsume_times: int | None = None,
) -> NewMessage:
    """The record as a new message; body, flags, born time and born host stay.

    Args:
        properties: the new message's; its tags go into the consume queue.
        encoded: the same properties as bytes; :mod:`orbitmq.broker.messaging.room` makes them fit.
        reconsume_times: the new message's; by default the record's, which may be the highest possible number.
    """
    return NewMessage(
        topic,
        queue_id,
        record.body,
        encoded,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times
        if reconsume_times is None
        else min(reconsume_times, _MAX_COUNT),
        tags_code=tags_code(properties.get(property_names.TAGS)),
    )
