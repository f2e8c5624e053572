"""The pull consumer: it shares queues with its group and returns messages on request."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.conversation.scripted import until

from orbitmq import ConsumeFrom, MessageQueue, PullConsumer, ReceivedMessage, Settled
from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.message.properties import encode_properties
from orbitmq.message.sysflag import PullFlag
from orbitmq.wire.codes import RequestCode, ResponseCode

QUEUE = MessageQueue("t", "a", 0)
LITE, PLAIN = RequestCode.LITE_PULL_MESSAGE, RequestCode.PULL_MESSAGE


def pull_consumer(world: Any, group: str = "cg", **options: Any) -> PullConsumer:
    options.setdefault("consume_from", ConsumeFrom.FIRST)
    return PullConsumer(group, name_servers=world.name_servers, runtime=world.runtime, **options)


def filled(world: Any, messages: int, queues: int = 1) -> Any:
    world.topics["t"] = {"a": queues}
    for number in range(messages):
        properties = encode_properties({"UNIQ_KEY": f"id{number}"})
        world.brokers["a"].store("t", b"%d" % number, number % queues, properties)
    return world.brokers["a"]


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return [int(message.body) for message in messages]


def committed(broker: Any, queue_id: int = 0) -> int:
    return int(broker.offsets.get(("cg", "t", queue_id), -1))


async def test_polls_give_each_queue_in_order_and_the_next_one_finishes_the_last(world: Any) -> None:
    broker = filled(world, 100, queues=2)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        got: list[ReceivedMessage] = []
        while len(got) < 100:
            batch = await consumer.poll(7, timeout=1)
            assert 0 < len(batch) <= 7
            got += batch
        for queue_id in range(2):
            offsets = [message.queue_offset for message in got if message.queue_id == queue_id]
            assert offsets == list(range(50))
        await world.runtime.clock.sleep(6)
        assert committed(broker, 0) + committed(broker, 1) == 100 - len(batch)
        assert await consumer.poll(timeout=0.5) == []
    assert (committed(broker, 0), committed(broker, 1)) == (50, 50)


async def test_a_poll_waits_and_gives_at_once_what_comes(world: Any) -> None:
    broker = filled(world, 0)
    clock = world.runtime.clock
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        begun = clock.monotonic()
        assert await consumer.poll(timeout=2) == []
        assert clock.monotonic() - begun == pytest.approx(2, abs=0.1)
        broker.store("t", b"7")
        assert numbers(await consumer.poll(timeout=2)) == [7]


async def test_members_share_the_queues(world: Any) -> None:
    filled(world, 400, queues=4)
    got: list[int] = []
    async with pull_consumer(world) as one:
        one.subscribe("t")
        await until(world, lambda: len(one.assignment()) == 4)
        got += numbers(await one.poll(50))
        async with pull_consumer(world) as two:
            two.subscribe("t")
            got += numbers(await one.poll(1))
            await one.commit()
            await until(world, lambda: len(two.assignment()) == len(one.assignment()) == 2)
            for _ in range(100):
                got += numbers(await one.poll(20, timeout=0.01))
                got += numbers(await two.poll(20, timeout=0.01))
    assert set(got) == set(range(400))
    assert len(got) == 400


async def test_without_auto_commit_nothing_is_committed_unasked(world: Any) -> None:
    broker = filled(world, 30)
    async with pull_consumer(world, auto_commit=False) as consumer:
        consumer.subscribe("t")
        assert numbers(await consumer.poll(10)) == list(range(10))
        assert numbers(await consumer.poll(10)) == list(range(10, 20))
        await world.runtime.clock.sleep(20)
        assert committed(broker) == -1
        await consumer.commit()
        assert committed(broker) == 20
        assert await consumer.committed(QUEUE) == 20
        await consumer.poll(10)
    assert committed(broker) == 20
    pulls = broker.requests(LITE)
    assert not any(int(command.ext["sysFlag"]) & PullFlag.COMMIT_OFFSET for command in pulls)
    async with pull_consumer(world, auto_commit=False) as consumer:
        consumer.subscribe("t")
        assert numbers(await consumer.poll(10)) == list(range(20, 30))


@pytest.mark.behaviour("MO-26")
async def test_the_last_poll_is_done_when_the_block_is_left(world: Any) -> None:
    """The messages of the last poll are settled, so a clean restart does not deliver them again."""
    broker = filled(world, 20)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        messages = await consumer.poll(5)
        messages[1].retry(delay_level=3)
    assert committed(broker) == 5
    assert len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        assert numbers(await consumer.poll(5)) == [5, 6, 7, 8, 9]


@pytest.mark.behaviour("MO-26")
async def test_the_last_poll_comes_again_after_an_error_or_a_close_by_hand(world: Any) -> None:
    broker = filled(world, 20)
    with contextlib.suppress(RuntimeError):
        async with pull_consumer(world) as consumer:
            consumer.subscribe("t")
            messages = await consumer.poll(5)
            messages[0].ack()
            raise RuntimeError("the third failed")
    assert committed(broker) == 1
    consumer = pull_consumer(world)
    await consumer.start()
    consumer.subscribe("t")
    assert numbers(await consumer.poll(5)) == [1, 2, 3, 4, 5]
    await consumer.close()
    assert committed(broker) == 1
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        assert numbers(await consumer.poll(5)) == [1, 2, 3, 4, 5]
        await consumer.close()
    assert committed(broker) == 1


async def test_positions_are_moved_and_told(world: Any) -> None:
    filled(world, 50)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        first = await consumer.poll(5)
        assert await consumer.position(QUEUE) == 5
        await consumer.seek(QUEUE, 40)
        assert await consumer.position(QUEUE) == 40
        assert first[0].ack() is Settled.GONE
        assert numbers(await consumer.poll(5)) == list(range(40, 45))
        await consumer.seek_to_begin(QUEUE)
        assert numbers(await consumer.poll(3)) == [0, 1, 2]
        await consumer.seek_to_end(QUEUE)
        assert await consumer.poll(timeout=0.1) == []
        assert await consumer.position(QUEUE) == 50
        with pytest.raises(ValidationError, match="offset must be 0 or more"):
            await consumer.seek(QUEUE, -1)
        with pytest.raises(ClientStateError, match="not assigned"):
            await consumer.seek(MessageQueue("t", "a", 9), 1)


async def test_polled_messages_are_settled_like_any_other(world: Any) -> None:
    broker = filled(world, 5)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        batch = await consumer.poll(5)
        assert batch[0].retry(delay_level=4) is Settled.DONE
        assert batch[1].reject() is Settled.DONE
        assert batch[2].ack() is Settled.DONE
        with batch[3].process():
            raise RuntimeError("again")
        await until(world, lambda: len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 3)
        await consumer.commit()
        assert batch[4].ack() is Settled.ALREADY
    back = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert {(c.ext["originMsgId"], c.ext["delayLevel"]) for c in back} == {
        ("id0", "4"),
        ("id1", "-1"),
        ("id3", "0"),
    }
    assert committed(broker) == 5


@pytest.mark.behaviour("CR-13")
async def test_what_is_settled_right_before_the_next_poll_is_sent_back_once(world: Any) -> None:
    broker = filled(world, 4)
    async with pull_consumer(world, auto_commit=False) as consumer:
        consumer.subscribe("t")
        again, dead = await consumer.poll(2)
        assert again.retry(delay_level=4) is Settled.DONE
        assert dead.reject() is Settled.DONE
        third, fourth = await consumer.poll(2)
        assert third.retry(delay_level=5) is Settled.DONE
        await consumer.commit()
        assert committed(broker) == 4, "a commit waits for what goes back"
        assert fourth.ack() is Settled.ALREADY
    back = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert [(c.ext["originMsgId"], c.ext["delayLevel"]) for c in back] == [
        ("id0", "4"),
        ("id1", "-1"),
        ("id2", "5"),
    ]


@pytest.mark.behaviour("CR-13")
@pytest.mark.parametrize("pause_s", [1, 30])
async def test_what_no_broker_takes_back_comes_again_here(world: Any, pause_s: float) -> None:
    """The message must not count as handled, and the poll after it must not raise."""
    broker = filled(world, 3)
    backs = (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE)
    broker.script = lambda command: (
        command.reply(ResponseCode.SYSTEM_ERROR, "no") if command.code in backs else "default"
    )
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        got = await consumer.poll(timeout=5)
        assert numbers(got) == [0, 1, 2]
        assert got[1].retry() is Settled.DONE
        await world.runtime.clock.sleep(pause_s)
        again = [each for _ in range(4) for each in await consumer.poll(timeout=5)]
    assert numbers(again)[0] == 1


async def test_what_comes_again_is_polled_under_its_own_topic(world: Any) -> None:
    filled(world, 0)
    world.topics["%RETRY%cg"] = {"a": 1}
    world.brokers["a"].store("%RETRY%cg", b"1", 0, encode_properties({"RETRY_TOPIC": "t"}))
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        (message,) = await consumer.poll()
        assert message.topic == "t"


async def test_a_paused_topic_is_not_polled(world: Any) -> None:
    broker = filled(world, 3)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        consumer.pause("t")
        assert await consumer.poll(timeout=3) == []
        assert broker.requests(LITE) == []
        assert consumer.assignment() == [QUEUE]
        consumer.resume("t")
        assert numbers(await consumer.poll()) == [0, 1, 2]


@pytest.mark.parametrize("code", [3, 16])
async def test_brokers_that_want_plain_pulls_get_them(world: Any, code: int) -> None:
    broker = filled(world, 3)
    broker.script = lambda c: c.reply(code, "no lite pull here") if c.code == LITE else "default"
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t")
        assert numbers(await consumer.poll()) == [0, 1, 2]
        await world.runtime.clock.sleep(40)
    assert len(broker.requests(LITE)) <= 1
    assert all(not int(c.ext["sysFlag"]) & PullFlag.LITE_PULL for c in broker.requests(PLAIN))


async def test_other_brokers_see_a_lite_pull_consumer(world: Any) -> None:
    broker = filled(world, 3)
    async with pull_consumer(world) as consumer:
        consumer.subscribe("t", "a || b")
        await consumer.poll(timeout=0.1)
        (data,) = broker.heartbeats.values()
    assert data.consumer_data_set[0].consume_type.value == "CONSUME_ACTIVELY"
    assert broker.requests(PLAIN) == []
    assert all(int(c.ext["sysFlag"]) & PullFlag.LITE_PULL for c in broker.requests(LITE))


@pytest.mark.parametrize("wrong", [0, -1, 10_001, "many"])
async def test_a_number_of_messages_that_is_none_is_refused(world: Any, wrong: Any) -> None:
    async with pull_consumer(world) as consumer:
        with pytest.raises(ValidationError, match="1 to 10,000"):
            await consumer.poll(wrong)
    with pytest.raises(ClientStateError, match="not running"):
        await consumer.poll()
