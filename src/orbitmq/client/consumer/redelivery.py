"""Redelivery of messages that a listener did not finish."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.namespaces import Namespace
from orbitmq.errors import OrbitError
from orbitmq.message import property_names, way
from orbitmq.message.model import Message, ReceivedMessage, UnreadableMessage
from orbitmq.message.reserved import retry_topic
from orbitmq.message.settling import LEVEL_SECONDS, Verdict
from orbitmq.message.way import without

log = logging.getLogger("orbitmq.client")

# The pause before a message that no broker took back is given to the user's code again (CR-09).
LOCAL_RETRY_S = 5.0
ORDERED_MAX_RECONSUME_TIMES = 2**31 - 1
FIRST_RETRY_LEVEL = 3
DEAD_LETTER_LEVEL = -1
# Properties that must not affect a message sent to a retry topic.
_NOT_SENT_ANEW = (
    way.DELAYS
    | way.NOT_IN_A_NEW_WAIT
    | way.OF_A_POP
    | {property_names.TRANSACTION_PREPARED, property_names.MAX_RECONSUME_TIMES, property_names.WAIT}
)


def restore_topic(message: ReceivedMessage, group: str, namespace: Namespace) -> None:
    """Set the topic of a message from a retry topic to its original one (CR-17), without the namespace."""
    if message.topic == retry_topic(group):
        message.topic = message.properties.get(property_names.RETRY_TOPIC, message.topic)
    if namespace:
        message.topic = namespace.short(message.topic)


class TakesBack(Protocol):
    """A way to send back messages that a listener did not finish."""

    async def send_back(
        self,
        message: ReceivedMessage,
        delay_level: int = 0,
        delay_s: float | None = None,
        reason: str = "",
    ) -> bool:
        """Have a message delivered again; False if the consumer has to keep it."""
        ...


class RedeliveryPolicy(TakesBack, Protocol):
    """A way to send messages back, and to move failed ones out of an ordered queue."""

    async def give_up(self, message: ReceivedMessage, *, dead: bool) -> bool:
        """Move a message out of its queue, with ``dead`` as a dead letter; False if it has to be kept."""
        ...


class Discard:
    """Broadcasting: every member has its own copy, so a failure is only logged (CR-05)."""

    async def send_back(
        self,
        message: ReceivedMessage,
        delay_level: int = 0,
        delay_s: float | None = None,
        reason: str = "",
    ) -> bool:
        log.warning("%s failed, and broadcast messages do not come again", message.message_id)
        return True

    async def give_up(self, message: ReceivedMessage, *, dead: bool) -> bool:
        return await self.send_back(message)


class Redelivery:
    """Sends messages back, so that the group gets them again with growing delays, and at last makes them dead
    letters.

    Args:
        send: sends a message to the retry topic if its broker does not take it back.
        max_reconsume_times: deliveries after the first before a message becomes a dead letter (CR-14). None:
            the group's setting at the broker decides, if the broker is new enough (SB-17).
    """

    def __init__(
        self,
        calls: BrokerCalls,
        send: Callable[[Message], Awaitable[object]],
        group: str,
        max_reconsume_times: int | None,
        namespace: Namespace,
    ) -> None:
        self._namespace = namespace
        self._calls = calls
        self._send = send
        self._group = group
        self._max = max_reconsume_times

    async def send_back(
        self,
        message: ReceivedMessage,
        delay_level: int = 0,
        delay_s: float | None = None,
        reason: str = "",
    ) -> bool:
        """Give a message to a broker for a later delivery; returns whether a broker took it.

        Args:
            delay_level: 0: the broker chooses by the number of deliveries; above 0: a level of the delay
                table; below 0: a dead letter at once (CR-13).
            delay_s: seconds until the next delivery, for a broker with timers; other brokers use the level.
            reason: the reason of the failure, kept in the dead letter.
        """
        if self._calls.has_acting_master(message.broker_name) and not isinstance(message, UnreadableMessage):
            # A slave that acts for its master does not take messages back, so it is not asked.
            return await self._send_anew(message)
        try:
            topic = self._namespace.full(message.topic)
            await self._calls.send_back(self._group, message, topic, delay_level, self._max, delay_s, reason)
        except OrbitError as error:
            log.warning("%s is not sent back, sending it to the retry topic: %s", message.message_id, error)
            return await self._send_anew(message)
        return True

    async def give_up(self, message: ReceivedMessage, *, dead: bool) -> bool:
        """Move a message out of an ordered queue to the retry topic, where the broker makes it a dead letter.

        Args:
            dead: have the message's broker make the dead letter, from its own copy (CR-13).
        """
        return await (self.send_back(message, DEAD_LETTER_LEVEL) if dead else self._send_anew(message))

    async def _send_anew(self, message: ReceivedMessage) -> bool:
        """Send a copy as a normal message to the retry topic, which any broker may take (CR-08)."""
        if isinstance(message, UnreadableMessage):
            log.warning("%s cannot be read, so only its broker could send it again", message.message_id)
            return False
        # WAIT is left out: a broker wrote it into the copy of an earlier retry, while this send must wait for
        # disk and slaves.
        properties = without(message.properties, _NOT_SENT_ANEW)
        # In a first delivery the sender set these properties, if it forwarded a retried message.
        if not message.reconsume_times or property_names.ORIGIN_MESSAGE_ID not in properties:
            properties[property_names.ORIGIN_MESSAGE_ID] = message.offset_message_id
        properties[property_names.RETRY_TOPIC] = self._namespace.full(message.topic)
        properties[property_names.RECONSUME_TIME] = str(message.reconsume_times + 1)
        limit = self._calls.group_limit(self._max)
        if limit is not None:
            properties[property_names.MAX_RECONSUME_TIMES] = str(limit)
        properties[property_names.DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        again = Message(retry_topic(self._group), message.body, flag=message.flag, properties=properties)
        try:
            await self._send(again)
        except OrbitError as error:
            log.warning("%s is not sent to the retry topic either: %s", message.message_id, error)
            return False
        return True


class StaysHere:
    """The redelivery policy of queues that the user has chosen, which no other member of the group reads.

    Failed messages wait in this process and are delivered again from here: the group's retry topic is not
    read for these queues. Only dead letters go to a broker.

    Args:
        redelivery: makes dead letters.
        max_reconsume_times: deliveries after the first before a message becomes a dead letter; None for no
            limit.
    """

    def __init__(self, redelivery: RedeliveryPolicy, max_reconsume_times: int | None) -> None:
        self._redelivery = redelivery
        self._max = max_reconsume_times

    async def send_back(
        self,
        message: ReceivedMessage,
        delay_level: int = 0,
        delay_s: float | None = None,
        reason: str = "",
    ) -> bool:
        """Make a message a dead letter if the user rejects it or its deliveries are used up; otherwise keep
        it.
        """
        if delay_level >= 0 and (self._max is None or message.reconsume_times < self._max):
            return False
        return await self._redelivery.send_back(message, DEAD_LETTER_LEVEL, reason=reason)

    async def give_up(self, message: ReceivedMessage, *, dead: bool) -> bool:
        return await self._redelivery.give_up(message, dead=dead)

    def pause_s(self, verdict: Verdict) -> float:
        """The delay of a kept message before its next delivery."""
        if verdict.delay_s is not None:
            return verdict.delay_s
        level = min(verdict.delay_level, len(LEVEL_SECONDS))
        return LEVEL_SECONDS[level - 1] if level > 0 else LOCAL_RETRY_S
