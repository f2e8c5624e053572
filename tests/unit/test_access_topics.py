"""The topic of the message at a log offset, for checks of rights."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.broker.access.topics import topic_at
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record, encode_record


class Log:
    def __init__(self, stored: bytes | None) -> None:
        self._stored = stored

    def record_at(self, _offset: int, *, damaged: bool = False) -> bytes | None:
        # A damaged record can be viewed, so its topic has to be found, too.
        assert damaged
        return self._stored


def owner(stored: bytes | None) -> str | None:
    log: Any = Log(stored)
    return topic_at(log, 7)


@pytest.mark.behaviour("AZ-04")
@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", "orders"),
        ("%RETRY%billing", "%RETRY%billing"),
        ("SCHEDULE_TOPIC_XXXX", "invoices"),
        ("rmq_sys_wheel_timer", "invoices"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "invoices"),
    ],
)
def test_a_message_that_waits_is_of_the_topic_that_it_waits_for(topic: str, expected: str) -> None:
    properties = encode_properties({"REAL_TOPIC": "invoices"})
    assert owner(encode_record(Record(topic, b"x", properties))) == expected


@pytest.mark.behaviour("AZ-04")
def test_what_cannot_be_read_is_of_no_topic() -> None:
    assert owner(None) is None
    assert owner(encode_record(Record("orders", b"x"))[:40]) == ""
    assert owner(encode_record(Record("rmq_sys_wheel_timer", b"x"))) == "rmq_sys_wheel_timer"
