"""A slave's deliveries in a tail that its master never had do not count for the master's messages."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.test_replication_escape_life import put
from tests.replicas import ESCAPING, MASTER, OTHER, SLAVE, Watch, bodies, log_of, store

from orbitmq import Message, Producer, ReceivedMessage, TransactionState
from orbitmq.broker.role import Role
from orbitmq.durations import instant
from orbitmq.message.record import iter_records
from orbitmq.store import MessageStore
from orbitmq.testing import World

LOSES = {
    **ESCAPING,
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "60000",
    "totalReplicas": "2",
}
DELAY_S = 10.0


async def send(world: World, what: str, *, timer: bool) -> None:
    """Send a delayed message to the first broker group, and more messages after it so that the logs differ in
    length.
    """
    due_ms = world.clock.now_ms() + round(DELAY_S * 1000)
    late = (
        Message("t", what.encode(), deliver_at=instant(due_ms))
        if timer
        else Message("t", what.encode(), delay_level=3)
    )
    async with world.producer() as producer:
        queue = next(queue for queue in await producer.queues("t") if queue.broker_name == MASTER)
        await producer.send(late, queue=queue)


def delivered(world: World) -> set[bytes]:
    """The bodies delivered at either master."""
    return {body for name in (MASTER, OTHER) if name in world.brokers for body in bodies(world, name)}


async def all_serve(world: World, watch: Watch, producer: Producer) -> None:
    """Wait until both masters serve, have the topic and know the producer."""
    await world.until(lambda: watch.role(MASTER) is Role.MASTER and watch.role(OTHER) is Role.MASTER)
    for broker in (MASTER, OTHER):
        world.brokers[broker].services.topics.create_if_absent("t", 1)
    await world.sleep(2)
    for _ in range(10):
        await producer.send(Message("t", b"before"))
    await store(world, MASTER).flush()


async def slave_has_all(world: World) -> None:
    """Wait until the slave has the log on its device."""
    await world.until(lambda: store(world, SLAVE).end == store(world, MASTER).end)
    await store(world, SLAVE).flush()


@pytest.mark.behaviour("PO-28")
@pytest.mark.parametrize("timer", [False, True], ids=["level", "timer"])
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=LOSES)
async def test_progress_in_a_tail_that_is_set_aside_skips_nothing(orbitmq_world: World, timer: bool) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        async with world.producer() as producer:
            await all_serve(world, watch, producer)
        await send(world, "only the slave has it", timer=timer)
        await slave_has_all(world)
        world.crash(MASTER)
        world.crash(SLAVE)

        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        await send(world, "only the master has it", timer=timer)
        async with world.producer() as producer:
            queue = next(queue for queue in await producer.queues("t") if queue.broker_name == MASTER)
            for _ in range(30):
                await producer.send(Message("t", bytes(1000)), queue=queue)
        await store(world, MASTER).flush()
        world.crash(MASTER)

        await world.start_broker(SLAVE)
        await world.until(lambda: b"only the slave has it" in delivered(world))
        await world.sleep(DELAY_S)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await world.until(lambda: b"only the master has it" in delivered(world))


async def lose_both(world: World, watch: Watch) -> None:
    """Cut the master's power, and the slave's after it has acted for a moment."""
    world.crash(MASTER)
    await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
    await world.sleep(2)
    world.crash(SLAVE)


async def lose_power_at_the_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the slave's machine lose power at the moment when it has cut the tail from its log."""
    cut, truncate = asyncio.Event(), MessageStore.truncate

    async def last_words(self: MessageStore, to: int) -> None:
        await truncate(self, to)
        cut.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(MessageStore, "truncate", last_words)
        begins = asyncio.ensure_future(world.start_broker(SLAVE))
        await cut.wait()
        world.crash(SLAVE)
        begins.cancel()
        await asyncio.wait({begins})


@pytest.mark.behaviour("PO-36")
@pytest.mark.parametrize("crash", [False, True], ids=["no crash", "crash"])
@pytest.mark.parametrize("timer", [False, True], ids=["level", "timer"])
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=LOSES)
async def test_what_was_delivered_in_such_a_tail_only_comes_again(
    orbitmq_world: World, timer: bool, crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting messages are in both logs, the delivery of the second one only in the tail."""
    world = orbitmq_world
    async with Watch(world) as watch:
        async with world.producer() as producer:
            await all_serve(world, watch, producer)
        await send(world, "delivered before", timer=timer)
        await world.until(lambda: b"delivered before" in bodies(world, MASTER))
        await send(world, "delivered in the tail", timer=timer)
        await store(world, MASTER).flush()
        await world.until(lambda: b"delivered in the tail" in bodies(world, MASTER))
        await slave_has_all(world)
        await lose_both(world, watch)

        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        put(world.brokers[MASTER], "t", bytes(30_000))
        await store(world, MASTER).flush()
        assert b"delivered in the tail" not in bodies(world, MASTER)

        if crash:
            await lose_power_at_the_cut(world, monkeypatch)
        await world.start_broker(SLAVE)
        await world.until(lambda: b"delivered in the tail" in bodies(world, MASTER))
        await world.sleep(DELAY_S)
        found = [record.body for record in iter_records(log_of(world, MASTER)) if record.topic == "t"]
        assert found.count(b"delivered before") == found.count(b"delivered in the tail") == 1


@pytest.mark.behaviour("PO-36")
@pytest.mark.parametrize("named", [False, True], ids=["older broker", "named"])
@pytest.mark.parametrize("timer", [False, True], ids=["level", "timer"])
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=LOSES)
async def test_what_was_delivered_in_such_a_tail_comes_again_also_when_later_ones_went_to_another_group(
    orbitmq_world: World, timer: bool, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries of RocketMQ's and older brokers do not name the message that they deliver."""
    world = orbitmq_world
    if not named:
        monkeypatch.setattr("orbitmq.broker.delay.service.with_property", lambda encoded, *_: encoded)
        monkeypatch.setattr("orbitmq.broker.timers.forms.delivery_of", lambda *_: "")
    async with Watch(world) as watch:
        async with world.producer() as producer:
            await all_serve(world, watch, producer)
        await send(world, "delivered in the tail", timer=timer)
        for number in range(3):
            await world.sleep(DELAY_S / 4)
            await send(world, f"brought to the other group {number}", timer=timer)
        await store(world, MASTER).flush()
        await world.until(lambda: b"delivered in the tail" in bodies(world, MASTER))
        await slave_has_all(world)
        world.crash(MASTER)
        await world.until(lambda: b"brought to the other group 2" in bodies(world, OTHER))
        await world.sleep(2)
        world.crash(SLAVE)
        monkeypatch.undo()

        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        put(world.brokers[MASTER], "t", bytes(30_000))
        await store(world, MASTER).flush()
        assert b"delivered in the tail" not in bodies(world, MASTER)

        await world.start_broker(SLAVE)
        await world.until(lambda: b"delivered in the tail" in bodies(world, MASTER))


@pytest.mark.behaviour("PO-36")
@pytest.mark.parametrize("timer", [False, True], ids=["level", "timer"])
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=LOSES)
async def test_what_an_acting_slave_found_delivered_is_on_its_device(
    orbitmq_world: World, timer: bool
) -> None:
    """Seed 7002: both lose power and with it the delivery, so the progress that counts it must not be
    kept.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        async with world.producer() as producer:
            await all_serve(world, watch, producer)
        await send(world, "delivered", timer=timer)
        await store(world, MASTER).flush()
        await slave_has_all(world)
        await world.until(lambda: b"delivered" in bodies(world, SLAVE))
        await lose_both(world, watch)

        await world.start_broker(MASTER)
        await world.start_broker(SLAVE)
        await world.until(lambda: b"delivered" in bodies(world, MASTER))
        await world.sleep(DELAY_S)
        found = [record.body for record in iter_records(log_of(world, MASTER)) if record.topic == "t"]
        assert found.count(b"delivered") == 1


@pytest.mark.behaviour("PO-28")
@pytest.mark.orbitmq(brokers=2, replicas=2, settings=LOSES)
async def test_a_half_message_handed_on_from_such_a_tail_ends_no_other_transaction(
    orbitmq_world: World,
) -> None:
    """Both half messages have the same offset in the half queue."""
    world, asked = orbitmq_world, set[bytes]()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.add(message.body)
        return TransactionState.COMMIT

    def half(body: bytes) -> None:
        put(world.brokers[MASTER], "t", body, TRAN_MSG="true", PGROUP="shop", UNIQ_KEY=body.decode())

    async with Watch(world) as watch, world.transaction_producer("shop", check=check) as producer:
        await all_serve(world, watch, producer)
        half(b"only the slave has it")
        await slave_has_all(world)
        world.crash(MASTER)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        await world.until(lambda: b"only the slave has it" in asked)
        await world.sleep(2)
        world.crash(SLAVE)

        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.FENCED)
        half(b"only the master has it")
        put(world.brokers[MASTER], "t", bytes(30_000))
        await world.sleep(0.1)
        await store(world, MASTER).flush()
        world.crash(MASTER)

        await world.start_broker(SLAVE)
        await world.until(lambda: watch.role(SLAVE) is Role.ACTING_MASTER)
        await world.start_broker(MASTER)
        await world.until(lambda: watch.role(MASTER) is Role.MASTER)
        await world.sleep(60)
        assert asked == {b"only the slave has it", b"only the master has it"}
        assert b"only the master has it" in delivered(world)
