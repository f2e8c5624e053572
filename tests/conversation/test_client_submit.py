"""Submitted sends: separate tries, limits, and callbacks in threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.conversation.scripted import never, producer_of

from orbitmq import Message, MessageQueue, SendError, SendResult, SendStatus
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.producer import callbacks
from orbitmq.client.producer.batching import AutoBatch
from orbitmq.client.producer.options import ProducerOptions
from orbitmq.errors import ClientStateError, SendErrorKind
from orbitmq.runtime.system import system_runtime
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

SEND = RequestCode.SEND_MESSAGE_V2
SENDS = (SEND, RequestCode.SEND_BATCH_MESSAGE)
QUEUE = MessageQueue("t", "a", 0)


async def passing(message: Message, send: Any) -> SendResult:
    result: SendResult = await send(message)
    return result


def busy(command: Any) -> Any:
    return command.reply(2, "busy") if command.code == SEND else "default"


@pytest.mark.behaviour("AS-12")
@pytest.mark.parametrize(("retries", "async_retries"), [(0, 3), (3, 0), (2, 1)])
async def test_each_kind_of_send_has_its_own_number_of_tries(
    world: Any, retries: int, async_retries: int
) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    broker.script = busy
    options = {"retries": retries, "async_retries": async_retries}
    async with producer_of(world, **options) as producer:
        with pytest.raises(SendError, match=f"after {1 + retries} of at most {1 + retries} tries"):
            await producer.send(Message("t", b"x"))
        assert len(broker.requests(SEND)) == 1 + retries
        text = f"after {1 + async_retries} of at most {1 + async_retries} tries"
        with pytest.raises(SendError, match=text):
            await producer.submit(Message("t", b"x"))
        assert len(broker.requests(SEND)) == 2 + retries + async_retries


@pytest.mark.behaviour("AS-12")
@pytest.mark.scripted("a", "b")
async def test_a_submitted_message_for_one_queue_is_tried_there_again(world: Any) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    left = [2]

    def twice_busy(command: Any) -> Any:
        if command.code == SEND and left[0]:
            left[0] -= 1
            return command.reply(2, "busy")
        return "default"

    world.brokers["a"].script = twice_busy
    async with producer_of(world) as producer:
        assert (await producer.submit(Message("t", b"x"), queue=QUEUE)).queue == QUEUE
        assert len(world.brokers["a"].requests(SEND)) == 3
        assert not world.brokers["b"].requests(SEND)
        left[0] = 1
        with pytest.raises(SendError, match="after 1 of at most 1 tries"):
            await producer.send(Message("t", b"x"), queue=QUEUE)


@pytest.mark.behaviour("AS-01")
async def test_requests_beyond_max_async_wait_for_a_place(world: Any) -> None:
    assert ProducerOptions("g").max_async == 65535
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda c: never(c) if c.code == SEND else "default"
    async with producer_of(world, max_async=2, retries=0, timeout=1) as producer:
        await producer.queues("t")
        sends = [asyncio.create_task(producer.send(Message("t", b"x"))) for _ in range(5)]
        await world.runtime.clock.sleep(0.5)
        assert len(world.brokers["a"].requests(SEND)) == 2
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [error.kind for error in results if isinstance(error, SendError)] == [
            SendErrorKind.TIMEOUT
        ] * 5
        assert len([error for error in results if "waited in vain" in str(error)]) == 3


@pytest.mark.behaviour("AS-01")
async def test_a_shared_client_limits_all_its_producers(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda c: never(c) if c.code == SEND else "default"
    client = ClientInstance(world.runtime, world.name_servers, max_async=1)
    async with (
        producer_of(world, client=client) as one,
        producer_of(world, "p2", client=client) as two,
    ):
        await one.queues("t")
        sends = [asyncio.create_task(p.send(Message("t", b"x"), timeout=0.5)) for p in (one, two)]
        await world.runtime.clock.sleep(0.3)
        assert len(world.brokers["a"].requests(SEND)) == 1
        await asyncio.gather(*sends, return_exceptions=True)


@pytest.mark.behaviour("AS-07")
@pytest.mark.parametrize("auto_batch", [False, True])
async def test_callbacks_in_threads_are_called_with_results_and_errors(world: Any, auto_batch: bool) -> None:
    from orbitmq import AutoBatch

    world.topics["t"] = {"a": 1}
    heard: list[Any] = []

    def done(result: SendResult | None, error: Exception | None) -> None:
        heard.append(result or error)
        raise RuntimeError("only logged")

    options: dict[str, Any] = {"auto_batch": AutoBatch()} if auto_batch else {}
    async with producer_of(world, callback_threads=2, **options) as producer:
        results = await asyncio.gather(*(producer.submit(Message("t", b"x"), done) for _ in range(5)))
        world.brokers["a"].script = lambda c: c.reply(13, "no")
        with pytest.raises(SendError):
            await producer.submit(Message("t", b"x"), done)
        cancelled = producer.submit(Message("t", b"x"), done)
        cancelled.cancel()
        await asyncio.sleep(0)
    assert sorted(heard[:5], key=id) == sorted(results, key=id)
    assert [type(error) for error in heard[5:]] == [SendError]


@pytest.mark.parametrize("options", [{}, {"callback_threads": 1}, {"auto_batch": AutoBatch()}])
async def test_a_callback_that_raises_is_logged_and_changes_no_result(
    world: Any, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(result: SendResult | None, error: Exception | None) -> None:
        raise ValueError("of the callback")

    async with producer_of(world, **options) as producer:
        results = await asyncio.gather(*(producer.submit(Message("t", b"x"), raising) for _ in range(3)))
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    failures = [each for each in caplog.records if "of a send failed" in each.getMessage()]
    assert [str(each.exc_info and each.exc_info[1]) for each in failures] == ["of the callback"] * 3


def system_submitted(threads: int) -> callbacks.Submitted:
    return callbacks.Submitted(system_runtime().threads.pool(threads))


def result_of(number: int) -> SendResult:
    from orbitmq import SendStatus

    return SendResult(SendStatus.SEND_OK, str(number), "", QUEUE, number)


@pytest.mark.behaviour("AS-07")
def test_a_slow_callback_holds_up_neither_the_loop_nor_other_callbacks() -> None:
    async def main() -> None:
        submitted = system_submitted(2)
        release, called = threading.Event(), threading.Event()
        seen: list[int] = []

        async def send(number: int) -> SendResult:
            return result_of(number)

        def slow(result: SendResult | None, error: Exception | None) -> None:
            assert threading.current_thread() is not threading.main_thread()
            assert release.wait(30)
            seen.append(-1)

        def quick(result: SendResult | None, error: Exception | None) -> None:
            assert result is not None
            seen.append(result.queue_offset)
            if len(seen) == 20:
                called.set()

        submitted.start(send(0), slow)
        for number in range(20):
            submitted.start(send(number), quick)
        # The event loop is still running, so this wait in a thread can end.
        assert await asyncio.to_thread(called.wait, 30)
        assert seen == list(range(20))
        release.set()
        await submitted.close()
        assert seen[-1] == -1

    asyncio.run(main())


@pytest.mark.behaviour("AS-07")
def test_a_callback_that_exits_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        submitted = system_submitted(1)
        called: list[object] = []

        async def send() -> SendResult:
            return result_of(1)

        def exits(result: SendResult | None, error: Exception | None) -> None:
            raise SystemExit(3)

        submitted.start(send(), exits)
        submitted.start(send(), lambda result, error: called.append(result))
        async with asyncio.timeout(30):
            await submitted.close()
        assert called == [result_of(1)]

    asyncio.run(main())
    assert "SystemExit" in caplog.text


@pytest.mark.behaviour("AS-08")
def test_callbacks_that_wait_for_a_thread_count_as_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_SUBMITTED", 3)

    async def main() -> None:
        submitted = system_submitted(1)
        release = threading.Event()

        async def send() -> SendResult:
            return result_of(1)

        for _ in range(3):
            await submitted.start(send(), lambda result, error: release.wait(30))
        await asyncio.sleep(0)
        assert submitted.full
        release.set()
        await submitted.close()
        assert not submitted.full

    asyncio.run(main())


def test_close_does_not_wait_for_ever_for_a_callback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(callbacks, "CLOSE_TIMEOUT_S", 0.05)
    release = threading.Event()
    heard: list[Any] = []

    async def main() -> None:
        submitted = system_submitted(1)

        async def send() -> SendResult:
            return result_of(1)

        await submitted.start(send(), lambda result, error: release.wait(30))
        await asyncio.sleep(0)
        await submitted.close()
        # A later result's callback runs on the event loop.
        await submitted.start(send(), lambda result, error: heard.append(threading.current_thread()))
        await asyncio.sleep(0)

    asyncio.run(main())
    release.set()
    assert heard == [threading.main_thread()]
    assert "1 callback of sends not ended" in caplog.text


@pytest.mark.behaviour("AS-13")
@pytest.mark.parametrize(
    "options",
    [{}, {"auto_batch": AutoBatch(linger=0.05)}, {"middleware": [passing]}],
    ids=["plain", "batches", "middleware"],
)
async def test_what_was_submitted_is_sent_when_the_producer_closes(world: Any, options: Any) -> None:
    """They must not all fail with results in futures that an ending program does not read."""
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]

    async def slowly(command: Command) -> Any:
        await world.runtime.clock.sleep(1)
        return command.reply(ext={"msgId": "m", "queueId": "0", "queueOffset": "0"})

    broker.script = lambda c: slowly(c) if c.code in SENDS else "default"
    async with producer_of(world, **options) as producer:
        sends = [producer.submit(Message("t", b"%d" % number)) for number in range(20)]
    assert [send.result().status for send in sends] == [SendStatus.SEND_OK] * 20
    with pytest.raises(ClientStateError):
        await producer.submit(Message("t", b"late"))


@pytest.mark.behaviour("AS-13")
async def test_a_close_gives_submitted_messages_their_time_and_no_more(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda c: never(c) if c.code == SEND else "default"
    begun = world.runtime.clock.monotonic()
    async with producer_of(world) as producer:
        short = producer.submit(Message("t", b"x"))
        long = producer.submit(Message("t", b"x"), timeout=60)
        closing = [asyncio.ensure_future(producer.close()) for _ in range(2)]
        await asyncio.gather(*closing)
    assert 10 <= world.runtime.clock.monotonic() - begun < 12
    for send in (short, long):
        with pytest.raises(SendError):
            await send


@pytest.mark.behaviour("AS-07")
async def test_sends_that_fail_at_close_call_back_in_threads_too(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    world.brokers["a"].script = lambda c: never(c) if c.code == SEND else "default"
    heard: list[Any] = []
    producer = producer_of(world, callback_threads=1)
    run_in_thread: list[Any] = []
    async with producer:
        threads = producer._submitted._threads
        assert threads is not None
        run, threads.run = threads.run, lambda *work: run_in_thread.append(work) or run(*work)  # type: ignore[method-assign,assignment,func-returns-value]
        producer.submit(Message("t", b"x"), lambda result, error: heard.append(error))
        await world.runtime.clock.sleep(0.2)
    assert [type(error) for error in heard] == [SendError]
    assert len(run_in_thread) == 1
