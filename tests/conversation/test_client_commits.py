"""Commits that a broker refuses: a commit by the user raises, an automatic one is logged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, until

from orbitmq import (
    BrokerError,
    ClientStateError,
    ConsumeFrom,
    Consumer,
    MessageQueue,
    OrbitError,
    PullConsumer,
)
from orbitmq.message.properties import encode_properties
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

QUEUE = MessageQueue("t", "a", 0)
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def filled(world: Any) -> Any:
    world.topics["t"] = {"a": 1}
    for number in range(10):
        world.brokers["a"].store("t", b"%d" % number, 0, encode_properties({"UNIQ_KEY": f"id{number}"}))
    return world.brokers["a"]


def refuse_commits(broker: Any) -> None:
    def script(command: Command) -> Any:
        if command.code == COMMIT:
            return command.reply(ResponseCode.SYSTEM_ERROR, "the disk is full")
        return "default"

    broker.script = script


@asynccontextmanager
async def pulled(world: Any, **options: Any) -> AsyncIterator[Any]:
    """A pull consumer that has polled five messages."""
    consumer = PullConsumer(
        "cg",
        name_servers=world.name_servers,
        runtime=world.runtime,
        consume_from=ConsumeFrom.FIRST,
        **options,
    )
    async with consumer:
        consumer.subscribe("t")
        assert len(await consumer.poll(5)) == 5
        yield consumer


@asynccontextmanager
async def pushed(world: Any, **options: Any) -> AsyncIterator[Any]:
    """A push consumer that has handled five messages."""
    async with consumer_of(world, **options) as consumer:
        consumer.subscribe("t")
        handled = 0
        async for message in consumer:
            message.ack()
            handled += 1
            if handled == 5:
                break
        yield consumer


@asynccontextmanager
async def assigned(world: Any) -> AsyncIterator[Any]:
    """A pull consumer that has read five messages of an assigned queue."""
    options: dict[str, Any] = {"name_servers": world.name_servers, "runtime": world.runtime}
    async with PullConsumer("cg", auto_commit=False, **options) as consumer:
        consumer.assign([QUEUE])
        await consumer.seek_to_begin(QUEUE)
        assert len(await consumer.poll(5)) == 5
        yield consumer


@pytest.mark.behaviour("MO-25")
@pytest.mark.parametrize("auto_commit", [False, True])
async def test_a_refused_commit_of_a_pull_consumer_is_raised_and_can_be_made_again(
    world: Any, auto_commit: bool
) -> None:
    broker = filled(world)
    async with pulled(world, auto_commit=auto_commit) as consumer:
        refuse_commits(broker)
        with pytest.raises(BrokerError, match="the disk is full"):
            await consumer.commit()
        broker.script = None
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 5


@pytest.mark.behaviour("MO-25")
@pytest.mark.parametrize("consumer_with_progress", [pushed, assigned])
async def test_a_refused_commit_is_raised_at_the_other_consumers_too(
    world: Any, consumer_with_progress: Any
) -> None:
    broker = filled(world)
    async with consumer_with_progress(world) as consumer:
        refuse_commits(broker)
        with pytest.raises(BrokerError, match="the disk is full"):
            await consumer.commit()
        broker.script = None
        await consumer.commit()
        assert broker.offsets["cg", "t", 0] == 5


@pytest.mark.behaviour("MO-25")
async def test_a_broadcast_file_that_cannot_be_written_is_raised(world: Any) -> None:
    filled(world)
    async with pushed(world, broadcast=True, offsets_folder="/home/me") as consumer:
        world.runtime.files.make_dirs("/home/me/cg/offsets.json")
        with pytest.raises(OrbitError, match="offsets cannot be written to /home/me/cg"):
            await consumer.commit()


@pytest.mark.behaviour("MO-25")
async def test_commits_that_nobody_asked_for_are_logged_and_made_again(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(world)
    async with pulled(world) as consumer:
        await consumer.poll(5)
        await broker.stop()
        await until(world, lambda: "offset 5 of t/a/0 is not committed yet" in caplog.text, 30)
        await broker.start()
        await until(world, lambda: broker.offsets.get(("cg", "t", 0)) == 5, 120)


@pytest.mark.behaviour("MO-25")
@pytest.mark.parametrize("kind", [Consumer, PullConsumer])
async def test_a_consumer_that_does_not_run_commits_nothing_and_says_so(world: Any, kind: Any) -> None:
    broker = filled(world)
    consumer = kind("cg", name_servers=world.name_servers, runtime=world.runtime)
    with pytest.raises(ClientStateError, match="not running"):
        await consumer.commit()
    await consumer.start()
    await consumer.commit()
    await consumer.close()
    with pytest.raises(ClientStateError, match="not running"):
        await consumer.commit()
    assert not broker.requests(COMMIT)
