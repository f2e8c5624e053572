"""Time in the public API: seconds or a timedelta, and datetimes with a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from orbitmq import AutoBatch, Consumer, Message, Producer, PullConsumer, SimpleConsumer, ValidationError
from orbitmq.admin import Admin
from orbitmq.durations import instant, instant_ms, milliseconds, seconds

NAN, INF = float("nan"), float("inf")
HUGE = pytest.param(10**5000, id="huge")


def test_a_duration_is_a_number_of_seconds_or_a_timedelta() -> None:
    for given in (1.5, timedelta(seconds=1.5)):
        assert seconds("timeout", given, 0, 10) == 1.5
        assert milliseconds(given) == 1500
    assert [milliseconds(each) for each in (0, 0.0001, 0.035, 1.1, 1.2345)] == [0, 1, 35, 1100, 1235]


@pytest.mark.behaviour("SK-23")
@pytest.mark.parametrize(
    "wrong", [0, -1, NAN, INF, HUGE, True, "3", None, timedelta(0), timedelta(days=9000)]
)
def test_a_duration_out_of_its_range_names_field_range_and_unit(wrong: Any) -> None:
    for make, text in (
        (lambda: Producer("g", timeout=wrong), r"timeout must be 0\.001 to 600 seconds"),
        (
            lambda: SimpleConsumer("g", invisible_for=wrong),
            r"invisible_for must be 0\.001 to 259,200 seconds",
        ),
        (lambda: Consumer("g", consume_timeout=wrong), r"consume_timeout must be 0\.001 to 604,800 seconds"),
        (lambda: PullConsumer("g", consume_timeout=wrong), "consume_timeout must be"),
        (lambda: Message("t", b"", delay=wrong), "delay must be above 0 to 315,360,000 seconds"),
    ):
        if wrong is None and text.startswith("delay"):
            continue  # a message without a delay
        with pytest.raises(ValidationError, match=text) as caught:
            make()
        assert len(str(caught.value)) < 300


@pytest.mark.behaviour("SK-23")
@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Producer("g", timeout=3000), "for 3,000 milliseconds write 3"),
        (lambda: Producer("g", attempt_timeout=1500), r"for 1,500 milliseconds write 1\.5"),
        (lambda: AutoBatch(linger=100), r"for 100 milliseconds write 0\.1"),
        (lambda: AutoBatch(linger=5), r"for 5 milliseconds write 0\.005"),
        (lambda: Admin(timeout=3000), "for 3,000 milliseconds write 3"),
        (lambda: Consumer("g", failure_pause=1000), "for 1,000 milliseconds write 1"),
        (lambda: Consumer("g", close_timeout=10_000), "for 10,000 milliseconds write 10"),
        (lambda: Consumer("g", consume_timeout=900_000), "for 900,000 milliseconds write 900"),
        (
            lambda: Message("t", b"", delay=99_999_999_999.0),
            r"for 99,999,999,999 milliseconds write 99999999\.999$",
        ),
    ],
)
def test_milliseconds_where_seconds_are_meant_get_a_hint(make: Any, hint: str) -> None:
    with pytest.raises(ValidationError, match=f"time is in seconds here: {hint}"):
        make()


def test_timedeltas_are_taken_by_every_option() -> None:
    second = timedelta(seconds=1)
    Producer("g", timeout=second, attempt_timeout=second, auto_batch=AutoBatch(linger=second))
    Consumer("g", consume_timeout=second, close_timeout=second, failure_pause=second)
    Consumer("g", pop_invisible_for=60 * second)
    SimpleConsumer("g", invisible_for=second, renew_for=second, close_timeout=second)
    assert Message("t", b"", delay=second).properties == {"TIMER_DELAY_MS": "1000"}


@pytest.mark.behaviour("SK-23")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (datetime(2027, 1, 1), "must have a time zone"),
        (1_700_000_000_000, "must be a datetime with a time zone"),
        (1.5, "must be a datetime with a time zone"),
        pytest.param(10**5000, "got a number with too many digits", id="huge"),
        ("now", "must be a datetime with a time zone"),
        (datetime(1969, 12, 31, tzinfo=UTC), "from 1970 to 9999"),
    ],
)
def test_an_instant_without_a_time_zone_or_of_another_kind_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=f"deliver_at .*{text}|{text}"):
        Message("t", b"", deliver_at=wrong)
    with pytest.raises(ValidationError, match=f"consume_timestamp .*{text}|{text}"):
        Consumer("g", consume_timestamp=wrong)


def test_an_instant_is_exact_to_the_millisecond_in_every_zone() -> None:
    there = timezone(timedelta(hours=5, minutes=45))
    for at_ms in (0, 1, 1_700_000_000_001, 253_402_300_799_999):
        assert instant_ms("at", instant(at_ms)) == at_ms
    assert instant_ms("at", instant(1_700_000_000_001).astimezone(there)) == 1_700_000_000_001
