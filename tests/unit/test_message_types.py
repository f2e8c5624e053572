"""The type of a message, derived from its properties."""

from __future__ import annotations

import pytest

from orbitmq.message.message_types import MESSAGE_TYPES, message_type
from orbitmq.message.properties import encode_properties


@pytest.mark.behaviour("MX-26")
@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({}, "normal"),
        ({"TAGS": "DELAY", "KEYS": "TRAN_MSG __SHARDINGKEY"}, "normal"),
        ({"MY_DELAY": "1", "TIMER_DELAY_LEVEL": "1", "x__SHARDINGKEY": "1"}, "normal"),
        ({"TRAN_MSG": "false"}, "normal"),
        ({"TRAN_MSG": "True", "__SHARDINGKEY": "1", "DELAY": "1"}, "transaction"),
        ({"TRAN_MSG": "no", "__SHARDINGKEY": "1", "DELAY": "1"}, "fifo"),
        ({"DELAY": "3"}, "delay"),
        ({"TIMER_DELAY_SEC": "3"}, "delay"),
        ({"TIMER_DELAY_MS": "3"}, "delay"),
        ({"TIMER_DELIVER_MS": "3"}, "delay"),
        ({"__STARTDELIVERTIME": "3"}, "delay"),
    ],
)
def test_the_type_is_found_as_rocketmq_finds_it(properties: dict[str, str], name: str) -> None:
    assert MESSAGE_TYPES[message_type(encode_properties(properties))] == name
