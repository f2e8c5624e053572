"""Parsing of delay levels, and the form of a delayed message."""

from __future__ import annotations

import pytest

from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.broker.delay.levels import DEFAULT_LEVELS, DelayLevels
from orbitmq.message import sysflag
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.tags import tags_code
from orbitmq.store import NewMessage
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

LEVELS = DelayLevels.parse(DEFAULT_LEVELS)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.mark.behaviour("DL-01")
def test_levels_are_read_with_their_units() -> None:
    assert LEVELS.highest == 18
    assert [LEVELS.delay_ms(level) // 1000 for level in (1, 2, 3, 4, 5, 14, 15, 16, 17, 18)] == [
        1, 5, 10, 30, 60, 600, 1200, 1800, 3600, 7200,
    ]  # fmt: skip
    assert DelayLevels.parse(" 2d  3s ").delays_ms == (172_800_000, 3000)
    assert (LEVELS.delay_ms(0), LEVELS.delay_ms(19)) == (1000, 1000)


@pytest.mark.parametrize("text", ["", "1", "s", "1s,5s", "1.5s", "1s x", "-1s", "1w", "1s " * 1025])
def test_what_is_no_table_of_delays_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        DelayLevels.parse(text)
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        BrokerConfig().updated({"messageDelayLevel": text})


def test_a_half_message_and_one_without_a_level_stay_as_they_are() -> None:
    message = NewMessage("T", 3, b"x", b"")
    assert LEVELS.delayed(message, {}) is message
    half = NewMessage("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"x", b"")
    assert LEVELS.delayed(half, {"DELAY": "3"}) is half
    committed = NewMessage("T", 3, b"x", b"", sys_flag=sysflag.TRANSACTION_COMMIT)
    assert LEVELS.delayed(committed, {"DELAY": "3"}).topic == SCHEDULE


@pytest.mark.behaviour("DL-02")
def test_a_delayed_message_remembers_its_place_and_loses_its_timer() -> None:
    message = NewMessage("T", 3, b"x", b"", tags_code=7)
    changed = LEVELS.delayed(message, {"DELAY": "77", "k": "v", "TIMER_DELAY_SEC": "1"})
    assert (changed.topic, changed.queue_id, changed.deliver_after_ms) == (SCHEDULE, 17, 7_200_000)
    assert decode_properties(changed.properties) == {
        "DELAY": "18",
        "k": "v",
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"DELAY": "soon"}, "DELAY=soon"),
        ({"DELAY": "1" * 11}, "DELAY=1111"),
        ({"DELAY": "1", "k": "v" * 32740}, "limit 32767"),
    ],
)
def test_what_cannot_be_delayed_is_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(RemotingError, match=words) as refused:
        LEVELS.delayed(NewMessage("T", 0, b"x", b""), properties)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.behaviour("DL-03")
def test_the_code_of_a_record_in_the_schedule_topic_is_its_delivery_time() -> None:
    stored = encode_properties({"DELAY": "2", "TAGS": "a"})
    assert LEVELS.delivery_code(stored, 1000) == 6000
    assert LEVELS.delivery_code(encode_properties({"DELAY": "99"}), 1000) == 7_201_000
    assert LEVELS.delivery_code(encode_properties({"TAGS": "a"}), 1000) == tags_code("a")
