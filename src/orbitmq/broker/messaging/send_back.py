"""Takes back messages that a consumer could not handle: for a later delivery, or as dead letters."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.messaging.retry import (
    DEAD_LETTER_QUEUES,
    FIRST_RETRY_LEVEL,
    came_from,
    mark_dead,
    max_reconsume_times,
)
from orbitmq.broker.messaging.room import fitted_copy
from orbitmq.broker.messaging.stored import copied
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import RoleState
from orbitmq.broker.timers.hook import TimerHook
from orbitmq.message import property_names, reserved, way
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.message.way import without
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.store import MessageStore, NewMessage, PutStatus, StoreClosedError
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wording import counted

if TYPE_CHECKING:
    from random import Random

log = logging.getLogger(__name__)

# Properties of an earlier delivery, which the copy loses. With those of an earlier wait, it would count as a
# message whose delay is over; with those of a recall, its next wait would recall another message, and the
# copy would be lost.
_DROPPED = way.DELAYS | way.NOT_IN_A_NEW_WAIT | way.OF_A_POP


@dataclass(frozen=True, slots=True)
class ReturnedMessage:
    """A stored message that a consumer sends back.

    Attributes:
        offset: where its record begins in the commit log.
        delay_level: the level whose delay it waits; 0: the level follows from the number of deliveries; below
            0: the message becomes a dead letter.
        delay_ms: how many milliseconds it waits instead, with a timer; ``None``: by ``delay_level``. Values
            over ``timerMaxDelaySec`` count as that.
        max_reconsume_times: after how many deliveries it is dead; ``None``: as its group's config says.
        version: the consumer's protocol version.
        message_id: the message's id from the consumer's request; ``None``: the request has none.
        reason, client_id: why the message comes back, and from which client; a dead letter keeps both.
    """

    group: str
    offset: int
    delay_level: int = 0
    delay_ms: int | None = None
    max_reconsume_times: int | None = None
    unit_mode: bool = False
    version: int = 0
    message_id: str | None = None
    reason: str | None = None
    client_id: str | None = None


class SendBack:
    """Takes back messages from consumers (AbstractSendMessageProcessor.consumerSendMsgBack)."""

    def __init__(
        self,
        config: BrokerConfig,
        role: RoleState,
        metadata: MetadataAccess,
        store: MessageStore,
        append: MessageAppend,
        levels: DelayLevels,
        timers: TimerHook,
        chance: Random,
        registration: Registration,
        counts: Counts,
    ) -> None:
        self._config = config
        self._limiter = LogLimiter(log)
        self._role = role
        self._metadata = metadata
        self._store = store
        self._append = append
        self._levels = levels
        self._timers = timers
        self._chance = chance
        self._registration = registration
        self._counts = counts

    async def return_(self, returned: ReturnedMessage) -> None:
        """Store a copy of the message for a later delivery (behaviours SB-01 to SB-13, DQ-01 to DQ-05).

        A group without retry queues loses the message, as in RocketMQ.

        Raises:
            RemotingError: the copy is not safe; after SYSTEM_ERROR the consumer sends the message itself.
        """
        group = self._group(returned.group)
        if group.retry_queue_nums <= 0:
            return
        retry = await self._topic(
            reserved.retry_topic(returned.group),
            group.retry_queue_nums,
            reserved.TOPIC_FLAG_UNIT_SUB if returned.unit_mode else 0,
        )
        record = self._record(returned)
        tries = record.reconsume_times + 1
        limit = max_reconsume_times(group, returned.version, returned.max_reconsume_times)
        properties = _properties(record, returned.group)
        # Read before properties without room in the copy are left out.
        origin = properties[property_names.RETRY_TOPIC]
        dead: TopicConfig | None = None
        if record.reconsume_times >= limit or returned.delay_level < 0:
            dead = await self._topic(reserved.dead_letter_topic(returned.group), DEAD_LETTER_QUEUES)
            log.info(
                "message %s of group %s is a dead letter after %s",
                properties[property_names.ORIGIN_MESSAGE_ID], returned.group, counted(tries, "delivery"),
            )  # fmt: skip
            properties[property_names.DELAY] = "0"
            mark_dead(properties, returned.reason, returned.client_id)
            encoded = fitted_copy(record, properties)
            copy = copied(record, properties, dead.topic_name, 0, encoded=encoded, reconsume_times=tries)
        else:
            # A retry topic that was made earlier may have fewer queues than the group has now.
            queues = max(1, min(group.retry_queue_nums, retry.write_queue_nums))
            queue_id = self._chance.randrange(queues)
            copy = self._again(returned, record, properties, retry.topic_name, queue_id)
        await self._stored(copy)
        if dead is not None:
            self._counts.dead[returned.group, origin] += 1
        # A delayed copy first waits in another topic, then comes to the retry topic.
        await self._registration.announced([retry.topic_name, copy.topic])

    def _again(
        self,
        returned: ReturnedMessage,
        record: Record,
        properties: dict[str, str],
        topic: str,
        queue_id: int,
    ) -> NewMessage:
        """The copy that waits for the message's next delivery.

        A copy without room in its properties for the end of the delay is delivered without a delay, and
        counts as a delivery; if it were refused, the consumer would return the message for ever.
        """
        tries = record.reconsume_times + 1
        waiting = dict(properties)
        if not self._with_timer(returned, waiting):
            waiting[property_names.DELAY] = str(returned.delay_level or FIRST_RETRY_LEVEL + tries - 1)
        encoded = fitted_copy(record, waiting)
        copy = copied(record, waiting, topic, queue_id, encoded=encoded, reconsume_times=tries)
        try:
            return self._timers.timed(self._levels.delayed(copy, waiting), waiting)
        except RemotingError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            self._limiter.write(
                logging.WARNING,
                "no delay",
                "message %s of group %s comes again without delay: %s",
                record.message_id,
                returned.group,
                error,
            )
        encoded = fitted_copy(record, properties)
        return copied(record, properties, topic, queue_id, encoded=encoded, reconsume_times=tries)

    def _with_timer(self, returned: ReturnedMessage, properties: dict[str, str]) -> bool:
        """Set a timer, if the consumer requests one and this broker has timers; returns whether it did."""
        if not returned.delay_ms or returned.delay_ms < 0 or not self._config.timer_wheel_enable:
            return False
        delay_ms = min(returned.delay_ms, self._config.timer_max_delay_s * 1000)
        properties[property_names.TIMER_DELAY_MS] = str(delay_ms)
        return True

    def _group(self, name: str) -> SubscriptionGroupConfig:
        config = self._config
        if not self._role.takes_messages:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"no master available along with {config.broker_ip1}"
            )
        group = self._metadata.group(name)
        if not config.writable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        return group

    async def _topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        config = await self._metadata.inner_topic(name, queues, sys_flag)
        if not config.perm & reserved.PERM_WRITE:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return config

    def _record(self, returned: ReturnedMessage) -> Record:
        """The record of the message. After a loss of power another message may be in its place."""
        offset = returned.offset
        stored = self._store.record_at(offset)
        if stored is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        try:
            record = decode_record(stored)
        except MessageFormatError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}: {error}"
            ) from error
        found = decode_properties(record.properties).get(property_names.UNIQ_KEY)
        named = returned.message_id
        if found and named and named != found and not _is_place(named, offset):
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {offset}: originMsgId is {named}, stored there is {found}",
            )
        return record

    async def _stored(self, copy: NewMessage) -> None:
        """Store the copy, and bring it to the device: on success the consumer counts the message as handled.

        Raises:
            RemotingError: SYSTEM_ERROR; the consumer then uses a normal send to the retry topic.
        """
        try:
            self._append.admit()
            result = self._append.put_many([copy])
            status = await self._append.stored(result)
        except (RemotingError, StoreClosedError) as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if status is not PutStatus.OK:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, status.value)


def _is_place(message_id: str, offset: int) -> bool:
    """Whether an id is the offset message id for this place of the log: some consumers send that one."""
    try:
        return parse_offset_message_id(message_id)[2] == offset
    except MessageFormatError:
        return False


def _properties(record: Record, group: str) -> dict[str, str]:
    properties = without(decode_properties(record.properties), _DROPPED)
    came_from(properties, record, group)
    properties[property_names.WAIT] = "false"
    return properties
