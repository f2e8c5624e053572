"""Receipt handles, in the form of Apache's proxy. A handle holds all that an acknowledgement needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.broker.pop.acknowledging import Changed, MessageReceipt
from orbitmq.broker.pop.requests import Popped
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.message import property_names
from orbitmq.message.numbers import whole_number
from orbitmq.message.record import Record
from orbitmq.wire import pop_info
from orbitmq.wire.errors import WireError

MAX_HANDLE = 1024  # characters
_WORDS = 8


@dataclass(frozen=True, slots=True)
class Handle:
    """A receipt handle.

    Attributes:
        info: the receipt that the broker's pop gave the message.
        log_offset: where the message's record begins in the commit log; None if the handle lacks it.
    """

    info: pop_info.ExtraInfo
    log_offset: int | None

    def encode(self) -> str:
        text = self.info.encode()
        return text if self.log_offset is None else f"{text} {self.log_offset}"

    def settled(self, topic: str, group: str) -> MessageReceipt:
        """The broker's receipt of the delivery that the handle names.

        Args:
            topic: the topic that the client received from; a redelivered message lies in a retry topic.
        """
        info = self.info
        assert info.queue_offset is not None
        place = pop_info.retry_topic(topic, group, info.retry)
        return MessageReceipt(group, place, info.queue_id, info.queue_offset, info.encode())

    def changed(self, changed: Changed) -> Handle:
        """The handle that replaces this one after a change of the message's invisible time."""
        info = self.info
        start = info.check_point_offset
        if not info.is_orderly and info.queue_offset is not None:
            start = info.queue_offset  # the message is now a delivery of one message
        new = info._replace(
            check_point_offset=start,
            pop_time=changed.pop_time_ms,
            invisible_time=changed.invisible_ms,
            revive_queue_id=changed.revive_queue,
        )
        return Handle(new, self.log_offset)


def of_record(
    record: Record, properties: dict[str, str], popped: Popped, invisible_ms: int, broker: str
) -> Handle:
    """The handle of a popped message. A redelivered message carries its receipt in a property."""
    # A message delivered for the first time comes from no retry topic: a receipt in it is another message's.
    text = properties.get(property_names.POP_CK) if record.reconsume_times else None
    if text is not None:
        return Handle(pop_info.ExtraInfo.decode(text), record.physical_offset)
    kind = pop_info.retry_of(record.topic)
    info = pop_info.ExtraInfo(
        popped.starts.get((kind, str(record.queue_id)), record.queue_offset),
        popped.pop_time_ms,
        invisible_ms,
        popped.revive_queue,
        kind,
        broker,
        record.queue_id,
        record.queue_offset,
    )
    return Handle(info, record.physical_offset)


def decode(text: str, broker: str) -> Handle:
    """Read a handle.

    Args:
        broker: the name of this broker.

    Raises:
        RefusalError: INVALID_RECEIPT_HANDLE, the handle is cut, or another broker's.
    """
    try:
        if len(text) > MAX_HANDLE:
            raise _invalid(f"it has {len(text)} characters, limit {MAX_HANDLE}")
        info = pop_info.ExtraInfo.decode(text)
        pop_info.retry_topic("", "", info.retry)
    except WireError as error:
        raise _invalid(f"{text[:200]!r} is none") from error
    if info.queue_offset is None:
        raise _invalid(f"{text[:200]!r} is cut")
    if info.broker_name != broker:
        raise _invalid(f"it is of broker {info.broker_name[:64]}, this is broker {broker}")
    words = text.split(" ")
    return Handle(info, whole_number(words[_WORDS]) if len(words) > _WORDS else None)


def _invalid(why: str) -> RefusalError:
    return RefusalError(Code.INVALID_RECEIPT_HANDLE, f"receipt_handle: {why}")
