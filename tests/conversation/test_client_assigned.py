"""A pull consumer that names its queues, against scripted brokers."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq import ConsumeFrom, MessageQueue, PullConsumer, Settled
from orbitmq.durations import instant
from orbitmq.errors import BrokerError, ClientStateError, TopicNotFoundError, ValidationError
from orbitmq.message.properties import encode_properties
from orbitmq.message.sysflag import PullFlag
from orbitmq.wire.codes import RequestCode, ResponseCode

QUEUE = MessageQueue("t", "a", 0)


def assigned_of(world: Any, **options: Any) -> PullConsumer:
    """A consumer that commits only when the test calls ``commit``."""
    options.setdefault("auto_commit", False)
    return PullConsumer("ag", name_servers=world.name_servers, runtime=world.runtime, **options)


def filled(world: Any, count: int = 10) -> Any:
    world.topics["t"] = {"a": 1}
    for number in range(count):
        properties = encode_properties({"UNIQ_KEY": f"id{number}", "TAGS": ["even", "odd"][number % 2]})
        world.brokers["a"].store("t", b"%d" % number, properties=properties)
    return world.brokers["a"]


@pytest.mark.scripted("a", "b")
async def test_polling_gives_every_message_in_queue_order(world: Any) -> None:
    world.topics["t"] = {"a": 2, "b": 1}
    for number in range(90):
        world.brokers["a" if number % 3 else "b"].store("t", b"%d" % number, (number % 3) // 2)
    async with assigned_of(world) as consumer:
        queues = await consumer.queues("t")
        assert len(queues) == 3
        consumer.assign(queues)
        assert consumer.assignment() == queues
        await consumer.seek_to_begin(*queues)
        got = []
        while messages := await consumer.poll(20, timeout=0.3):
            assert len(messages) <= 20
            got += messages
        assert sorted(int(m.body) for m in got) == list(range(90))
        for queue in queues:
            own = [m.queue_offset for m in got if m.queue == queue]
            assert own == list(range(30))
            assert await consumer.position(queue) == 30


async def test_seek_and_commit(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(10):
        world.brokers["a"].store("t", b"%d" % number)
    queue = MessageQueue("t", "a", 0)
    async with assigned_of(world) as consumer:
        consumer.assign([queue])
        assert await consumer.committed(queue) == -1
        assert await consumer.position(queue) == 10
        assert await consumer.poll(timeout=0.1) == []
        await consumer.seek(queue, 7)
        assert [m.body for m in await consumer.poll(2, timeout=1)] == [b"7", b"8"]
        assert await consumer.position(queue) == 9
        await consumer.commit()
        assert await consumer.committed(queue) == 9
        await consumer.commit({queue: 4})
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 10)
        assert await consumer.offset_by_time(queue, instant(5)) == 1
        await consumer.seek_to_end(queue)
        assert await consumer.position(queue) == 10
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([queue])
        assert (await consumer.poll(1))[0].body == b"4"


async def test_a_new_message_wakes_a_waiting_poll(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    queue = MessageQueue("t", "a", 0)
    async with assigned_of(world) as consumer:
        consumer.assign([queue], tags="yes")
        assert await consumer.poll(timeout=0.1) == []
        world.brokers["a"].store("t", b"no", properties=encode_properties({"TAGS": "no"}))
        world.brokers["a"].store("t", b"x", properties=encode_properties({"TAGS": "yes"}))
        begun = world.runtime.clock.monotonic()
        assert [m.body for m in await consumer.poll(timeout=5)] == [b"x"]
        assert world.runtime.clock.monotonic() - begun < 0.1
        consumer.assign([queue])
        assert await consumer.position(queue) == 2
        consumer.assign([])
        assert await consumer.poll(timeout=0.01) == []


@pytest.mark.behaviour("CR-23")
async def test_a_place_outside_a_queue_is_told_and_left(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The position and the committed offset must not stay behind the end, where they would skip new
    messages.
    """
    world.topics["t"] = {"a": 1}
    broker, queue = world.brokers["a"], MessageQueue("t", "a", 0)
    for number in range(3):
        broker.store("t", b"%d" % number)
    async with assigned_of(world) as consumer:
        consumer.assign([queue])
        with pytest.raises(ValidationError, match="0 or more"):
            await consumer.seek(queue, -1)
        await consumer.seek(queue, 9)
        assert await consumer.poll(timeout=0.1) == []
        assert await consumer.position(queue) == 3
        assert "offset 9 is outside 0 to 3, going on at 3" in caplog.text
        await consumer.commit()
        assert await consumer.committed(queue) == 3
        # A queue that is listed twice keeps its position.
        await consumer.seek(queue, 1)
        consumer.assign([queue, queue])
        assert await consumer.position(queue) == 1


@pytest.mark.scripted("a", "b")
async def test_a_broker_that_is_away_holds_up_no_other_and_is_asked_again(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.topics["t"] = {"a": 1, "b": 1}
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign(await consumer.queues("t"))
        assert await consumer.poll(timeout=0.1) == []
        await world.brokers["a"].stop()
        world.brokers["b"].store("t", b"x")
        assert [m.body for m in await consumer.poll(timeout=2)] == [b"x"]
        assert await consumer.poll(timeout=0.5) == []
        assert "pull of t/a/0 failed" in caplog.text
        world.brokers["a"].store("t", b"y")
        await world.brokers["a"].start()
        assert [m.body for m in await consumer.poll(timeout=10)] == [b"y"]
        with pytest.raises(TopicNotFoundError):
            await consumer.queues("unknown")


async def test_misuse_is_named(world: Any) -> None:
    consumer = assigned_of(world)
    with pytest.raises(ClientStateError, match="not running"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ClientStateError, match="started already"):
            await consumer.start()
        with pytest.raises(ClientStateError, match="not assigned"):
            await consumer.seek(QUEUE, 1)
    await consumer.close()
    with pytest.raises(ClientStateError, match="not running"):
        consumer.assign([QUEUE])


@pytest.mark.behaviour("SH-08")
async def test_a_consumer_subscribes_or_assigns_but_not_both(world: Any) -> None:
    filled(world)
    async with assigned_of(world) as consumer:
        consumer.assign([QUEUE])
        with pytest.raises(ClientStateError, match=r"reads the queues of assign\(\)"):
            consumer.subscribe("t")
        with pytest.raises(ClientStateError, match=r"assign\(\) says what it reads"):
            consumer.unsubscribe("t")
        assert consumer.assignment() == [QUEUE]
    async with assigned_of(world) as consumer:
        consumer.subscribe("t")
        with pytest.raises(ClientStateError, match="make another one, of another group"):
            consumer.assign([QUEUE])


async def test_queues_may_be_assigned_before_the_start_and_begin_where_seek_says(world: Any) -> None:
    filled(world)
    consumer = assigned_of(world)
    consumer.assign([QUEUE])
    await consumer.seek(QUEUE, 4)
    assert await consumer.position(QUEUE) == 4
    async with consumer:
        assert [m.body for m in await consumer.poll(2, timeout=1)] == [b"4", b"5"]
        assert await consumer.position(QUEUE) == 6


async def test_a_queue_that_is_no_longer_assigned_gives_nothing_more(world: Any) -> None:
    filled(world)
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([QUEUE])
        assert len(await consumer.poll(3)) == 3
        consumer.assign([])
        assert await consumer.poll(timeout=1) == []
        with pytest.raises(ClientStateError, match="not assigned"):
            await consumer.position(QUEUE)
        consumer.assign([QUEUE])
        assert [m.body for m in await consumer.poll(1)] == [b"0"], "nothing was committed"


async def test_another_filter_looks_again_at_what_the_one_before_left_out(world: Any) -> None:
    filled(world)
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([QUEUE], tags="even")
        assert [m.body for m in await consumer.poll(2)] == [b"0", b"2"]
        consumer.assign([QUEUE], tags="odd")
        assert [m.body for m in await consumer.poll()] == [b"3", b"5", b"7", b"9"]


@pytest.mark.behaviour("SH-08")
async def test_the_filter_goes_with_each_pull_and_the_group_has_no_retries(world: Any) -> None:
    """Other members of the group may use other filters, and no member reads the retries of these queues."""
    broker = filled(world)
    world.topics["%RETRY%ag"] = {"a": 1}
    async with assigned_of(world) as consumer:
        consumer.assign([QUEUE], tags="even")
        await consumer.poll(timeout=1)
        pulls = broker.requests(RequestCode.LITE_PULL_MESSAGE)
        assert {command.ext["topic"] for command in pulls} == {"t"}
        assert {command.ext["subscription"] for command in pulls} == {"even"}
        assert all(int(command.ext["sysFlag"]) & PullFlag.SUBSCRIPTION for command in pulls)
        (group,) = broker.heartbeats[consumer._client.client_id].consumer_data_set
        assert [each.topic for each in group.subscription_data_set] == ["t"]


@pytest.mark.behaviour("SH-08")
@pytest.mark.parametrize(("delay", "after_s"), [(None, 5), (30, 30)])
async def test_a_message_that_is_to_come_again_comes_from_here(
    world: Any, delay: float | None, after_s: float
) -> None:
    broker, clock = filled(world, 3), world.runtime.clock
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([QUEUE])
        first, *_ = await consumer.poll(3)
        begun = clock.monotonic()
        assert first.retry(delay=delay) is Settled.DONE
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 0
        (again,) = await consumer.poll(timeout=60)
        assert (again.body, again.reconsume_times) == (b"0", 1)
        assert clock.monotonic() - begun == pytest.approx(after_s, abs=0.5)
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 3
    assert not broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)


@pytest.mark.behaviour("SH-08")
async def test_a_rejected_message_becomes_a_dead_letter_and_so_does_one_with_too_many_deliveries(
    world: Any,
) -> None:
    broker = filled(world, 2)
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST, max_reconsume_times=1) as consumer:
        consumer.assign([QUEUE])
        for message in await consumer.poll(2):
            if message.body == b"0":
                message.reject("broken")
            else:
                message.retry()
        (again,) = await consumer.poll(timeout=10)
        again.retry()
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 2
    back = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert [command.ext["delayLevel"] for command in back] == ["-1", "-1"]


async def test_a_message_that_takes_long_is_sent_to_nobody(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(world, 3)
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST, consume_timeout=4) as consumer:
        consumer.assign([QUEUE])
        messages = await consumer.poll(3)
        await world.runtime.clock.sleep(60)
        assert [message.ack() for message in messages] == [Settled.DONE] * 3
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 3
    assert not broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert "takes too long" not in caplog.text


async def test_with_auto_commit_what_was_polled_is_committed_at_the_end(world: Any) -> None:
    broker = filled(world)
    async with assigned_of(world, consume_from=ConsumeFrom.FIRST, auto_commit=True) as consumer:
        consumer.assign([QUEUE])
        assert len(await consumer.poll(4)) == 4
    assert broker.offsets["ag", "t", 0] == 4


async def test_an_expression_that_no_broker_takes_is_raised_by_the_poll(world: Any) -> None:
    broker = filled(world)

    def script(command: Any) -> Any:
        if command.code == RequestCode.CHECK_CLIENT_CONFIG:
            return command.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no such function")
        return "default"

    broker.script = script
    async with assigned_of(world) as consumer:
        consumer.assign([QUEUE], sql="nonsense(a) > 1")
        with pytest.raises(BrokerError, match="no such function"):
            await consumer.poll(timeout=1)


async def test_a_member_that_only_asks_takes_no_queue_of_its_group(world: Any) -> None:
    """The member neither subscribes nor assigns; it reads and commits offsets of the group."""
    broker = filled(world)
    async with assigned_of(world) as consumer:
        await consumer.commit({QUEUE: 7})
        assert await consumer.committed(QUEUE) == 7
        await world.runtime.clock.sleep(30)
        assert consumer.assignment() == []
        assert not broker.requests(RequestCode.LITE_PULL_MESSAGE)
