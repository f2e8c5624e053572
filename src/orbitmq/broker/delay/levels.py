"""Delay levels: the table of delays, and the form of a delayed message in the schedule topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orbitmq.broker.messaging.room import fitted
from orbitmq.broker.messaging.too_large import PropertiesTooLongError
from orbitmq.message import property_names, reserved
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from orbitmq.message.tags import tags_code
from orbitmq.message.way import DELAYS, NOT_IN_A_NEW_WAIT, without
from orbitmq.settings.typed import ConfigError
from orbitmq.store import NewMessage
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MAX_LEVELS = 1024
# The delay of a level that has no delay set (ScheduleMessageService.computeDeliverTimestamp).
UNKNOWN_LEVEL_MS = 1000

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The parsed ``messageDelayLevel``: ``delays_ms[level - 1]`` is a level's delay (behaviour DL-01)."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Read ``1s 5s 10s``: a number and one of the units s, m, h, d for each level.

        Raises:
            ConfigError: anything else.
        """
        found = [_LEVEL.fullmatch(word) for word in text.split()]
        matches = [match for match in found if match is not None]
        if not matches or len(matches) != len(found) or len(found) > MAX_LEVELS:
            expected = f"1 to {MAX_LEVELS} delays such as 10s 5m 2h 1d, separated by blanks"
            raise ConfigError("messageDelayLevel", text, expected)
        return cls(tuple(int(match[1]) * _UNIT_MS[match[2]] for match in matches))

    @property
    def highest(self) -> int:
        """The number of the last level; the first is 1."""
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """The delay of a message of this level."""
        return self.delays_ms[level - 1] if 0 < level <= self.highest else UNKNOWN_LEVEL_MS

    def delayed(self, message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
        """The message in its form for the schedule topic; a message without a delay is returned unchanged.

        A level above the highest counts as the highest (behaviour DL-02). A level wins over timer properties.
        These are removed, as in RocketMQ, and so are properties left from an earlier wait.

        Raises:
            RemotingError: MESSAGE_ILLEGAL, the level is not a number.
        """
        if message.topic == reserved.TRANS_HALF_TOPIC:
            # The delay of a half message begins when its transaction is committed.
            return message
        level = level_of(properties)
        if level <= 0:
            return message
        level = min(level, self.highest)
        changed = without(properties, DELAYS | NOT_IN_A_NEW_WAIT)
        changed[property_names.DELAY] = str(level)
        changed[property_names.REAL_TOPIC] = message.topic
        changed[property_names.REAL_QUEUE_ID] = str(message.queue_id)
        encoded = fitted(changed)
        if encoded is None:
            size = len(encode_properties(changed))
            raise PropertiesTooLongError(
                f"the message is illegal: properties of {size} bytes with the place it is delayed "
                f"from, limit {MAX_PROPERTIES_BYTES} bytes"
            )
        return replace(
            message,
            topic=reserved.SCHEDULE_TOPIC,
            queue_id=level - 1,
            properties=encoded,
            deliver_after_ms=self.delay_ms(level),
        )

    def delivery_code(self, properties: bytes, store_timestamp: int) -> int:
        """The tags code that the schedule topic's consume queue holds for a stored record: its delivery time.

        The store calls this when it rebuilds queues from the log (behaviour DL-03).
        """
        found = decode_properties(properties)
        level = level_number(found.get(property_names.DELAY, ""))
        if level:
            return store_timestamp + self.delay_ms(min(level, self.highest))
        return tags_code(found.get(property_names.TAGS))


def level_of(properties: Mapping[str, str]) -> int:
    """The delay level in the properties of a message; 0: there is none.

    Raises:
        RemotingError: MESSAGE_ILLEGAL, the level is not a number.
    """
    text = properties.get(property_names.DELAY)
    if text is None:
        return 0
    level = _number(text)
    if level is None:
        raise RemotingError(
            ResponseCode.MESSAGE_ILLEGAL, f"property DELAY={text}: expected the number of a delay level"
        )
    return level


def level_number(text: str) -> int:
    """The delay level of a stored message's DELAY property; 0: there is no valid one."""
    level = _number(text)
    return level if level is not None and level > 0 else 0


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
