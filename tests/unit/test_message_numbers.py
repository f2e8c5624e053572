"""Parsing of numbers and times in texts that int() or fromisoformat() would misread or fail at."""

from __future__ import annotations

import pytest

from orbitmq.cli.failures import UsageError
from orbitmq.cli.times import rate_per_s, time_ms
from orbitmq.message.numbers import INT32, instant_ms, whole_number
from orbitmq.spark import option_values

NO_NUMBERS = [
    "",
    "²",
    "٣",
    "½",
    "1_000",
    " 1",
    "1 ",
    "+1",
    "-1",
    "1.0",
    "1e3",
    "0x1",
    "9" * 20,
    "9" * 5000,
    "1²",
]
NO_TIMES = [
    "1794042000", "179404200000", "17940420000000", "20261121", "20261121140000", "2026-1-1", "2026-02-30",
    "2026-11-21x14:00", "2026-W05", "²" * 13, "0001-01-01", "0001-01-01T00:00+14:00", "1969-12-31", "",
    "soon", "2026-11-21T14", "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_whole_number(text: str) -> None:
    assert whole_number(text) is None
    with pytest.raises(UsageError, match="messages a second"):
        rate_per_s(text)
    with pytest.raises(ValueError, match="is not a whole number above 0"):
        option_values.count(text + "²")


def test_what_is_one() -> None:
    assert whole_number("0") == 0
    assert whole_number("007") == 7
    assert whole_number(str(2**63 - 1)) == 2**63 - 1
    assert whole_number(str(2**63)) is None
    assert whole_number(str(INT32), INT32) == INT32
    assert whole_number(str(INT32 + 1), INT32) is None
    assert rate_per_s("500/s") == rate_per_s("500") == 500


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_time_of_two_meanings_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"digits|neither|before 1970"):
        instant_ms(text)
    with pytest.raises(UsageError, match=r"--to .*expected first, a time, or how long ago"):
        time_ms(text, "--to", "first, ")
    with pytest.raises(ValueError, match=r"digits|neither|before 1970"):
        option_values.instant_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1794042000000", 1_794_042_000_000),
        ("1796012000000", 1_796_012_000_000),
        ("2026-11-07T09:00", 1_794_042_000_000),
        ("2026-11-07 09:00:00.000Z", 1_794_042_000_000),
        ("2026-11-07T10:00:00+01:00", 1_794_042_000_000),
        ("2026-11-07", 1_794_009_600_000),
    ],
)
def test_a_time_of_one_meaning_is_read(text: str, milliseconds: int) -> None:
    assert instant_ms(text) == milliseconds
    assert time_ms(text, "--to") == milliseconds
    assert option_values.instant_ms(text) == milliseconds


def test_how_long_ago_ends_at_1970() -> None:
    assert time_ms("999999999d", "--from") == 0
    assert time_ms("10m", "--from") > 1_700_000_000_000
    for text in ("²m", "9" * 5000 + "m", "-1m", "1w"):
        with pytest.raises(UsageError):
            time_ms(text, "--from")


def test_durations_and_sizes_have_plain_digits() -> None:
    assert option_values.duration_ms("15m") == 900_000
    assert option_values.size_bytes("4m") == 4 << 20
    for text in ("²s", "٣s", "9" * 5000 + "s"):
        with pytest.raises(ValueError, match="is not a time such as"):
            option_values.duration_ms(text)
        with pytest.raises(ValueError, match="is not a size such as"):
            option_values.size_bytes(text.replace("s", "k"))
