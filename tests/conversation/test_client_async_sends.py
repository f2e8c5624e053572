"""Sends with a callback: where they behave like Java's asynchronous ones, and where they are better on
purpose.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.scripted import never, producer_of

from orbitmq import Message, SendError, SendResult
from orbitmq.client.hooks import SendContext, SendHook
from orbitmq.client.producer import callbacks as submitted
from orbitmq.client.producer import producer as producer_module
from orbitmq.client.producer.batching import AutoBatch
from orbitmq.errors import BrokerError, SendErrorKind, TopicNotFoundError, ValidationError
from orbitmq.message.properties import parse_properties
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.recall_handle import RecallHandle

SEND = RequestCode.SEND_MESSAGE_V2


class Heard:
    """A callback that keeps its results."""

    def __init__(self) -> None:
        self.results: list[SendResult] = []
        self.errors: list[Exception] = []

    def __call__(self, result: SendResult | None, error: Exception | None) -> None:
        if result is not None:
            self.results.append(result)
        if error is not None:
            self.errors.append(error)


def refusing(code: int) -> Any:
    def script(command: Command) -> Any:
        return command.reply(code, "no") if command.code == SEND else "default"

    return script


def frozen(command: Command) -> Any:
    return never(command) if command.code == SEND else "default"


@pytest.mark.behaviour("AS-07")
async def test_a_callback_runs_after_the_caller_not_inside_it(world: Any) -> None:
    async with producer_of(world) as producer:
        world.topics["t"] = {"a": 1}
        heard = Heard()
        task = producer.submit(Message("t", b"x"), heard)
        assert heard.results == []
        result = await task
        await asyncio.sleep(0)
        assert heard.results == [result]
        assert not heard.errors


async def test_a_callback_that_fails_harms_nobody(world: Any, caplog: Any) -> None:
    world.topics["t"] = {"a": 1}

    def bad(result: Any, error: Any) -> None:
        raise RuntimeError("oh")

    async with producer_of(world) as producer:
        await producer.submit(Message("t", b"x"), bad)
        await producer.submit(Message("t", b"y"))
        cancelled = producer.submit(Message("t", b"z"), bad)
        cancelled.cancel()
        await asyncio.sleep(0.1)
    assert len([record for record in caplog.records if "callback" in record.message]) == 1


@pytest.mark.behaviour("AS-03")
@pytest.mark.behaviour("AS-06")
@pytest.mark.scripted("a", "b")
async def test_after_a_transport_error_another_broker_gets_it_under_a_queue_of_its_own(world: Any) -> None:
    async with producer_of(world) as producer:
        # Java keeps the queue id of the first try, which the other broker may not have.
        world.topics["t"] = {"a": 8, "b": 1}
        await world.brokers["a"].stop()
        heard = Heard()
        for _ in range(9):
            await producer.submit(Message("t", b"x"), heard)
        await asyncio.sleep(0)
        assert {(result.queue.broker_name, result.queue.queue_id) for result in heard.results} == {("b", 0)}


@pytest.mark.behaviour("AS-04")
@pytest.mark.scripted("a", "b")
async def test_an_answer_with_an_error_code_is_tried_elsewhere_too(world: Any) -> None:
    """Java's asynchronous sends give up here, its others do not. OrbitMQ's retry alike, so a callback loses
    nothing.
    """

    async with producer_of(world) as producer:
        world.topics["t"] = {"a": 1, "b": 1}
        world.brokers["a"].script = refusing(14)
        for _ in range(4):
            result = await producer.submit(Message("t", b"x"))
            assert result.queue.broker_name == "b"
        world.brokers["a"].script = refusing(13)
        world.brokers["b"].script = refusing(13)
        heard = Heard()
        with pytest.raises(SendError):
            await producer.submit(Message("t", b"x"), heard)
        await asyncio.sleep(0)
        (error,) = heard.errors
        assert isinstance(error, SendError)
        assert (error.kind, len(error.attempts)) == (SendErrorKind.REFUSED, 1)


@pytest.mark.behaviour("AS-05")
@pytest.mark.scripted("a", "b")
async def test_the_second_try_gets_time_of_its_own(world: Any) -> None:
    async with producer_of(world, timeout=3) as producer:
        world.topics["t"] = {"a": 1, "b": 1}
        world.brokers["a"].script = frozen
        begun = world.runtime.clock.monotonic()
        results = await asyncio.gather(*(producer.submit(Message("t", b"x")) for _ in range(4)))
        assert {result.queue.broker_name for result in results} == {"b"}
        assert world.runtime.clock.monotonic() - begun < 3


@pytest.mark.behaviour("AS-08")
async def test_waiting_for_a_turn_is_part_of_the_time(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = frozen
    async with producer_of(world, max_in_flight=10, timeout=1, retries=0) as producer:
        begun = world.runtime.clock.monotonic()
        heard = Heard()
        sends = [producer.submit(Message("t", b"x"), heard) for _ in range(11)]
        await asyncio.wait(sends)
        await asyncio.sleep(0)
        assert world.runtime.clock.monotonic() - begun == pytest.approx(1.0, abs=0.1)
        kinds = [error.kind for error in heard.errors if isinstance(error, SendError)]
        assert sorted(kind.name for kind in kinds) == ["TIMEOUT"] * 10 + ["TOO_MANY_REQUESTS"]


@pytest.mark.behaviour("AS-08")
async def test_submitted_sends_are_limited(world: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(submitted, "MAX_SUBMITTED", 3)
    monkeypatch.setattr(producer_module, "MAX_SUBMITTED", 3)

    async with producer_of(world) as producer:
        world.topics["t"] = {"a": 1}
        sends = [producer.submit(Message("t", b"x")) for _ in range(3)]
        with pytest.raises(SendError, match="too much is under way"):
            producer.submit(Message("t", b"x"))
        await asyncio.gather(*sends)
        await producer.submit(Message("t", b"x"))


async def test_submitting_to_batches_needs_no_task_and_tells_all_the_same(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = None
    async with producer_of(world, auto_batch=AutoBatch(), retries=0) as producer:
        heard = Heard()
        sends = [producer.submit(Message("t", b"%d" % n, tags="x"[: n % 2]), heard) for n in range(300)]
        assert producer._batches is not None
        assert producer._batches.waiting == 300
        results = await asyncio.gather(*sends)
        await asyncio.sleep(0)
        assert heard.results == results
        assert producer._batches.waiting == 0
        assert sorted(result.queue_offset for result in results) == list(range(300))
        assert len({result.message_id for result in results}) == 300
        world.brokers["a"].script = lambda command: (
            command.reply(13, "no") if command.code == RequestCode.SEND_BATCH_MESSAGE else "default"
        )
        failing = producer.submit(Message("t", b"x"), heard)
        with pytest.raises(SendError):
            await failing
        await asyncio.sleep(0)
        assert len(heard.errors) == 1
        assert producer._batches.waiting == 0
        with pytest.raises(ValidationError):
            producer.submit(Message("t", b""))


@pytest.mark.behaviour("FT-12")
@pytest.mark.scripted("a", "b")
async def test_submitted_sends_are_noted_in_the_fault_table(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    async with producer_of(world, send_latency_fault_enable=True) as producer:
        world.brokers["a"].script = refusing(14)
        await asyncio.gather(*(producer.submit(Message("t", b"x")) for _ in range(4)))
        table = {item.broker_name: item for item in producer.fault_table()}
        assert table["a"].available_in > 500
        assert not table["a"].reachable
        assert table["b"].available_in == 0


@pytest.mark.behaviour("SK-17")
async def test_the_after_hook_runs_once_for_a_try_with_its_result(world: Any) -> None:
    """Java runs the hook twice, the first time without a result; OrbitMQ runs it once the result is known."""

    seen: list[SendContext] = []

    class Remember(SendHook):
        def after(self, context: SendContext) -> None:
            seen.append(context)

    async with producer_of(world, hooks=[Remember()]) as producer:
        world.topics["t"] = {"a": 1}
        result = await producer.submit(Message("t", b"x"))
        assert [context.result for context in seen] == [result]


@pytest.mark.behaviour("MV-10")
@pytest.mark.behaviour("MV-11")
async def test_a_message_waits_for_storage_without_saying_so(world: Any) -> None:
    async with producer_of(world) as producer:
        world.topics["t"] = {"a": 1}
        message = Message("t", b"x")
        assert message.wait_stored
        await producer.send(message)
        (command,) = world.brokers["a"].requests(SEND)
        # Java writes WAIT=true here, 10 bytes with the same meaning as their absence.
        assert "WAIT" not in parse_properties(command.ext["i"])
        assert Message("t", b"x", properties={"WAIT": "true"}).wait_stored
        assert not Message("t", b"x", properties={"WAIT": "false"}).wait_stored


# -- recall ----------------------------------------------------------------------------------------------


@pytest.mark.scripted("a", "b")
async def test_a_recall_goes_to_the_broker_that_the_handle_names(world: Any) -> None:
    async with producer_of(world) as producer:
        world.topics["t"] = {"a": 1, "b": 1}
        asked: list[Command] = []

        def script(command: Command) -> Any:
            if command.code != RequestCode.RECALL_MESSAGE:
                return "default"
            asked.append(command)
            return command.reply(ext={"msgId": "4711"})

        world.brokers["b"].script = script
        handle = RecallHandle("t", "b", "1000", "4711").encode()
        assert await producer.recall("t", handle) == "4711"
        assert asked[0].ext["recallHandle"] == handle
        with pytest.raises(BrokerError) as caught:
            await producer.recall("t", RecallHandle("t", "a", "1000", "4711").encode())
        assert caught.value.code == 3
        with pytest.raises(ValidationError):
            await producer.recall("t", "nonsense")
        with pytest.raises(TopicNotFoundError, match="no master of broker 'c'"):
            await producer.recall("t", RecallHandle("t", "c", "1", "2").encode())
