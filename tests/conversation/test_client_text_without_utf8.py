"""Half of a surrogate pair has no UTF-8 form: every call refuses it with the same error and sends nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.scripted import producer_of

from orbitmq import (
    AutoBatch,
    Consumer,
    Message,
    Producer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    ValidationError,
)
from orbitmq.client.core.instance import ClientInstance
from orbitmq.message.utf8 import for_people
from orbitmq.wire.codes import RequestCode

HALF = "a\ud83d"
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
MESSAGES: dict[str, Callable[[], Message]] = {
    "keys": lambda: Message("t", b"x", keys=["good", HALF]),
    "tags": lambda: Message("t", b"x", tags=HALF),
    "value": lambda: Message("t", b"x", properties={"a": HALF}),
    "name": lambda: Message("t", b"x", properties={HALF: "a"}),
    "sharding key": lambda: Message("t", b"x", sharding_key=HALF),
    "topic": lambda: Message(HALF, b"x"),
    "body": lambda: Message("t", HALF),
}
DOORS: dict[str, Callable[[Producer, Message], Awaitable[Any]]] = {
    "send": lambda producer, message: producer.send(message),
    "submit": lambda producer, message: producer.submit(message),
    "batch": lambda producer, message: producer.send_batch([message]),
    "oneway": lambda producer, message: producer.send_oneway(message),
    "request": lambda producer, message: producer.request(message, timeout=1),
}


@pytest.mark.behaviour("MV-18")
@pytest.mark.parametrize("options", [{}, {"auto_batch": AutoBatch()}], ids=["alone", "collected"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("text", MESSAGES)
async def test_a_message_is_refused_at_every_door(
    world: Any, text: str, door: str, options: dict[str, Any]
) -> None:
    async with producer_of(world, **options) as producer:
        with pytest.raises(ValidationError) as failure:
            await DOORS[door](producer, MESSAGES[text]())
        assert failure.value.code == 13
        str(failure.value).encode()  # it can be printed
    assert not any(world.brokers["a"].requests(code) for code in SENDS)


@pytest.mark.behaviour("MV-18")
async def test_so_is_a_transaction_and_a_key_that_orders(world: Any) -> None:
    state = TransactionState.COMMIT
    options = {"name_servers": world.name_servers, "runtime": world.runtime}
    async with TransactionProducer("pg", check=lambda _: state, **options) as producer:
        with pytest.raises(ValidationError, match="property 'TAGS' ="):
            await producer.send_in_transaction(MESSAGES["tags"](), lambda _: state)
        with pytest.raises(ValidationError, match="half of a surrogate pair"):
            await producer.send(Message("t", b"x"), ordering_key=HALF)
    assert not any(world.brokers["a"].requests(code) for code in SENDS)


@pytest.mark.behaviour("MV-18")
def test_so_are_names_and_expressions() -> None:
    with pytest.raises(ValidationError):
        Producer(HALF, name_servers="ns:1")
    with pytest.raises(ValidationError):
        Consumer(HALF, name_servers="ns:1")
    with pytest.raises(ValidationError, match="namespace"):
        Producer("pg", name_servers="ns:1", namespace=HALF)
    with pytest.raises(ValidationError, match="namespace_v2"):
        Producer("pg", name_servers="ns:1", namespace_v2=HALF)
    consumer = SimpleConsumer("cg", name_servers="ns:1")
    with pytest.raises(ValidationError, match="tag expression"):
        consumer.subscribe("t", f"b || {HALF}")
    with pytest.raises(ValidationError, match="SQL expression"):
        consumer.subscribe("t", sql=f"a = '{HALF}'")
    with pytest.raises(ValidationError):
        consumer.subscribe(HALF)


async def test_a_client_id_too(world: Any) -> None:
    with pytest.raises(ValidationError, match="client_id"):
        ClientInstance(world.runtime, world.name_servers, client_id=HALF)


def test_a_reason_is_for_people_and_stops_nothing() -> None:
    assert for_people("because") == "because"
    assert for_people("ü\ud83d") == "ü?"
