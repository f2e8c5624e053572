"""Operations on timer messages, which wait for their delivery time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from orbitmq.admin.answers import Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.model import BrokerInfo
from orbitmq.durations import instant
from orbitmq.errors import MessageNotFoundError, ValidationError
from orbitmq.message import property_names as names
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.numbers import whole_number
from orbitmq.message.reserved import TIMER_TOPIC, TOOLS_GROUP
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import TimerMetricsSerializeWrapper
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import HeaderError
from orbitmq.wire.recall_handle import RecallHandle

if TYPE_CHECKING:
    from datetime import datetime

Query = Callable[[str, str], Awaitable[Sequence[ReceivedMessage]]]


@dataclass(frozen=True, slots=True)
class LateMessage:
    """A message that should have been delivered at ``due``."""

    topic: str
    message_id: str
    due: datetime


@dataclass(frozen=True, slots=True)
class BrokerTimers:
    """The timer messages that wait at one broker.

    Attributes:
        topics: the number of messages by target topic.
        minutes: the number of messages by the minute in which they are due; ``None`` for Apache's brokers,
            which do not report it.
        oldest_late: the message that is late for the longest time; ``None`` if none is late.
    """

    broker_name: str
    address: str
    topics: Mapping[str, int]
    minutes: Mapping[datetime, int] | None
    oldest_late: LateMessage | None

    @property
    def total(self) -> int:
        """The number of waiting messages."""
        return sum(self.topics.values())


@dataclass(frozen=True, slots=True)
class TimerMessage:
    """One message that was sent with a delay.

    Attributes:
        topic: the target topic.
        deliver_at: the delivery time.
        state: ``waiting``, ``recalled``, or ``delivered``.
        handle: the recall handle.
        stored: the message in the timer topic.
    """

    topic: str
    message_id: str
    deliver_at: datetime
    state: Literal["waiting", "recalled", "delivered"]
    handle: str
    stored: ReceivedMessage


@checks_arguments
class TimerAdmin:
    """Operations on timer messages, as ``Admin.timers``.

    Args:
        query: finds the messages of a topic with a unique id.
        now_ms: returns the time, in milliseconds since the epoch.
    """

    def __init__(self, cluster: ClusterClient, query: Query, now_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._query = query
        self._now_ms = now_ms

    async def list(self, *, cluster: str | None = None) -> Partial[Sequence[BrokerTimers]]:
        """The waiting messages, by broker.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        command = Command(RequestCode.GET_TIMER_METRICS, {"pendingBy": "minute"})
        answers = await self._cluster.ask_all(await self._cluster.leaders(cluster), command, _read_pending)
        return answers.partial([timers for _, timers in answers.pairs])

    async def show(self, message_id: str) -> TimerMessage:
        """A message by its unique id (``SendResult.message_id``) or its recall handle.

        The brokers search their message indexes, to which a message is added a moment after it is stored.

        Raises:
            MessageNotFoundError: no broker has the message in its timer topic.
            IncompleteError: a broker refuses or does not answer, and no other one has the message.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        named = _handle(message_id)
        wanted = message_id if named is None else named.message_id
        found = await self._query(TIMER_TOPIC, wanted)
        messages = [message for message in found if names.TIMER_DEL_UNIQKEY not in message.properties]
        if not messages:
            raise MessageNotFoundError(f"no broker has a message {wanted} that was sent for a later time")
        return self._described(messages[-1], found)

    def _described(self, message: ReceivedMessage, found: Sequence[ReceivedMessage]) -> TimerMessage:
        properties = message.properties
        topic, unique_id = properties.get(names.REAL_TOPIC, ""), message.properties.get(names.UNIQ_KEY, "")
        out_ms = whole_number(properties.get(names.TIMER_OUT_MS, "")) or 0
        named = (unique_id, f"{topic}+{unique_id}")
        recalled = any(other.properties.get(names.TIMER_DEL_UNIQKEY) in named for other in found)
        deliver_at_ms = _deliver_at_ms(message, out_ms)
        waiting = deliver_at_ms > self._now_ms()
        return TimerMessage(
            topic,
            unique_id,
            instant(deliver_at_ms),
            "recalled" if recalled else "waiting" if waiting else "delivered",
            RecallHandle(topic, message.broker_name, str(out_ms + 1), unique_id).encode(),
            message,
        )

    async def cancel(self, message_id: str) -> str:
        """Recall a message by its handle or its unique id; returns the unique id.

        Raises:
            MessageNotFoundError: no broker has a message with this unique id in its timer topic.
            BrokerError: the broker refuses: it is too late, the message was recalled already, or
                ``recallMessageEnable`` is false.
            ValidationError: the handle names no broker of the cluster.
            IncompleteError, TransportError, NameServerError: as with :meth:`show`.
        """
        handle = _handle(message_id)
        text = message_id
        if handle is None:
            text = (await self.show(message_id)).handle
            handle = RecallHandle.decode(text)
        brokers = {broker.name: broker.address for broker in await self._cluster.leaders()}
        address = brokers.get(handle.broker_name)
        if address is None:
            raise ValidationError(f"the handle is of broker {handle.broker_name}, which is not there")
        header = headers.RecallMessageRequest(
            topic=handle.topic, recall_handle=text, producer_group=TOOLS_GROUP
        )
        answer = await self._cluster.ask(address, header.command())
        return headers.RecallMessageResponse.from_ext(answer.ext).msg_id


def _read_pending(broker: BrokerInfo, answer: Command) -> BrokerTimers:
    body = TimerMetricsSerializeWrapper.decode(answer.body)
    minutes, late = body.pending_by_minute, body.oldest_late
    return BrokerTimers(
        broker.name,
        broker.address,
        {topic: each.count for topic, each in sorted(body.timing_count.items()) if each.count},
        None if minutes is None else {instant(int(at)): minutes[at] for at in sorted(minutes, key=int)},
        None if late is None else LateMessage(late.topic, late.unique_id, instant(late.due_ms)),
    )


def _handle(text: str) -> RecallHandle | None:
    try:
        return RecallHandle.decode(text)
    except HeaderError:
        return None


def _deliver_at_ms(message: ReceivedMessage, out_ms: int) -> int:
    """The delivery time that the sender set, which is up to a second after ``TIMER_OUT_MS``."""
    for name, unit_ms, start_ms in (
        (names.TIMER_DELAY_SEC, 1000, message.store_timestamp_ms),
        (names.TIMER_DELAY_MS, 1, message.store_timestamp_ms),
        (names.TIMER_DELIVER_MS, 1, 0),
    ):
        number = whole_number(message.properties.get(name, ""))
        if number is not None:
            return min(max(start_ms + number * unit_ms, out_ms + 1), out_ms + 1000)
    return out_ms + 1000
