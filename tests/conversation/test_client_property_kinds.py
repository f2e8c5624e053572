"""Properties that are not strings: every kind of send refuses them with the same error and sends nothing."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from tests.conversation.scripted import producer_of
from tests.conversation.test_client_text_without_utf8 import DOORS, SENDS

from orbitmq import AutoBatch, Message, TransactionProducer, TransactionState, ValidationError
from orbitmq.message.properties import properties_text

KINDS: tuple[dict[Any, Any], ...] = (
    {"a": 5},
    {"a": None},
    {5: "a"},
    {"KEYS": ["a", "b"]},
    {"TAGS": b"a"},
    {"WAIT": False},
    {"INNER_MULTI_DISPATCH": 5},
    {"UNIQ_KEY": 5},
    {"DELAY": 3},
)


@pytest.mark.behaviour("MV-19")
@pytest.mark.parametrize("options", [{}, {"auto_batch": AutoBatch()}], ids=["alone", "collected"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("properties", KINDS, ids=str)
async def test_a_property_that_is_no_string_is_refused_at_every_door(
    world: Any, properties: dict[Any, Any], door: str, options: dict[str, Any]
) -> None:
    async with producer_of(world, **options) as producer:
        with pytest.raises(ValidationError, match="property") as failure:
            await DOORS[door](producer, Message("t", b"x", properties=properties))
        assert failure.value.code == 13
    assert not any(world.brokers["a"].requests(code) for code in SENDS)


@pytest.mark.behaviour("MV-19")
@pytest.mark.parametrize("keys", [5, [5], ["a", None], [b"a"]], ids=str)
def test_so_are_keys(keys: Any) -> None:
    with pytest.raises(ValidationError, match="keys must be a string or strings"):
        Message("t", b"x", keys=keys)


@pytest.mark.parametrize("delay", ["+3", "3"])
async def test_a_delay_with_a_plus_is_a_delay(world: Any, delay: str) -> None:
    message = Message("t", b"x", properties={"DELAY": delay})
    assert message.delay_level == 3
    async with producer_of(world) as producer:
        with pytest.raises(ValidationError, match="delayed message cannot travel in a batch"):
            await producer.send_batch([message])
    state = TransactionState.COMMIT
    async with TransactionProducer(
        "pg", check=lambda _: state, name_servers=world.name_servers, runtime=world.runtime
    ) as producer:
        with pytest.raises(ValidationError, match="cannot be delayed"):
            await producer.send_in_transaction(message, lambda _: state)


def test_a_string_that_prints_as_another_one_is_sent_as_it_is() -> None:
    class Color(str, Enum):  # noqa: UP042 (a StrEnum prints as its value)
        RED = "red"

    assert properties_text({"color": Color.RED}) == "color\x01red\x02"
    assert properties_text({}) == ""
