"""A message is sent in its state at the call: later changes by the program do not count."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.scripted import producer_of

from orbitmq import AutoBatch, Message, Producer, SendStatus, ValidationError
from orbitmq.message.batch import iter_batch
from orbitmq.message.properties import decode_properties, parse_properties
from orbitmq.wire.codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
LIMIT = 4 * 1024 * 1024
MODES = pytest.mark.parametrize(
    "options",
    [{}, {"auto_batch": AutoBatch(linger=0.005)}, {"namespace": "space"}],
    ids=["alone", "collected", "named"],
)


def stored(world: Any) -> list[tuple[bytes, dict[str, str]]]:
    """Bodies and properties of the messages that the broker has received, without the ids."""
    singles = world.brokers["a"].requests(SEND)
    found = [(command.body, parse_properties(command.ext["i"])) for command in singles]
    for command in world.brokers["a"].requests(BATCH):
        found += [(item.body, decode_properties(item.properties)) for item in iter_batch(command.body)]
    return [
        (body, {name: value for name, value in properties.items() if name not in ("UNIQ_KEY", "WAIT")})
        for body, properties in found
    ]


@pytest.mark.behaviour("AS-14")
@MODES
async def test_what_was_submitted_is_what_the_message_was(world: Any, options: dict[str, Any]) -> None:
    async with producer_of(world, **options) as producer:
        buffer = bytearray(b"first")
        properties, keys = {"a": "1"}, ["k"]
        message = Message("t", buffer, keys=keys, properties=properties)
        plain = Message("t", b"plain")
        sent = [producer.submit(message), producer.submit(plain)]
        buffer[:] = b"later"
        keys.append("l")
        properties["a"] = message.properties["a"] = message.properties["b"] = "2"
        message.topic = plain.topic = "other"
        plain.body, plain.flag, plain.properties["a"] = b"later", 7, "2"
        await asyncio.gather(*sent)
    assert sorted(stored(world)) == [(b"first", {"a": "1", "KEYS": "k"}), (b"plain", {})]


@pytest.mark.behaviour("AS-14")
async def test_a_batch_is_what_its_list_was(world: Any) -> None:
    async with producer_of(world) as producer:
        buffer = bytearray(b"first")
        messages = [Message("t", buffer), Message("t", b"second")]

        async def change() -> None:
            buffer[:] = b"later"
            messages.clear()

        await asyncio.gather(producer.send_batch(messages), change())
    assert stored(world) == [(b"first", {}), (b"second", {})]


@pytest.mark.behaviour("AS-14")
async def test_a_message_of_a_class_of_its_own_reaches_the_middleware(world: Any) -> None:
    class Own(Message):
        note = ""

    seen: list[str] = []

    async def around(message: Message, send: Any) -> Any:
        seen.append(message.note)  # type: ignore[attr-defined]
        return await send(message)

    own = Own("t", b"x")
    own.note = "kept"
    async with producer_of(world, middleware=[around]) as producer:
        await producer.send(own)
    assert seen == ["kept"]


DOORS: dict[str, Callable[[Producer, Message], Awaitable[Any]]] = {
    "send": lambda producer, message: producer.send(message),
    "submit": lambda producer, message: producer.submit(message),
    "batch": lambda producer, message: producer.send_batch([message, Message("t", b"good")]),
    "oneway": lambda producer, message: producer.send_oneway(message),
}


@pytest.mark.behaviour("BA-09")
@MODES
@pytest.mark.parametrize("door", DOORS)
async def test_a_buffer_counts_by_its_bytes(world: Any, door: str, options: dict[str, Any]) -> None:
    numbers = array("I", [1, 2, 3])
    async with producer_of(world, **options) as producer:
        others = [asyncio.ensure_future(producer.send(Message("t", b"other"))) for _ in range(2)]
        await DOORS[door](producer, Message("t", memoryview(numbers)))  # type: ignore[arg-type]
        assert [(await other).status for other in others] == [SendStatus.SEND_OK] * 2
        assert numbers.tobytes() in [body for body, _ in stored(world)]
        if door == "batch":
            assert b"good" in [body for body, _ in stored(world)]
        before = len(stored(world))
        over = memoryview(array("I", bytes(LIMIT + 4)))
        assert over.nbytes == LIMIT + 4
        with pytest.raises(ValidationError, match="over the limit of 4194304"):
            await DOORS[door](producer, Message("t", over))  # type: ignore[arg-type]
        assert len(stored(world)) == before


@pytest.mark.behaviour("BA-09")
@MODES
@pytest.mark.parametrize("value", ["²", "9" * 5000, "soon", "1 ", "--1", "٣"])
@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC"])
async def test_a_time_that_is_no_number_is_refused(
    world: Any, name: str, value: str, options: dict[str, Any]
) -> None:
    async with producer_of(world, **options) as producer:
        for door in DOORS.values():
            with pytest.raises(ValidationError, match=name):
                await door(producer, Message("t", b"x", properties={name: value}))
    assert not stored(world)
    assert Message("t", b"x", properties={"DELAY": value}).delay_level == 0


@pytest.mark.behaviour("BA-09")
@MODES
@pytest.mark.parametrize(
    ("name", "value"),
    [("flag", 1.5), ("flag", "1"), ("flag", 2**31), ("properties", [("a", "b")]), ("body", [1])],
)
async def test_one_bad_message_spoils_no_batch(
    world: Any, name: str, value: Any, options: dict[str, Any]
) -> None:
    bad = Message("t", b"bad")
    setattr(bad, name, value)
    async with producer_of(world, **options) as producer:
        good = [asyncio.ensure_future(producer.send(Message("t", b"good"))) for _ in range(3)]
        await asyncio.sleep(0)
        for door in DOORS.values():
            with pytest.raises(ValidationError, match=name):
                await door(producer, bad)
        assert [(await each).status for each in good] == [SendStatus.SEND_OK] * 3
    assert [body for body, _ in stored(world)] == [b"good"] * 3
