"""Queues whose messages have all expired continue at their end, also at a broker that never had them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.replicas import ACTING, BOTH, MASTER, SLAVE, Watch, online, same_end, shown, store

from orbitmq import Message
from orbitmq.broker.broker import Broker
from orbitmq.message.reserved import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.replication.state.outbox import SendingLink
from orbitmq.replication.state.queue_ends import QueueEnds
from orbitmq.testing import World
from orbitmq.wire.bodies.topic import TopicConfig

FILE_BYTES = 128 * 1024
# A queue's file has ten entries, so a queue may end where a file does.
SMALL = {"mappedFileSizeConsumeQueue": "200"}
SET = {**ACTING, "mappedFileSizeCommitLog": str(FILE_BYTES)}

pytestmark = [pytest.mark.behaviour("PO-38"), pytest.mark.orbitmq(replicas=2, settings=SET)]

Ends = list[tuple[int, int]]


def ends(world: World, name: str, topic: str = "quiet", queues: int = 4) -> Ends:
    here = store(world, name)
    return [(here.min_offset(topic, each), here.max_offset(topic, each)) for each in range(queues)]


async def sent(world: World, topic: str, bodies: list[bytes], **options: int) -> None:
    async with world.producer() as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **options))


def numbered(word: str, count: int) -> list[bytes]:
    return [b"%s%d" % (word.encode(), number) for number in range(count)]


async def consumed(world: World, topic: str, seconds: float) -> list[bytes]:
    """The messages that a group gets while it consumes for this time."""
    got: list[bytes] = []
    async with world.consumer("g") as consumer:
        consumer.subscribe(topic)

        async def take() -> None:
            async for message in consumer:
                got.append(message.body)  # noqa: PERF401 - it never ends by itself

        task = asyncio.ensure_future(take())
        await world.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return sorted(got)


async def expire(world: World, *names: str) -> None:
    """Delete all but the newest file of the log, as after fileReservedTime."""
    await sent(world, "t", [bytes(3000)] * 120)
    if len(names) > 1:
        await world.until(lambda: same_end(world))
    for name in names:
        here = store(world, name)
        await here.flush()
        before = here.config
        here.config = replace(before, file_reserved_ms=1)
        await world.sleep(1)
        here.clean()
        here.config = before
        assert here.min_commit_log_offset >= FILE_BYTES


async def quiet(world: World, watch: Watch, *, count: int = 40) -> None:
    """Create a topic with ten messages in each queue, consumed by a group that has left, all expired."""
    await online(world, watch)
    await sent(world, "quiet", numbered("old", count))
    assert await consumed(world, "quiet", 20) == sorted(numbered("old", count))
    await expire(world, MASTER, SLAVE)
    assert ends(world, MASTER) == ends(world, SLAVE) == [(count // 4, count // 4)] * 4


def lose_disk(world: World, name: str) -> None:
    world.crash(name)
    world.machines[name].disk.remove_tree(f"/store/{name}")


async def replace_master(world: World, watch: Watch) -> None:
    lose_disk(world, MASTER)
    await world.sleep(3)
    await world.start_broker(MASTER)
    await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)


async def replace_slave(world: World) -> None:
    lose_disk(world, SLAVE)
    await world.sleep(3)
    await world.start_broker(SLAVE)
    await world.until(lambda: same_end(world) and shown(world) == BOTH)
    await world.sleep(1)


@pytest.mark.parametrize("replaced", ["neither", "master", "slave, then master"])
async def test_a_group_that_was_away_gets_what_is_sent_after_a_disk_was_replaced(
    orbitmq_world: World, replaced: str
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await quiet(world, watch)
        if replaced.startswith("slave"):
            await replace_slave(world)
            assert ends(world, SLAVE) == [(10, 10)] * 4
        if replaced.endswith("master"):
            await replace_master(world, watch)
            assert ends(world, MASTER) == [(10, 10)] * 4
        await sent(world, "quiet", numbered("new", 12))
        await world.until(lambda: same_end(world))
        assert ends(world, MASTER) == ends(world, SLAVE) == [(10, 13)] * 4
        assert await consumed(world, "quiet", 60) == sorted(numbered("new", 12))


async def test_a_master_whose_consume_queues_are_made_anew_is_told_by_its_slave(orbitmq_world: World) -> None:
    """An operator has deleted the folder, and the log has no message of the queue."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await quiet(world, watch)
        await world.stop_broker(MASTER)
        world.machines[MASTER].disk.remove_tree(f"/store/{MASTER}/consumequeue")
        await world.start_broker(MASTER)
        await world.until(lambda: watch.leaders() == [MASTER] and shown(world) == BOTH)
        assert ends(world, MASTER) == [(10, 10)] * 4


async def test_a_slave_that_was_away_longer_than_messages_are_kept_is_told(orbitmq_world: World) -> None:
    """The slave's log is set aside as a whole: it knows the queue's beginning, and none of the later
    messages.
    """
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await sent(world, "quiet", numbered("old", 8))
        await expire(world, MASTER, SLAVE)
        assert ends(world, SLAVE) == [(2, 2)] * 4
        await world.stop_broker(SLAVE)
        await sent(world, "quiet", numbered("old", 32))
        for _ in range(2):
            await expire(world, MASTER)
        await world.start_broker(SLAVE)
        await world.until(lambda: same_end(world) and shown(world) == BOTH)
        await world.sleep(1)
        assert ends(world, SLAVE) == ends(world, MASTER) == [(10, 10)] * 4
        await sent(world, "quiet", numbered("new", 8))
        await world.until(lambda: same_end(world))
        assert ends(world, SLAVE) == [(10, 12)] * 4


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
@pytest.mark.parametrize(
    "files",
    [
        "one file",
        pytest.param("whole files", marks=pytest.mark.orbitmq(replicas=2, settings={**SET, **SMALL})),
    ],
)
async def test_what_a_slave_was_told_outlasts_its_end_though_nobody_tells_it_again(
    orbitmq_world: World, files: str, how: str
) -> None:
    world = orbitmq_world
    async with Watch(world) as watch:
        await quiet(world, watch)
        lose_disk(world, SLAVE)
        await world.start_broker(SLAVE)
        await world.until(lambda: ends(world, SLAVE) == [(10, 10)] * 4)
        await world.sleep(0.3)
        world.crash(MASTER)
        match how:
            case "stop":
                await world.stop_broker(SLAVE)
            case "kill":
                del world.brokers[SLAVE]
                world.machines[SLAVE].kill()
            case _:
                world.crash(SLAVE)
        await world.start_broker(SLAVE)
        assert ends(world, SLAVE) == [(10, 10)] * 4


async def test_an_acknowledgement_says_that_what_was_told_is_on_the_device(orbitmq_world: World) -> None:
    """The power fails right after the acknowledgement."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await quiet(world, watch)
        lose_disk(world, SLAVE)
        await world.start_broker(SLAVE)
        await world.until(lambda: len(links(world.brokers[MASTER])) == 1)
        (link,) = links(world.brokers[MASTER])
        while link.waits:
            await world.sleep(0.001)
        world.crash(MASTER)
        world.crash(SLAVE)
        await world.start_broker(SLAVE)
        assert ends(world, SLAVE) == [(10, 10)] * 4


def links(broker: Broker) -> list[SendingLink]:
    return list(broker.part(StateExchange)._sender.followers.values())


@pytest.mark.parametrize("away", [False, True])
async def test_a_topic_that_was_made_anew_begins_at_0(orbitmq_world: World, away: bool) -> None:
    """The slave, which knew the old topic, may miss both its end and the start of the new one."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await quiet(world, watch)
        await replace_slave(world)
        assert ends(world, SLAVE) == [(10, 10)] * 4
        if away:
            await world.stop_broker(SLAVE)
        topics = world.brokers[MASTER].services.topics
        topics.delete("quiet")
        await world.sleep(1)
        topics.update(TopicConfig("quiet", 4, 4))
        await world.sleep(1)
        assert ends(world, MASTER) == [(0, 0)] * 4
        if away:
            await world.start_broker(SLAVE)
            await world.until(lambda: shown(world) == BOTH)
        else:
            assert ends(world, SLAVE) == [(0, 0)] * 4
            await world.stop_broker(SLAVE)
            await world.start_broker(SLAVE)
            await world.until(lambda: shown(world) == BOTH)
            assert ends(world, SLAVE) == [(0, 0)] * 4
        await sent(world, "quiet", numbered("new", 12))
        await world.until(lambda: same_end(world))
        assert ends(world, MASTER) == ends(world, SLAVE) == [(0, 3)] * 4
        await expire(world, MASTER, SLAVE)
        await world.stop_broker(SLAVE)
        await world.start_broker(SLAVE)
        await world.until(lambda: shown(world) == BOTH)
        await replace_master(world, watch)
        assert ends(world, MASTER) == ends(world, SLAVE) == [(3, 3)] * 4


@pytest.mark.parametrize(
    ("topic", "delay"), [(SCHEDULE_TOPIC, {"delay_level": 1}), (TIMER_TOPIC, {"delay": 2})]
)
async def test_inner_queues_go_on_where_the_progress_in_them_is(
    orbitmq_world: World, topic: str, delay: dict[str, int]
) -> None:
    """The progress is copied; in a queue that begins at 0 it would be ahead of the messages."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await online(world, watch)
        await sent(world, "late", numbered("old", 5), **delay)
        assert await consumed(world, "late", 20) == numbered("old", 5)
        await expire(world, MASTER, SLAVE)
        assert ends(world, SLAVE, topic, 1) == [(5, 5)]
        await replace_master(world, watch)
        assert ends(world, MASTER, topic, 1) == [(5, 5)]
        await sent(world, "late", numbered("new", 4), **delay)
        assert await consumed(world, "late", 60) == numbered("new", 4)


async def test_a_table_that_an_older_build_does_not_know_is_left_out(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The older build logs one line for it, and copies all other tables."""
    world = orbitmq_world
    async with Watch(world) as watch:
        await quiet(world, watch)
        lose_disk(world, SLAVE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(QueueEnds, "__init__", lambda *_: None)
            await world.start_broker(SLAVE)
        await world.until(lambda: same_end(world) and shown(world) == BOTH)
        await world.sleep(1)
        assert ends(world, SLAVE) == [(0, 0)] * 4
        assert world.brokers[SLAVE].services.offsets.query("g", "quiet", 0) == 10
        assert "this broker has no table queueEnds" in caplog.text
