"""The effect of each outcome of a try on the fault record of its broker, and on the hooks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.scripted import never, producer_of

from orbitmq import Message, MessageQueue, Producer, SendError
from orbitmq.client.hooks import SendContext, SendHook
from orbitmq.client.producer.faults import FaultItem
from orbitmq.wire.codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2
QUEUE = MessageQueue("t", "a", 0)


def faults_of(world: Any, profile: str, **options: Any) -> Producer:
    return producer_of(world, send_latency_fault_enable=True, fault_profile=profile, retries=0, **options)


def item(producer: Producer, broker_name: str) -> FaultItem:
    return next(found for found in producer.fault_table() if found.broker_name == broker_name)


class Recorder(SendHook):
    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.contexts: list[SendContext] = []

    def before(self, context: SendContext) -> None:
        self.seen.append(("before", None))

    def after(self, context: SendContext) -> None:
        self.contexts.append(context)
        self.seen.append(("after", type(context.error)))


@pytest.mark.behaviour("SK-16")
async def test_a_cancelled_send_reaches_the_after_hook_once(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = never
    recorder = Recorder()
    async with producer_of(world, hooks=[recorder]) as producer:
        sending = asyncio.create_task(producer.send(Message("t", b"x")))
        await world.runtime.clock.sleep(0.25)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert recorder.seen == [("before", None), ("after", asyncio.CancelledError)]
        assert recorder.contexts[0].took == pytest.approx(0.25, abs=0.02)
        assert recorder.contexts[0].result is None
        submitted = producer.submit(Message("t", b"x"))
        await world.runtime.clock.sleep(0.1)
        submitted.cancel()
        await world.runtime.clock.sleep(0.1)
        assert recorder.seen[2:] == [("before", None), ("after", asyncio.CancelledError)]


@pytest.mark.behaviour("SK-16")
async def test_an_unforeseen_error_reaches_the_after_hook_too(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    recorder = Recorder()
    async with producer_of(world, hooks=[recorder]) as producer:

        async def broken(*_: Any) -> Any:
            raise ZeroDivisionError

        producer._client.remoting.request = broken
        producer._client._routes.put("t", await route_of(world), 0)
        with pytest.raises(ZeroDivisionError):
            await producer.send(Message("t", b"x"))
        assert recorder.seen == [("before", None), ("after", ZeroDivisionError)]


async def route_of(world: Any) -> Any:
    async with producer_of(world) as producer:
        await producer.queues("t")
        return producer._client.route("t")


@pytest.mark.behaviour("FT-10")
@pytest.mark.behaviour("FT-11")
@pytest.mark.parametrize("profile", ["4.7", "4.x", "5.x"])
async def test_an_interruption_does_not_isolate_but_its_time_is_noted(world: Any, profile: str) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = never
    async with faults_of(world, profile) as producer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(Message("t", b"x")), 0.3)
        found = item(producer, "a")
        assert found.latency == pytest.approx(0.3, abs=0.02)
        assert found.available_in == 0
        assert found.reachable


@pytest.mark.behaviour("FT-10")
@pytest.mark.behaviour("FT-11")
@pytest.mark.parametrize(("profile", "barred_ms"), [("4.7", 600_000), ("4.x", 600_000), ("5.x", 0)])
@pytest.mark.scripted("a", "b")
async def test_a_route_without_a_master_isolates_only_by_the_old_rules(
    world: Any, profile: str, barred_ms: int
) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    world.down.add("a")
    async with faults_of(world, profile) as producer:
        with pytest.raises(SendError, match="no master of broker 'a'"):
            await producer.send(Message("t", b"x"), queue=QUEUE)
        found = item(producer, "a")
        assert found.available_in == pytest.approx(barred_ms / 1000, abs=0.1)
        assert found.reachable


@pytest.mark.behaviour("FT-11")
@pytest.mark.behaviour("FT-12")
@pytest.mark.parametrize("submitted", [False, True])
@pytest.mark.parametrize("detector", [False, True])
async def test_an_error_code_means_unreachable_whoever_waits(
    world: Any, submitted: bool, detector: bool
) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda c: c.reply(14, "later") if c.code == SEND else "default"
    async with faults_of(world, "5.x", start_detector_enable=detector) as producer:
        with pytest.raises(SendError, match="later"):
            await (producer.submit if submitted else producer.send)(Message("t", b"x"))
        found = item(producer, "a")
        assert not found.reachable
        assert found.available_in == pytest.approx(10, abs=0.1)
