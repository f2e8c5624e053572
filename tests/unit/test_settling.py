"""The end of a message's delivery: it comes once, and its owner and all waiters learn of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import (
    LEVEL_SECONDS,
    Ending,
    Settled,
    Verdict,
    close_delivery,
    is_open,
    level_for,
    open_delivery,
)


class Owner:
    """Records its verdicts."""

    def __init__(self, answer: Settled = Settled.DONE) -> None:
        self.answer = answer
        self.told: list[Verdict] = []

    def settled(self, message: Any, verdict: Verdict) -> Settled:
        self.told.append(verdict)
        return self.answer


def delivery(answer: Settled = Settled.DONE) -> tuple[ReceivedMessage, Owner]:
    message, owner = ReceivedMessage("t", b"x", properties={"UNIQ_KEY": "id"}), Owner(answer)
    open_delivery(message, owner)
    return message, owner


STEPS = {
    "ack": lambda message: message.ack(),
    "retry": lambda message: message.retry(delay_level=3),
    "reject": lambda message: message.reject("broken"),
    "close": lambda message: Settled.DONE if close_delivery(message) else Settled.ALREADY,
}


@given(st.lists(st.sampled_from([*STEPS, "open"]), max_size=12))
def test_of_all_that_happens_in_a_delivery_the_first_counts(steps: list[str]) -> None:
    message, owner = delivery()
    opened, told = True, 0
    for step in steps:
        if step == "open":
            open_delivery(message, owner)
            opened = True
            continue
        assert STEPS[step](message) is (Settled.DONE if opened else Settled.ALREADY)
        told += opened and step != "close"
        opened = False
        assert is_open(message) == opened
    assert len(owner.told) == told


def test_what_the_owner_says_is_told() -> None:
    message, _ = delivery(Settled.GONE)
    assert message.retry() is Settled.GONE
    assert message.ack() is Settled.ALREADY


def test_a_message_that_no_consumer_gave_out_says_so() -> None:
    message = ReceivedMessage("t", b"x")
    for settle in (message.ack, message.retry, message.reject):
        with pytest.raises(ClientStateError, match="not a consumer's delivery"):
            settle()


def test_verdicts_carry_delay_and_reason() -> None:
    message, owner = delivery()
    message.retry(delay=2.5, reason="busy")
    assert owner.told == [Verdict(Ending.RETRY, 0, 2.5, "busy")]
    assert message.verdict is owner.told[0]
    message, owner = delivery()
    message.reject("bad")
    assert owner.told == [Verdict(Ending.REJECT, -1, None, "bad")]


@pytest.mark.parametrize("delay", [0, -1, float("inf"), float("nan"), "soon", True])
def test_a_delay_that_is_none_is_refused_and_settles_nothing(delay: Any) -> None:
    message, _ = delivery()
    with pytest.raises(ValidationError, match=r"delay must be above 0 to .* seconds"):
        message.retry(delay=delay)
    with pytest.raises(ValidationError, match="delay_level must be a whole number"):
        message.retry(delay_level="soon")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="delay_level must be 0 to 18, got 99"):
        message.retry(delay_level=99)
    with pytest.raises(ValidationError, match="not both"):
        message.retry(delay_level=1, delay=1)
    assert message.ack() is Settled.DONE


def test_a_time_becomes_the_next_longer_level() -> None:
    assert [level_for(s) for s in (0.1, 1, 1.1, 31, 7200, 99_999)] == [1, 1, 2, 5, 18, 18]
    assert len(LEVEL_SECONDS) == 18


def test_a_block_settles_its_message() -> None:
    message, owner = delivery()
    with message.process() as same:
        assert same is message
    assert message.ack() is Settled.ALREADY
    again, next_owner = delivery()
    with again.process():
        raise RuntimeError("no")
    assert [verdict.ending for verdict in owner.told + next_owner.told] == [Ending.ACK, Ending.RETRY]
    assert isinstance(next_owner.told[0].error, RuntimeError)


async def test_a_block_that_is_cancelled_settles_nothing(orbitmq_runtime: Any) -> None:
    message, owner = delivery()

    async def work() -> None:
        async with message.process():
            await asyncio.sleep(100)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert owner.told == []


async def test_a_block_that_awaits_something_cancelled_has_failed(orbitmq_runtime: Any) -> None:
    message, owner = delivery()
    other = asyncio.ensure_future(asyncio.sleep(100))
    other.cancel()
    async with message.process():
        await other
    assert [verdict.ending for verdict in owner.told] == [Ending.RETRY]


def test_of_many_threads_one_settles() -> None:
    for _ in range(50):
        message, owner = delivery()
        barrier = threading.Barrier(4)
        told: list[Settled] = []

        def settle(message: Any = message, barrier: Any = barrier, told: Any = told) -> None:
            barrier.wait()
            told.append(message.ack())

        threads = [threading.Thread(target=settle) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcome.name for outcome in told) == ["ALREADY"] * 3 + ["DONE"]
        assert len(owner.told) == 1
