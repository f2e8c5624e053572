"""Options of a producer that decide how long it waits, how it packs, and what it tells of its brokers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.scripted import never, producer_of

from orbitmq import Message, SendError
from orbitmq.errors import SendErrorKind
from orbitmq.message.compression import decompress
from orbitmq.message.sysflag import CompressionType
from orbitmq.wire.codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.mark.behaviour("SK-02")
@pytest.mark.behaviour("SK-03")
@pytest.mark.scripted("a", "b", "c")
async def test_one_timeout_for_each_try_and_one_for_all(world: Any) -> None:
    world.topics["t"] = dict.fromkeys("abc", 4)
    for broker in world.brokers.values():
        broker.script = never
    options = {"attempt_timeout_ms": 200, "timeout_ms": 900}
    async with producer_of(world, **options) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"))
        first, second, last = (attempt.cost_ms for attempt in caught.value.attempts)
        assert (first, second) == (pytest.approx(200, abs=20), pytest.approx(200, abs=20))
        # The last one has nobody to leave time to.
        assert last == pytest.approx(500, abs=50)
        assert caught.value.cost_ms == pytest.approx(900, abs=50)
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"), timeout_ms=300)
        assert caught.value.kind is SendErrorKind.TIMEOUT
        assert caught.value.cost_ms == pytest.approx(300, abs=30)


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_bodies_are_packed_as_asked(world: Any, kind: CompressionType) -> None:
    body = bytes(range(256)) * 8
    for level in (1, 9):
        options = {"compression": kind, "compression_level": level, "compress_from_bytes": 2048}
        async with producer_of(world, **options) as producer:
            await producer.send(Message("t", body))
            await producer.send(Message("t", body[:-1]))
    first, plain, _, _ = world.brokers["a"].requests(SEND)
    assert int(first.ext["f"]) & 0x701 == 1 | kind << 8
    assert len(first.body) < len(body)
    assert decompress(first.body, kind) == body
    assert (plain.ext["f"], plain.body) == ("0", body[:-1])


@pytest.mark.behaviour("FT-05")
@pytest.mark.parametrize(("profile", "barred_ms"), [("4.x", 600_000), ("5.x", 10_000)])
@pytest.mark.scripted("a", "b")
async def test_the_fault_table_says_for_how_long(world: Any, profile: str, barred_ms: int) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    world.brokers["a"].script = never
    options = {"send_latency_fault_enable": True, "fault_profile": profile}
    async with producer_of(world, **options) as producer:
        for _ in range(3):
            await producer.send(Message("t", b"x"))
        barred, used = producer.fault_table()
        assert (barred.broker_name, used.broker_name) == ("a", "b")
        assert barred.available_in_ms == pytest.approx(barred_ms, abs=100)
        assert barred.latency_ms == pytest.approx(1000, abs=50)
        assert used.available_in_ms == 0
        await world.runtime.clock.sleep(5)
        assert producer.fault_table()[0].available_in_ms == pytest.approx(barred_ms - 5000, abs=100)
        await world.runtime.clock.sleep(600)
        assert producer.fault_table()[0].available_in_ms == 0
