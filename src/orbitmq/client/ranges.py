"""The ranges of all numbers that producers and consumers accept: one table, one check, one error text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any

from orbitmq.durations import seconds, shown
from orbitmq.errors import ValidationError

INT32 = 2**31 - 1
DAY_S = 24 * 3600
SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a number.

    Attributes:
        least: the smallest value.
        most: the largest value; None for no limit.
        unit: the unit of the value in error texts; empty for a count. Seconds may have fractions, or be given
            as a timedelta.
    """

    least: float
    most: float | None
    unit: str = ""

    def check(self, name: str, value: object) -> None:
        """Refuse a value outside the range.

        Raises:
            ValidationError: the value is out of range; the text names the option and its range.
        """
        if self.unit == SECONDS:
            assert self.most is not None
            seconds(name, value, self.least, self.most)
        elif (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not self.least <= value
            or (self.most is not None and value > self.most)
        ):
            raise ValidationError(f"{name} must be {self}, got {shown(value)}")

    def nearest(self, value: float) -> float:
        """The value, or the nearest limit when it is out of range."""
        raised = max(value, self.least)
        return raised if self.most is None else min(raised, self.most)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.most is None:
            return f"{self.least:,} or more{unit}"
        return f"{self.least:,} to {self.most:,}{unit}"


# Prefixes of the types of options that take several kinds of values.
_LISTS = ("Sequence[", "Collection[")
# Longer than programs wait for one answer; a value above it is probably meant as milliseconds.
_TIMEOUT = Range(0.001, 600, SECONDS)
# By the name of the option; for an option of a nested class, the key begins with the class's name.
RANGES: Mapping[str, Range] = {
    # producers
    "timeout": _TIMEOUT,
    "attempt_timeout": _TIMEOUT,
    # No limit: tries end with the timeout of the send, and no request waits longer for its answer.
    "retries": Range(0, None),
    "async_retries": Range(0, None),
    "max_async": Range(1, None),
    "retry_codes": Range(-(2**31), INT32),
    "max_message_bytes": Range(1, INT32, "bytes"),
    "compress_from_bytes": Range(0, INT32, "bytes"),
    "compression_level of ZLIB": Range(0, 9),
    "compression_level of LZ4": Range(0, 22),
    "compression_level of ZSTD": Range(1, 22),
    "max_in_flight": Range(1, INT32),
    "max_in_flight_bytes": Range(1, 2**40, "bytes"),
    "callback_threads": Range(0, 64),
    "default_topic_queues": Range(1, 1024),
    # Longer than a batch needs; a 5 is surely meant as milliseconds.
    "AutoBatch.linger": Range(0, 1, SECONDS),
    "AutoBatch.max_bytes": Range(1, INT32, "bytes"),
    "AutoBatch.max_messages": Range(1, INT32),
    # consumers
    # RocketMQ's limit (DefaultMQPushConsumerImpl.checkConfig).
    "pull_batch_size": Range(1, 1024),
    "max_reconsume_times": Range(-1, INT32),
    "consume_timeout": Range(0.001, 7 * DAY_S, SECONDS),
    "close_timeout": Range(0, 3600, SECONDS),
    "concurrency": Range(1, 10_000),
    # Values below 10 ms count as 10 ms, and above 30 s as 30 s, as in RocketMQ (CR-18).
    "failure_pause": Range(0.001, 60, SECONDS),
    # A broker returns at most 32 messages per pop.
    "pop_batch_size": Range(1, 32),
    "batch_size": Range(1, 32),
    "pop_invisible_for": Range(5, 300, SECONDS),
    # RocketMQ's longest invisible time (timerMaxDelaySec), and the shortest useful one.
    "invisible_for": Range(0.001, 3 * DAY_S, SECONDS),
    "renew_for": Range(0, 7 * DAY_S, SECONDS),
    "FlowLimits.messages": Range(1, None),
    "FlowLimits.size_bytes": Range(1, None, "bytes"),
    "FlowLimits.span": Range(1, None),
    "FlowLimits.total_bytes": Range(1, None, "bytes"),
    "FlowLimits.popped": Range(1, None),
    # calls
    "receive max_messages": Range(1, 32),
    "poll max_messages": Range(1, 10_000),
    "wait": Range(0, 600, SECONDS),
    "poll timeout": Range(0, 600, SECONDS),
    # operations
    "GroupSettings.max_retries": Range(0, INT32),
    "GroupSettings.retry_queues": Range(0, 1024),
    "GroupSettings.retry_delays": Range(0, DAY_S, SECONDS),
    "GroupSettings.consume_timeout": Range(60, DAY_S, SECONDS),
    "Backoff.first": Range(0.001, DAY_S, SECONDS),
    "Backoff.longest": Range(0.001, DAY_S, SECONDS),
    "Backoff.factor": Range(1, INT32),
    "Admin.queues": Range(0, 65536),
    "Admin.perm": Range(0, 7),
    "Admin.count": Range(1, INT32),
    "Admin.max_messages": Range(1, INT32),
    "Admin.rate": Range(1, 1_000_000, "messages a second"),
    "Admin.limit": Range(1, 2**62),
    "Admin.max_redrives": Range(1, 1_000_000),
    "Admin.within": _TIMEOUT,
}


def check_number(name: str, value: object, *, called: str | None = None) -> None:
    """Refuse a number outside its range.

    Args:
        name: the key in :data:`RANGES`.
        called: the option's name in the error, if it is not ``name``.

    Raises:
        ValidationError: the value is out of range; the text names the option and its range.
    """
    RANGES[name].check(called or name, value)


def check_options(options: Any) -> None:
    """Check all options of a dataclass: ranges of numbers, types of texts, flags and lists.

    Raises:
        ValidationError: an option is invalid; the text names it and its allowed values.
    """
    for field in fields(options):
        value, kind = getattr(options, field.name), str(field.type)
        if value is None and kind.endswith("None"):
            continue
        if field.name in RANGES and "Collection" not in kind:
            check_number(field.name, value)
        elif kind == "bool" and not isinstance(value, bool):
            raise ValidationError(f"{field.name} must be True or False, got {value!r}")
        elif kind in ("str", "str | None") and not isinstance(value, str):
            raise ValidationError(f"{field.name} must be a string, got {value!r}")
        elif kind == "bool | str" and not isinstance(value, bool | str):
            raise ValidationError(f"{field.name} must be True, False or a string, got {value!r}")
        elif kind.startswith(_LISTS) and (isinstance(value, str) or not isinstance(value, Collection)):
            raise ValidationError(f"{field.name} must be a list, got {value!r}")


def check_kind(name: str, value: object, kind: type[Any] | UnionType) -> None:
    """Refuse an object that is not of this class, or of one of these classes.

    Raises:
        ValidationError: the value has another type; the text names the option and the class.
    """
    if not isinstance(value, kind):
        needed = "a string" if kind is str else getattr(kind, "__name__", kind)
        raise ValidationError(f"{name} must be {needed}, got {value!r:.80}")
