"""Options of a producer for its waits, its batches, and its reports on brokers."""

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
    options = {"attempt_timeout": 0.2, "timeout": 0.9}
    async with producer_of(world, **options) as producer:
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"))
        first, second, last = (attempt.took for attempt in caught.value.attempts)
        assert (first, second) == (pytest.approx(0.2, abs=0.02), pytest.approx(0.2, abs=0.02))
        # The last try need not leave time for another one.
        assert last == pytest.approx(0.5, abs=0.05)
        assert caught.value.took == pytest.approx(0.9, abs=0.05)
        with pytest.raises(SendError) as caught:
            await producer.send(Message("t", b"x"), timeout=0.3)
        assert caught.value.kind is SendErrorKind.TIMEOUT
        assert caught.value.took == pytest.approx(0.3, abs=0.03)


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
        assert barred.available_in == pytest.approx(barred_ms / 1000, abs=0.1)
        assert barred.latency == pytest.approx(1, abs=0.05)
        assert used.available_in == 0
        await world.runtime.clock.sleep(5)
        assert producer.fault_table()[0].available_in == pytest.approx(barred_ms / 1000 - 5, abs=0.1)
        await world.runtime.clock.sleep(600)
        assert producer.fault_table()[0].available_in == 0
