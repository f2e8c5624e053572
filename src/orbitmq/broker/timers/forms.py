"""The forms of a timer message: from its sender, waiting in the timer topic, and delivered.

Pure: messages and a time in, messages out. The rules are those of HookUtils.handleScheduleMessage and
TimerMessageStore.convert.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.delivered import delivery_of
from orbitmq.broker.messaging.room import fitted, fitted_copy
from orbitmq.broker.messaging.stored import copied
from orbitmq.broker.messaging.too_large import PropertiesTooLongError
from orbitmq.broker.timers.units import MAX_AHEAD_SLOTS, latest_ms, roll_ms
from orbitmq.message import property_names as names
from orbitmq.message import reserved
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from orbitmq.message.record import Record
from orbitmq.message.tags import java_hash, tags_code
from orbitmq.message.way import OF_A_WAIT, without
from orbitmq.store import NewMessage
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# Room for properties that deliveries add: TIMER_ENQUEUE_MS, TIMER_ROLL_TIMES, TIMER_DELIVER_MS; and
# TIMER_DEQUEUE_MS and DELIVERY_OF, which are left out where there is no room.
_ADDED_BYTES = 128
# RocketMQ's defaults: a long wait whose record has no TIMER_CUT_MS is cut by these.
ROCKETMQ_WINDOW_MS = 2 * 86_400_000
ROCKETMQ_PRECISION_MS = 1000
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
RECALL_TAG = "_RECALL_TAG_"


@dataclass(frozen=True, slots=True)
class Timer:
    """A message of the timer topic.

    Attributes:
        out_ms: ``TIMER_OUT_MS``, the slot of the wheel: a multiple of the precision of the broker that
            stored it. It is below the requested time, by one precision at most.
        due_ms: the first millisecond in which it may be delivered; above ``out_ms``, in the same second.
        topic: the topic to deliver the message to.
        unique_id: its ``UNIQ_KEY``; empty without one.
        deletes: in a recall, the :attr:`key` of the message that it takes back; else ``None``.
        cut_ms: the slot in which a long wait is cut, to be stored again; 0: the wait is not cut.
    """

    out_ms: int
    due_ms: int
    topic: str
    unique_id: str
    deletes: str | None = None
    cut_ms: int = 0

    @property
    def key(self) -> str:
        """Topic and unique id, which identify the message within its slot."""
        return f"{self.topic}+{self.unique_id}"

    @property
    def names(self) -> str:
        """The message's own key; for a recall, the key of the recalled message."""
        return self.deletes or self.key


def key_hash(key: str) -> int:
    """A hash of 32 bits that distinguishes most messages of a slot."""
    return zlib.crc32(key.encode("utf-8", "replace"))


def topic_hash(topic: str) -> int:
    """The hash of a topic in the timer log."""
    return java_hash(topic)


def requests_timer(properties: Mapping[str, str]) -> bool:
    """Whether a message requests delivery at a time (HookUtils.checkIfTimerMessage without delay levels)."""
    return names.TIMER_OUT_MS not in properties and not names.TIMER_PROPERTIES.isdisjoint(properties)


def requested_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """The delivery time that a message requests, in milliseconds since the epoch.

    Raises:
        RemotingError: MESSAGE_ILLEGAL, the property is not a number.
    """
    for name, unit_ms, start_ms in (
        (names.TIMER_DELAY_SEC, 1000, now_ms),
        (names.TIMER_DELAY_MS, 1, now_ms),
        (names.TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            if not _NUMBER.fullmatch(text):
                unit = "a delay in seconds" if unit_ms == 1000 else "a number of milliseconds"
                raise RemotingError(
                    ResponseCode.MESSAGE_ILLEGAL, f"property {name}={text[:40]}: expected {unit}"
                )
            return start_ms + int(text) * unit_ms
    raise ValueError("no timer property")


def slot_ms(deliver_ms: int, precision_ms: int) -> int:
    """``TIMER_OUT_MS``: the last multiple of the precision before the time, so that no delivery is early."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def timed(
    message: NewMessage, properties: Mapping[str, str], now_ms: int, config: BrokerConfig
) -> NewMessage:
    """The message in the form for the timer topic; without a timer, or due already, it is returned unchanged.

    Raises:
        RemotingError: MESSAGE_ILLEGAL, the time is not a number or too far away; SYSTEM_ERROR, this broker
            has no timers.
    """
    # A delay level wins over a timer; a half message becomes a timer when its transaction is committed.
    if message.topic in (reserved.SCHEDULE_TOPIC, reserved.TRANS_HALF_TOPIC, reserved.TIMER_TOPIC):
        return message
    if not requests_timer(properties):
        return message
    if not config.timer_wheel_enable:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    deliver_ms = requested_ms(properties, now_ms)
    if deliver_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in properties:
            raise _illegal(config, "a recall needs a time that is still to come")
        return message
    if deliver_ms - now_ms > config.timer_max_delay_s * 1000:
        raise _illegal(config, f"asked for {deliver_ms - now_ms}ms (timerMaxDelaySec)")
    changed = without(properties, OF_A_WAIT)
    out_ms = slot_ms(deliver_ms, config.timer_precision_ms)
    changed[names.TIMER_OUT_MS] = str(out_ms)
    _cut(changed, out_ms, now_ms, config)
    changed[names.REAL_TOPIC] = message.topic
    changed[names.REAL_QUEUE_ID] = str(message.queue_id)
    encoded = fitted(changed, MAX_PROPERTIES_BYTES - _ADDED_BYTES)
    if encoded is None:
        size = len(encode_properties(changed))
        raise PropertiesTooLongError(
            f"the message is illegal: properties of {size} bytes with the place its timer brings it "
            f"to, limit {MAX_PROPERTIES_BYTES - _ADDED_BYTES} bytes"
        )
    return replace(message, topic=reserved.TIMER_TOPIC, queue_id=0, properties=encoded)


def _cut(properties: dict[str, str], out_ms: int, now_ms: int, config: BrokerConfig) -> None:
    """Note in a message where its wait is cut: the settings may have changed when that time comes."""
    cut_ms = cut_of(out_ms, now_ms, config.timer_roll_window_ms, config.timer_precision_ms)
    if cut_ms:
        properties[names.TIMER_CUT_MS] = str(cut_ms)
    else:
        properties.pop(names.TIMER_CUT_MS, None)


def cut_of(out_ms: int, since_ms: int, window_ms: int, precision_ms: int) -> int:
    """The slot in which a wait that began at a time is cut; 0: it is not longer than the window."""
    if out_ms - since_ms < window_ms:
        return 0
    return roll_ms(out_ms, since_ms, window_ms, precision_ms)


def rocketmq_cut_ms(out_ms: int, since_ms: int) -> int:
    """Where RocketMQ's broker cuts a wait with its default settings; 0: nowhere."""
    return cut_of(out_ms, since_ms, ROCKETMQ_WINDOW_MS, ROCKETMQ_PRECISION_MS)


def _illegal(config: BrokerConfig, problem: str) -> RemotingError:
    return RemotingError(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{config.timer_max_delay_s * 1000}ms; or if set del msg, the delay time should be bigger than the "
        f"current time: {problem}",
    )


def timer_of(record: Record, properties: Mapping[str, str]) -> Timer | None:
    """The timer in a record of the timer topic; ``None`` when it is no timer message.

    A relative delay began when the message was first stored; in a copy that was stored again,
    TIMER_DELIVER_MS is the end of the delay (:func:`rolled`). Even if the clock was set, ``due_ms`` is in the
    second of its slot, and not before the requested time. The present precision has no influence: the slot
    may have been chosen with another one, or by another broker.
    """
    text = properties.get(names.TIMER_OUT_MS, "")
    topic = properties.get(names.REAL_TOPIC, "")
    if not _NUMBER.fullmatch(text) or not topic:
        return None
    out_ms = int(text)
    unique_id = properties.get(names.UNIQ_KEY, "")
    deletes = properties.get(names.TIMER_DEL_UNIQKEY)
    if deletes is not None:
        # The key has the topic (TimerMessageStore.buildDeleteKey of 5.4) or not (that of 5.5).
        named = deletes if deletes.startswith(f"{topic}+") else f"{topic}+{deletes}"
        # A recall goes to its slot at once, if the wheel of Apache's broker reaches the slot: if message and
        # recall both waited in parts, they could arrive in the wrong order.
        reach_ms = MAX_AHEAD_SLOTS * ROCKETMQ_PRECISION_MS
        cut_ms = cut_of(out_ms, record.store_timestamp, reach_ms, ROCKETMQ_PRECISION_MS)
        return Timer(out_ms, out_ms + 1, topic, unique_id, named, cut_ms)
    asked = properties
    if names.TIMER_ROLL_TIMES in properties and names.TIMER_DELIVER_MS in properties:
        asked = {names.TIMER_DELIVER_MS: properties[names.TIMER_DELIVER_MS]}
    try:
        wanted = requested_ms(asked, record.store_timestamp)
    except (RemotingError, ValueError):
        wanted = latest_ms(out_ms)
    due_ms = min(max(wanted, out_ms + 1), latest_ms(out_ms))
    text = properties.get(names.TIMER_CUT_MS, "")
    if not _NUMBER.fullmatch(text) or not record.store_timestamp < (cut_ms := int(text)) < out_ms:
        cut_ms = rocketmq_cut_ms(out_ms, record.store_timestamp)
    return Timer(out_ms, due_ms, topic, unique_id, cut_ms=cut_ms)


def delivered(
    record: Record, properties: Mapping[str, str], queue_id: int, now_ms: int, config: BrokerConfig
) -> NewMessage:
    """The message for its own topic; like Apache's it keeps REAL_TOPIC, REAL_QID and its TIMER properties."""
    changed = without(properties, frozenset({names.TIMER_CUT_MS}))
    changed[names.DELIVERY_OF] = delivery_of(record.physical_offset, config.broker_name)
    changed[names.TIMER_ENQUEUE_MS] = str(record.store_timestamp)
    changed[names.TIMER_DEQUEUE_MS] = str(now_ms)
    encoded = fitted_copy(record, changed)
    return copied(record, changed, properties[names.REAL_TOPIC], queue_id, encoded=encoded)


def rolled(
    record: Record, properties: Mapping[str, str], timer: Timer, now_ms: int, config: BrokerConfig
) -> NewMessage:
    """The message for a second wait in the timer topic: a long wait moves to the newest end of the log."""
    changed = dict(properties)
    times = whole_number(changed.get(names.TIMER_ROLL_TIMES, ""), INT32 - 1) or 0
    if timer.deletes is None:
        changed[names.TIMER_DELIVER_MS] = str(timer.due_ms)
        _cut(changed, timer.out_ms, now_ms, config)
    changed[names.DELIVERY_OF] = delivery_of(record.physical_offset, config.broker_name)
    changed[names.TIMER_ENQUEUE_MS] = str(record.store_timestamp)
    changed[names.TIMER_ROLL_TIMES] = str(times + 1)
    changed[names.TIMER_DEQUEUE_MS] = str(now_ms)
    return copied(record, changed, reserved.TIMER_TOPIC, 0, encoded=fitted_copy(record, changed))


def recall(
    timer: Timer, group: str, now_ms: int, born_host: tuple[str, int], *, with_topic: bool
) -> NewMessage:
    """The message that takes back ``timer`` (RecallMessageProcessor.buildMessage), in the timer topic.

    Args:
        with_topic: whether to name the message by its topic, too (appendTopicForTimerDeleteKey).
    """
    properties = {
        names.TAGS: RECALL_TAG,
        names.TIMER_DEL_UNIQKEY: timer.key if with_topic else timer.unique_id,
        names.UNIQ_KEY: timer.unique_id,
        names.TIMER_DELIVER_MS: str(timer.out_ms + 1),
        names.BORN_TIMESTAMP: str(now_ms),
        names.PRODUCER_GROUP: group,
        names.TIMER_OUT_MS: str(timer.out_ms),
        names.REAL_TOPIC: timer.topic,
        names.REAL_QUEUE_ID: "0",
    }
    return NewMessage(
        reserved.TIMER_TOPIC,
        0,
        b"0",
        encode_properties({name: value for name, value in properties.items() if value}),
        born_timestamp=now_ms,
        born_host=born_host,
        tags_code=tags_code(RECALL_TAG),
    )


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)
