"""Messages as a user sends and receives them, and their queues."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Never

from orbitmq.durations import (
    MAX_DELAY_S,
    Duration,
    datetime,
    instant,
    instant_ms,
    milliseconds,
    seconds,
    shown,
)
from orbitmq.errors import ValidationError
from orbitmq.message import property_names, way
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import host_text
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.message.properties import decode_properties
from orbitmq.message.reserved import REPLY_TOPIC_SUFFIX
from orbitmq.message.settling import (
    ACK,
    DeliveryOwner,
    Ending,
    Settled,
    Verdict,
    checked_level,
    retry_verdict,
    settle,
)
from orbitmq.message.utf8 import check_utf8
from orbitmq.message.way import without
from orbitmq.parameters import check_names, parameter_names, refuses_unknown
from orbitmq.runtime.tasks import failed_itself

log = logging.getLogger("orbitmq.client")

# The MSG_TYPE of a message that answers another one.
REPLY_TYPE = "reply"


def timer_properties(
    delay_level: int | None, delay: Duration | None, deliver_at: datetime | None
) -> dict[str, str]:
    """The property that asks for a delivery at a time.

    Raises:
        ValidationError: an invalid time, or more than one.
    """
    given = {"delay_level": delay_level, "delay": delay, "deliver_at": deliver_at}
    named = [f"{name}={shown(value)}" for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValidationError(f"a message is delayed in one way, got {' and '.join(named)}")
    if delay is not None:
        delay_s = seconds("delay", delay, 0, MAX_DELAY_S, above=True)
        return {property_names.TIMER_DELAY_MS: str(milliseconds(delay_s))}
    return {property_names.TIMER_DELIVER_MS: str(instant_ms("deliver_at", deliver_at))}


def _joined(keys: Iterable[str]) -> str:
    try:
        return property_names.KEY_SEPARATOR.join(keys)
    except TypeError:
        raise ValidationError(f"keys must be a string or strings, got {keys!r:.60}") from None


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker group: the unit of order and of progress."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """The text for people: topic/broker/queue."""
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


BODY_TYPES: Final = (bytes, bytearray, memoryview)


class Message:
    """A message to send: a topic, a body and string properties.

    Tags, keys and delays are properties, as in RocketMQ; the constructor and the attributes below are
    typed access to them.

    Args:
        topic: the topic that it is sent to, 1 to 127 characters of ``%|a-zA-Z0-9_-``.
        body: the payload; a ``str`` is encoded as UTF-8. The broker's default limit is 4 MiB.
        tags: one tag for broker-side filtering.
        keys: words for key look-up, joined by one space on the wire.
        flag: 32 bits of the user's own, carried unchanged.
        delay_level: 1 to 18, the broker's delay table (1 s ... 2 h); ``None`` and 0 deliver at once. For a
            broker with more levels give the property ``DELAY``.
        delay: seconds, or a timedelta, until it is delivered, to the millisecond; a broker accepts up to 3
            days by default (``timerMaxDelaySec``). The time is the broker's, from when it stores the message.
        deliver_at: when it is delivered, a datetime with a time zone; a past time delivers at once.
        sharding_key: messages of one key go to one queue when sent in order.
        properties: further string properties; names and values must not be empty. The properties of a
            received message may be given: those that brokers and consumers added (``orbitmq.message.way``)
            are not sent, nor is a delay that is over.

    Raises:
        ValidationError: an invalid time or level, or more than one of ``delay_level``, ``delay`` and
            ``deliver_at``; a body of another kind, or that has no UTF-8 form; keys that are no strings.
        UnknownOptionError: there is no parameter of this name; the text names the nearest one.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        flag: int = 0,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        sharding_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:  # checked here: a wrapper would add half of the time that making a message takes
            check_names(unknown, parameter_names(Message.__init__))
        self.topic = topic
        if isinstance(body, str):
            check_utf8("the body", body)
            body = body.encode()
        elif body.__class__ is not bytes and not isinstance(body, BODY_TYPES):
            raise ValidationError(f"the body must be bytes or a str, got {type(body).__name__}")
        self.body = body
        self.flag = flag
        self.properties: dict[str, str] = dict(properties) if properties else {}
        if delay_level is not None or delay is not None or deliver_at is not None:
            # The properties may be those of a received message with a delay.
            self.properties = without(self.properties, way.DELAYS | way.OF_A_WAIT)
        if tags:
            self.properties[property_names.TAGS] = tags
        if keys:
            joined = keys if isinstance(keys, str) else _joined(keys)
            if joined:
                self.properties[property_names.KEYS] = joined
        if delay_level is not None:
            self.properties[property_names.DELAY] = str(checked_level(delay_level))
        if delay is not None or deliver_at is not None:
            self.properties.update(timer_properties(delay_level, delay, deliver_at))
        if sharding_key:
            self.properties[property_names.SHARDING_KEY] = sharding_key

    @property
    def tags(self) -> str | None:
        return self.properties.get(property_names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(property_names.KEYS, "").split()

    @property
    def sharding_key(self) -> str | None:
        return self.properties.get(property_names.SHARDING_KEY)

    @property
    def delay_level(self) -> int:
        """The broker's delay level, 0 when the message is delivered at once."""
        text = self.properties.get(property_names.DELAY, "")
        level = whole_number(text[1:] if text.startswith(("+", "-")) else text, INT32) or 0
        return -level if text.startswith("-") else level

    @property
    def message_id(self) -> str | None:
        """The id that the sending client gave it (``UNIQ_KEY``), None before it is sent."""
        return self.properties.get(property_names.UNIQ_KEY)

    @property
    def transaction_id(self) -> str | None:
        """The unique id when the message belongs to a transaction, else None (behaviour MV-12)."""
        is_half = self.properties.get(property_names.TRANSACTION_PREPARED) == "true"
        return self.message_id if is_half else None

    @property
    def wait_stored(self) -> bool:
        """Whether the sender waits for flush and replicas; absent means true (behaviour MV-11)."""
        return self.properties.get(property_names.WAIT, "true").lower() == "true"

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, body=<{len(self.body)} bytes>, "
            f"tags={self.tags!r}, keys={self.keys!r})"
        )


@refuses_unknown
class ReceivedMessage(Message):
    """A message as the broker stored it.

    Hosts are ``address:port``.

    A consumer's message is settled by :meth:`ack`, :meth:`retry`, :meth:`reject` or :meth:`process`, from any
    thread. Each returns the outcome; only the first call for a delivery counts, and later ones do not raise.

    A message can be copied and pickled, also for another process. The delivery stays with the original: a
    copy cannot be settled.
    """

    __slots__ = (
        "_properties",
        "body_crc",
        "born_timestamp_ms",
        "broker_name",
        "commit_log_offset",
        "owner",
        "packed_born_host",
        "packed_properties",
        "packed_store_host",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_size_bytes",
        "store_timestamp_ms",
        "sys_flag",
        "verdict",
    )

    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size_bytes: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    reconsume_times: int
    prepared_transaction_offset: int
    # Hosts and properties as stored: most are never read, so they are unpacked when asked for.
    packed_born_host: bytes
    packed_store_host: bytes
    packed_properties: bytes
    _properties: dict[str, str] | None
    # State of the delivery (orbitmq.message.settling).
    owner: DeliveryOwner
    verdict: Verdict | None
    # Attributes that a copy does not get; "properties" is copied as "_properties".
    _LEFT_OUT = frozenset({"owner", "verdict", "properties"})

    def __getstate__(self) -> tuple[dict[str, object] | None, dict[str, object]]:
        """The state for a copy: everything but the delivery, which belongs to a consumer of this process."""
        slots = (name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ()))
        return getattr(self, "__dict__", None), {
            name: getattr(self, name) for name in slots if name not in self._LEFT_OUT and hasattr(self, name)
        }

    @property
    def properties(self) -> dict[str, str]:
        """All properties, by name."""
        found = self._properties
        if found is None:
            found = self._properties = decode_properties(self.packed_properties)
        return found

    @properties.setter
    def properties(self, value: dict[str, str]) -> None:
        self._properties = value

    @property
    def born_host(self) -> str:
        """The sender, ``address:port``."""
        return host_text(self.packed_born_host)

    @property
    def store_host(self) -> str:
        """The broker that stored it, ``address:port``."""
        return host_text(self.packed_store_host)

    @property
    def born_at(self) -> datetime:
        """When the sender made it, by the sender's clock."""
        return instant(self.born_timestamp_ms)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it, by the broker's clock."""
        return instant(self.store_timestamp_ms)

    @property
    def offset_message_id(self) -> str:
        """The broker's id: its host and port and the commit log offset, in hex."""
        return (self.packed_store_host + self.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()

    @property
    def body_bytes(self) -> int:
        """Size of the body in bytes, unpacked."""
        return len(self.body)

    @property
    def message_id(self) -> str:
        """The id that the sending client gave it, else the broker's offset id, as Java's ``getMsgId``."""
        return self.properties.get(property_names.UNIQ_KEY) or self.offset_message_id

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    def ack(self) -> Settled:
        """Settle this message as done.

        Raises:
            ClientStateError: this message was not delivered by a consumer.
        """
        return settle(self, ACK)

    def retry(self, *, delay_level: int = 0, delay: Duration | None = None, reason: str = "") -> Settled:
        """Have this message delivered again, later. Inside a handler: once the handler has returned.

        Args:
            delay_level: 0 lets the broker choose by the number of deliveries, 1 to 18 is a level of its delay
                table, below 0 makes the message a dead letter at once.
            delay: seconds, or a timedelta, instead; at Apache's brokers the next longer delay level.
            reason: for hooks, traces and the log.

        Raises:
            ValidationError: the level or the delay is wrong.
            ClientStateError: as :meth:`ack`.
        """
        return settle(self, retry_verdict(delay_level, delay, reason))

    def reject(self, reason: str = "") -> Settled:
        """Make this message a dead letter at once (``%DLQ%group``); errors as :meth:`ack`."""
        return settle(self, Verdict(Ending.REJECT, -1, None, reason))

    def process(self) -> Processing:
        """A block, ``async with message.process():`` or ``with``, that acknowledges the message at its end,
        and has it delivered again after an exception.

        The exception is logged and does not leave the block, so that a loop over messages goes on.
        """
        return Processing(self)

    def reply(self, body: bytes | str) -> Message:
        """The message that answers this request; send it with any producer (MessageUtil.createReplyMessage).

        Raises:
            MessageFormatError: this message is not a request.
        """
        found = self.properties
        needed = (property_names.CLUSTER, property_names.CORRELATION_ID, property_names.REPLY_TO_CLIENT)
        missing = [name for name in needed if not found.get(name)]
        if missing:
            raise MessageFormatError(
                f"message {self.message_id} of {self.topic} cannot be replied to: "
                f"it has no property {' and no '.join(missing)}"
            )
        copied = (property_names.CORRELATION_ID, property_names.REPLY_TO_CLIENT, property_names.TTL)
        properties = {name: found[name] for name in copied if name in found}
        properties[property_names.MSG_TYPE] = REPLY_TYPE
        return Message(found[property_names.CLUSTER] + REPLY_TOPIC_SUFFIX, body, properties=properties)


class UnreadableMessage(ReceivedMessage):
    """A stored message whose body cannot be read: it is damaged, or the library for its compression is
    missing.

    It is delivered like any other, so that the messages behind it are not held up; all fields but the body
    are there. A listener that reads the body fails, and the message is treated like all failed messages.

    Attributes:
        body_error: why the body cannot be read.
        stored_body: the body's bytes as they are stored.
    """

    __slots__ = ("body_error", "stored_body")

    body_error: Exception
    stored_body: bytes
    # The body is made from "stored_body" again.
    _LEFT_OUT = ReceivedMessage._LEFT_OUT | {"body"}

    @property
    def body(self) -> bytes:
        """Always raises, since there is no readable body.

        Raises:
            MessageFormatError: always; its text says why.
        """
        # A new error each time: a shared one would collect the tracebacks of all its callers.
        raise type(self.body_error)(*self.body_error.args)

    @body.setter
    def body(self, value: bytes) -> None:
        self.stored_body = value

    @property
    def body_bytes(self) -> int:
        return len(self.stored_body)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(topic={self.topic!r}, body={self.body_error!r}, keys={self.keys!r})"


class Processing:
    """A block that settles one message; see :meth:`ReceivedMessage.process`."""

    __slots__ = ("_message",)

    def __init__(self, message: ReceivedMessage) -> None:
        self._message = message

    def __enter__(self) -> ReceivedMessage:
        return self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        message = self._message
        if error is None:
            message.ack()
            return False
        if not failed_itself(error):
            return False
        log.warning("processing of %s failed", message.message_id, exc_info=error)
        settle(message, Verdict(Ending.RETRY, error=error))
        return True

    async def __aenter__(self) -> ReceivedMessage:
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self.__exit__(kind, error, trace)
