"""Settling of messages in handlers and in loops, twice, too late; and the fate of failed messages."""

from __future__ import annotations

import asyncio
import pickle
from itertools import pairwise
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, never, running, until

from orbitmq import ConsumeFrom, Message, MessageQueue, Reader, ReceivedMessage, Settled
from orbitmq.client.hooks import ConsumeContext, ConsumeHook, ConsumeReturnType
from orbitmq.errors import ClientStateError
from orbitmq.message.properties import encode_properties, parse_properties
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
QUEUE = MessageQueue("t", "a", 0)


def one_queue(world: Any, messages: int) -> Any:
    world.topics["t"] = {"a": 1}
    for number in range(messages):
        world.brokers["a"].store("t", b"%d" % number, 0, encode_properties({"UNIQ_KEY": f"id{number}"}))
    return world.brokers["a"]


def returned(broker: Any) -> dict[str, str]:
    """The delay levels of the messages sent back, by message id."""
    return {command.ext["originMsgId"]: command.ext["delayLevel"] for command in broker.requests(BACK)}


# -- in the handler of run -------------------------------------------------------------------------------


@pytest.mark.behaviour("CR-13")
async def test_a_handler_settles_its_message_as_it_likes(world: Any) -> None:
    broker = one_queue(world, 7)
    told: list[Settled] = []

    async def handler(message: ReceivedMessage) -> None:
        match message.body:
            case b"0":
                told.append(message.ack())
            case b"1":
                told.append(message.retry(delay_level=2))
            case b"2":
                told.append(message.retry(delay_level=-1))
            case b"3":
                told.append(message.reject("broken"))
            case b"4":
                told.append(message.retry(delay=31))
            case b"5":
                told.append(message.retry(delay_level=7))
            case b"6":
                told.append(message.ack())

    consumer = consumer_of(world)
    async with running(consumer, handler):
        await until(world, lambda: len(told) == 7)
        await until(world, lambda: len(broker.requests(BACK)) == 5)
    assert returned(broker) == {"id1": "2", "id2": "-1", "id3": "-1", "id4": "5", "id5": "7"}
    assert told == [Settled.DONE] * 7
    assert broker.offsets["cg", "t", 0] == 7


async def test_a_block_in_a_handler_that_fails_loses_nothing(world: Any) -> None:
    broker = one_queue(world, 2)
    behind: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        process = message.process()
        async with process:
            raise RuntimeError("not today")
        behind.append(message.body)

    consumer = consumer_of(world)
    async with running(consumer, handler):
        await until(world, lambda: len(behind) == 2)
    assert returned(broker) == {"id0": "0", "id1": "0"}


@pytest.mark.behaviour("CR-02")
async def test_what_a_handler_settled_stands_though_it_raises(world: Any) -> None:
    broker = one_queue(world, 2)

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"0":
            message.ack()
        else:
            message.retry(delay_level=4)
        raise RuntimeError("too late to matter")

    async with running(consumer_of(world), handler):
        await until(world, lambda: broker.requests(BACK))
        await world.runtime.clock.sleep(1)
    assert returned(broker) == {"id1": "4"}
    assert broker.offsets["cg", "t", 0] == 2


@pytest.mark.behaviour("CR-02")
async def test_a_cancellation_that_nobody_meant_for_the_handler_is_a_failure(world: Any) -> None:
    broker = one_queue(world, 5)
    done: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        if message.body in (b"0", b"1", b"2"):
            other = asyncio.ensure_future(asyncio.sleep(100))
            other.cancel()
            await other
        done.append(message.body)

    async with running(consumer_of(world, concurrency=2), handler) as consumer:
        await until(world, lambda: len(done) == 2)
        await until(world, lambda: len(broker.requests(BACK)) == 3)
        assert consumer.assignment()
    assert set(returned(broker)) == {"id0", "id1", "id2"}
    assert broker.offsets["cg", "t", 0] == 5


async def test_a_cancelled_run_leaves_its_messages_for_the_next_one(world: Any) -> None:
    broker = one_queue(world, 2)
    got: list[bytes] = []

    async def hangs(message: ReceivedMessage) -> None:
        got.append(message.body)
        await asyncio.Event().wait()

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    consumer = consumer_of(world)
    consumer.subscribe("t")
    async with consumer:
        task = asyncio.ensure_future(consumer.run(hangs))
        await until(world, lambda: len(got) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = asyncio.ensure_future(consumer.run(handler))
        await until(world, lambda: len(got) == 4)
    await again
    assert sorted(got) == [b"0", b"0", b"1", b"1"]
    assert broker.requests(BACK) == []
    assert broker.offsets["cg", "t", 0] == 2


async def test_a_handler_that_forgot_to_await_has_failed(world: Any, caplog: Any) -> None:
    broker = one_queue(world, 1)

    async def really(message: ReceivedMessage) -> None:
        raise AssertionError("never awaited")

    async def handler(message: ReceivedMessage) -> Any:
        return really(message)

    async with running(consumer_of(world), handler):
        await until(world, lambda: broker.requests(BACK))
    assert "a coroutine or future that was not awaited" in caplog.text


async def test_a_handler_may_unsubscribe(world: Any) -> None:
    broker = one_queue(world, 3)
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)
        if message.body == b"1":
            consumer.unsubscribe("t")
            await world.runtime.clock.sleep(0.1)

    consumer = consumer_of(world, concurrency=1)
    async with running(consumer, handler):
        await until(world, lambda: len(got) == 2 and not consumer.assignment())
        await world.runtime.clock.sleep(1)
    assert got == [b"0", b"1"]
    assert broker.offsets["cg", "t", 0] == 2


async def test_a_handler_may_close_its_consumer(world: Any) -> None:
    broker = one_queue(world, 2)

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"1":
            await consumer.close()

    consumer = consumer_of(world, concurrency=1)
    begun = world.runtime.clock.monotonic()
    consumer.subscribe("t")
    async with consumer:
        await consumer.run(handler)
    assert world.runtime.clock.monotonic() - begun < 2
    assert broker.offsets["cg", "t", 0] == 1


# -- errors that are reported and do no harm -------------------------------------------------------------


async def test_settling_twice_is_told_and_changes_nothing(world: Any) -> None:
    broker = one_queue(world, 3)
    told: list[Settled] = []
    kept: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        kept.append(message)
        if message.body == b"0":
            told.extend([message.ack(), message.retry(), message.reject()])
        if message.body == b"1":
            told.extend([message.retry(), message.ack(), message.ack()])

    async with running(consumer_of(world), handler):
        await until(world, lambda: len(kept) == 3)
        await world.runtime.clock.sleep(0.5)
        told.append(kept[2].retry())
        await world.runtime.clock.sleep(0.5)
    assert told == [Settled.DONE, Settled.ALREADY, Settled.ALREADY] * 2 + [Settled.ALREADY]
    assert returned(broker) == {"id1": "0"}
    assert broker.offsets["cg", "t", 0] == 3


async def test_settling_after_the_queue_went_away_is_told_and_changes_nothing(world: Any) -> None:
    broker = one_queue(world, 3)
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        held: list[ReceivedMessage] = []
        async for message in consumer.messages(auto_ack=False):
            held.append(message)
            if len(held) == 3:
                break
        assert held[0].ack() is Settled.DONE
        consumer.unsubscribe("t")
        await until(world, lambda: not consumer.assignment())
        await world.runtime.clock.sleep(1)
        assert held[1].ack() is Settled.GONE
        assert held[1].ack() is Settled.ALREADY
        assert held[2].retry() is Settled.GONE
    assert broker.offsets["cg", "t", 0] == 1
    assert broker.requests(BACK) == []


async def test_settling_after_close_is_told(world: Any) -> None:
    one_queue(world, 2)
    held: list[ReceivedMessage] = []
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        async for message in consumer.messages(auto_ack=False):
            held.append(message)
            if len(held) == 2:
                break
    assert [held[0].ack(), held[1].reject()] == [Settled.GONE] * 2


@pytest.mark.behaviour("CR-15")
async def test_what_took_too_long_is_sent_back_16_at_a_time_and_settling_it_is_told(world: Any) -> None:
    broker = one_queue(world, 20)
    told: list[Settled] = []

    async def handler(message: ReceivedMessage) -> None:
        await world.runtime.clock.sleep(2000)
        told.append(message.ack())

    async with running(consumer_of(world, close_timeout=1), handler):
        await world.runtime.clock.sleep(899)
        assert broker.requests(BACK) == []
        await until(world, lambda: broker.requests(BACK), 65)
        await world.runtime.clock.sleep(5)
        assert len(broker.requests(BACK)) == 16
        assert broker.offsets["cg", "t", 0] == 16
        await world.runtime.clock.sleep(70)
        assert len(broker.requests(BACK)) == 20
        assert set(returned(broker).values()) == {"3"}
        await until(world, lambda: len(told) == 20, 2000)
    assert set(told) == {Settled.GONE}
    assert len(broker.requests(BACK)) == 20


# -- in loops --------------------------------------------------------------------------------------------


async def test_a_loop_settles_as_a_handler_does(world: Any) -> None:
    broker = one_queue(world, 5)
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        async for message in consumer:
            if message.body == b"0":
                message.retry(delay_level=3)
            elif message.body == b"1":
                message.reject()
            elif message.body == b"2":
                async with message.process():
                    raise RuntimeError("again, please")
            elif message.body == b"4":
                message.retry(delay_level=9)
                break
        await until(world, lambda: len(broker.requests(BACK)) == 4)
    assert returned(broker) == {"id0": "3", "id1": "-1", "id2": "0", "id4": "9"}
    assert broker.offsets["cg", "t", 0] == 5


async def test_the_message_in_flight_when_a_loop_is_left_may_be_settled_later(world: Any) -> None:
    broker = one_queue(world, 2)
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        message = await anext(aiter(consumer))
        await consumer.commit()
        assert broker.offsets["cg", "t", 0] == 0
        assert message.ack() is Settled.DONE
        await consumer.commit()
        assert broker.offsets["cg", "t", 0] == 1


@pytest.mark.parametrize("slow_s", [0, 3])
async def test_what_was_settled_before_the_close_is_carried_out(world: Any, slow_s: float) -> None:
    broker = one_queue(world, 6)

    async def slowly(command: Command) -> Any:
        await world.runtime.clock.sleep(slow_s)
        return command.reply()

    broker.script = lambda command: slowly(command) if slow_s and command.code == BACK else "default"
    async with consumer_of(world) as consumer:
        consumer.subscribe("t")
        got = 0
        async for message in consumer.messages(auto_ack=False):
            got += 1
            assert (message.reject() if got % 2 else message.retry()) is Settled.DONE
            if got == 6:
                break
    assert len(returned(broker)) == 6
    assert broker.offsets["cg", "t", 0] == 6


async def test_an_ordered_loop_waits_for_each_message(world: Any) -> None:
    broker = one_queue(world, 4)
    seen: list[bytes] = []
    async with consumer_of(world, ordered=True, failure_pause=0.1) as consumer:
        consumer.subscribe("t")
        async for message in consumer.messages(auto_ack=False):
            seen.append(message.body)
            if message.body == b"1" and message.reconsume_times < 2:
                message.retry()
            elif message.body == b"2":
                message.reject()
            else:
                message.ack()
            if len(seen) == 6:
                break
    assert seen == [b"0", b"1", b"1", b"1", b"2", b"3"]
    assert returned(broker) == {"id2": "-1"}
    assert broker.offsets["cg", "t", 0] == 4


async def test_an_ordered_handler_says_how_long_its_queue_pauses(world: Any) -> None:
    one_queue(world, 2)
    seen: list[tuple[bytes, float]] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append((message.body, world.runtime.clock.monotonic()))
        if message.body == b"0" and message.reconsume_times < 2:
            message.retry(delay=3)
            # Until the handler ends, no other member gets the message.
            await world.runtime.clock.sleep(10)

    async with running(consumer_of(world, ordered=True), handler):
        await until(world, lambda: len(seen) == 4, 60)
    assert [body for body, _ in seen] == [b"0", b"0", b"0", b"1"]
    assert [two - one for (_, one), (_, two) in pairwise(seen)][:2] == pytest.approx([13, 13], abs=0.1)


async def test_a_message_that_was_only_read_cannot_be_settled(world: Any) -> None:
    one_queue(world, 1)
    async with Reader("t", name_servers=world.name_servers, runtime=world.runtime) as reader:
        (message,) = [message async for message in reader]
        with pytest.raises(ClientStateError, match="not a consumer's delivery"):
            message.ack()


# -- sending back ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("SB-17")
@pytest.mark.parametrize(("version", "chosen", "told"), [(399, -1, None), (398, -1, "16"), (399, 4, "4")])
async def test_without_a_limit_of_the_users_the_groups_counts(
    world: Any, version: int, chosen: int, told: str | None
) -> None:
    broker = one_queue(world, 1)
    taken = True

    def script(command: Command) -> Any:
        if command.code == RequestCode.HEART_BEAT:
            broker._on_heart_beat(None, command)
            answer = command.reply()
            answer.version = version
            return answer
        if command.code == BACK and not taken:
            return command.reply(1, "no")
        return "default"

    broker.script = script

    async def handler(message: ReceivedMessage) -> None:
        raise RuntimeError("not today")

    async with running(consumer_of(world, max_reconsume_times=chosen), handler):
        await until(world, lambda: broker.requests(BACK))
        taken = False
        broker.store("t", b"next", 0)
        await until(world, lambda: broker.requests(RequestCode.SEND_MESSAGE_V2))
    back, sent = broker.requests(BACK)[0], broker.requests(RequestCode.SEND_MESSAGE_V2)[0]
    assert back.ext.get("maxReconsumeTimes") == told
    assert sent.ext.get("l") == told
    assert parse_properties(sent.ext["i"]).get("MAX_RECONSUME_TIMES") == told


@pytest.mark.behaviour("CR-07")
async def test_a_broker_has_5_s_to_take_a_message_back(world: Any) -> None:
    broker = one_queue(world, 1)
    broker.script = lambda command: never(command) if command.code == BACK else "default"

    async def handler(message: ReceivedMessage) -> None:
        raise RuntimeError("not today")

    async with running(consumer_of(world), handler):
        await until(world, lambda: broker.requests(RequestCode.SEND_MESSAGE_V2), 10)
    # The message that is sent as a new one fails too.
    asked, sent = broker.times(BACK)[0], broker.times(RequestCode.SEND_MESSAGE_V2)[0]
    assert sent - asked == pytest.approx(5, abs=0.1)


@pytest.mark.behaviour("CR-14")
async def test_an_ordered_message_is_tried_without_limit_by_default(world: Any) -> None:
    broker = one_queue(world, 1)
    tries = 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal tries
        assert message.reconsume_times == tries
        tries += 1
        raise RuntimeError("not yet")

    async with running(consumer_of(world, ordered=True, failure_pause=0.01), handler):
        await until(world, lambda: tries > 100, 30)
    assert broker.requests(RequestCode.SEND_MESSAGE_V2) == []
    assert broker.requests(BACK) == []
    assert broker.offsets.get(("cg", "t", 0), 0) == 0


@pytest.mark.behaviour("MO-16")
async def test_progress_travels_with_pulls_and_when_a_queue_is_given_away(world: Any) -> None:
    broker = one_queue(world, 3)
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with running(consumer_of(world), handler) as consumer:
        await until(world, lambda: len(got) == 3)
        for count in (4, 5):
            broker.store("t", b"next")
            await until(world, lambda count=count: len(got) == count)
            await world.runtime.clock.sleep(0.1)
        pulls = [c.ext for c in broker.requests(RequestCode.PULL_MESSAGE) if c.ext["topic"] == "t"]
        said = [int(ext["commitOffset"]) for ext in pulls if int(ext["sysFlag"]) & 1]
        assert said == sorted(said)
        assert said[-1] == 4
        assert broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
        consumer.unsubscribe("t")
        await until(world, lambda: not consumer.assignment())
        await until(world, lambda: broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET))
    assert broker.offsets["cg", "t", 0] == 5


# -- hooks and traces ------------------------------------------------------------------------------------


@pytest.mark.behaviour("CR-19")
async def test_hooks_tell_success_failure_exception_and_timeout_apart(world: Any) -> None:
    one_queue(world, 6)
    before: list[bool] = []
    seen: dict[bytes, tuple[ConsumeReturnType | None, bool, str]] = {}

    class Remember(ConsumeHook):
        def before(self, context: ConsumeContext) -> None:
            before.append(context.success)

        def after(self, context: ConsumeContext) -> None:
            seen[context.message.body] = context.outcome, context.success, context.reason

    async def handler(message: ReceivedMessage) -> None:
        if message.body in (b"4", b"5"):
            await world.runtime.clock.sleep(101)
        if message.body == b"1":
            raise RuntimeError("no stock")
        if message.body == b"2":
            message.retry(reason="closed on Sundays")
        if message.body == b"3":
            async with message.process():
                raise KeyError("x")
        if message.body == b"5":
            message.reject("never")

    async with running(consumer_of(world, hooks=[Remember()], consume_timeout=100), handler):
        await until(world, lambda: len(seen) == 6, 120)
    kinds = ConsumeReturnType
    assert seen == {
        b"0": (kinds.SUCCESS, True, ""),
        b"1": (kinds.EXCEPTION, False, "no stock"),
        b"2": (kinds.FAILED, False, "closed on Sundays"),
        b"3": (kinds.EXCEPTION, False, "'x'"),
        b"4": (kinds.TIME_OUT, True, ""),
        b"5": (kinds.TIME_OUT, False, "never"),
    }
    assert [kind.value for kind in kinds] == [0, 1, 2, 3, 4]
    assert before == [False] * 6


async def test_the_place_to_begin_by_time_is_half_an_hour_ago_by_default(world: Any) -> None:
    broker = one_queue(world, 3)
    now_ms = world.runtime.clock.now_ms()
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with running(consumer_of(world, consume_from=ConsumeFrom.TIMESTAMP), handler):
        await until(world, lambda: len(got) == 2)
    (asked,) = [c for c in broker.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP) if c.ext["topic"] == "t"]
    assert int(asked.ext["timestamp"]) == now_ms - 30 * 60 * 1000
    assert sorted(got) == [b"1", b"2"]


@pytest.mark.behaviour("CR-31")
async def test_a_delivered_message_is_pickled_without_its_delivery(orbitmq_world: World) -> None:
    """A delivered message can be pickled although its consumer, with threads and tasks, cannot."""
    world = orbitmq_world
    async with world.producer() as producer:
        await producer.send(Message("orders", b"a", tags="new"))
    async with world.consumer() as consumer, world.simple_consumer("simple") as simple:
        consumer.subscribe("orders")
        simple.subscribe("orders")
        pushed, [popped] = await anext(consumer.messages()), await simple.receive(1)
        for message in (pushed, popped):
            copied = pickle.loads(pickle.dumps(message))
            assert (copied.body, copied.tags, copied.message_id) == (b"a", "new", message.message_id)
            with pytest.raises(ClientStateError, match="of a copy, as another process gets it, the original"):
                copied.ack()
            assert message.ack() is Settled.DONE
