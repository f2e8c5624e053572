"""``orbitmq top``: rates between two samples."""

from __future__ import annotations

import pytest

from orbitmq.admin import QueueProgress
from orbitmq.cli.main import main
from orbitmq.cli.top import Row, rates
from orbitmq.message.model import MessageQueue

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
RETRY = MessageQueue("%RETRY%billing", "broker-a", 0)


@pytest.mark.behaviour("CS-28")
def test_rates_are_sums_over_queues_and_the_largest_lag_is_first() -> None:
    before = [
        QueueProgress("billing", A0, 10, 20), QueueProgress("billing", A1, 0, 0),
        QueueProgress("mail", A0, 20, 20), QueueProgress("mail", A1, 0, 0),
    ]  # fmt: skip
    now = [
        QueueProgress("billing", A0, 14, 30), QueueProgress("billing", A1, 0, 6),
        QueueProgress("mail", A0, 30, 30), QueueProgress("mail", A1, 6, 6),
    ]  # fmt: skip
    assert rates(before, now, 2.0) == [
        Row("billing", "orders", 8.0, 2.0, 22),
        Row("mail", "orders", 8.0, 8.0, 0),
    ]


@pytest.mark.behaviour("CS-28")
def test_a_queue_that_is_new_and_an_offset_that_went_back_have_no_rate() -> None:
    now = [QueueProgress("billing", A0, 5, 30), QueueProgress("billing", A1, 100, 100)]
    assert rates([QueueProgress("billing", A0, 25, 30)], now, 1.0) == [Row("billing", "orders", 0, 0, 25)]


@pytest.mark.behaviour("CS-28")
def test_a_retry_topic_is_shown_once_it_has_something() -> None:
    empty, used = QueueProgress("billing", RETRY, 0, 0), QueueProgress("billing", RETRY, 0, 1)
    assert rates([empty], [empty], 1.0) == []
    assert rates([empty], [used], 1.0) == [Row("billing", "%RETRY%billing", 1.0, 0.0, 1)]


@pytest.mark.behaviour("CS-28")
@pytest.mark.parametrize("interval", ["0.4", "nan", "3601"])
def test_a_wrong_interval_is_refused(interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", interval]) == 2
    assert "expected 0.5 to 3600 seconds" in capsys.readouterr().err
