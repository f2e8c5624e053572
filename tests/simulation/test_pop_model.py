"""Pop against its promises, by chance: members acknowledge, ask for more time, forget; power is lost.

* No message is lost: each one that was stored is acknowledged in the end.
* None that was acknowledged comes again.
* One that was not comes between its deadline and a second later, while the broker is there.
* In order: nothing of a queue is dealt out before what is ahead of it is done.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from tests.seeds import seeds

from orbitmq import Message, OrbitError, SimpleConsumer
from orbitmq.client.consumer.leases import Lease
from orbitmq.message import property_names
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import Settled
from orbitmq.testing import Keep, World
from orbitmq.wire.pop_info import ExtraInfo

LATE_MS = 1000
MESSAGES = 40
LONGEST_S = 8


@dataclass
class Known:
    """What is known of one message. Times are milliseconds.

    Attributes:
        due: the bounds of its deadline, ``None`` when it was never dealt out.
        sure: the broker has been up since it promised this deadline.
        done: an acknowledgement was answered. ``maybe``: one was asked for, and the answer got lost.
    """

    due: tuple[int, int] | None = None
    sure: bool = False
    done: bool = False
    maybe: bool = False


@dataclass
class Model:
    """What the members of a group know together."""

    world: World
    dice: random.Random
    up: bool = True
    stored: set[str] = field(default_factory=set)
    known: dict[str, Known] = field(default_factory=lambda: defaultdict(Known))
    epoch: int = 0

    def now_ms(self) -> int:
        return self.world.runtime.clock.now_ms()

    def dealt(self, message: ReceivedMessage) -> tuple[str, Known]:
        name = message.body.decode()
        known = self.known[name]
        info = ExtraInfo.decode(message.properties[property_names.POP_CK])
        assert not known.done, f"{name} comes again though its acknowledgement was answered"
        if known.due is not None and known.sure:
            assert info.pop_time >= known.due[0], f"{name} comes {known.due[0] - info.pop_time} ms early"
            assert info.pop_time <= known.due[1] + LATE_MS, (
                f"{name} is {info.pop_time - known.due[1]} ms late"
            )
        deadline = info.pop_time + info.invisible_time
        known.due, known.sure = (deadline, deadline), self.up
        return name, known

    def finished(self) -> bool:
        """Whether every stored message is acknowledged."""
        return all(self.known[name].done or self.known[name].maybe for name in self.stored)

    def power_lost(self) -> None:
        self.up = False
        self.epoch += 1
        for known in self.known.values():
            known.sure = False


async def producer(model: Model) -> None:
    """Sends one message after the other; one whose answer is missing may be stored or not."""
    async with model.world.producer("test_producer", retries=0) as sender:
        for number in range(MESSAGES):
            name = f"m{number}"
            try:
                await sender.send(Message("orders", name), timeout=3)
            except OrbitError:
                continue
            model.stored.add(name)
            await model.world.sleep(model.dice.random() / 4)


async def member(model: Model, consumer: SimpleConsumer, *, careful: bool = False) -> None:
    """Receives for ever, and does what members do; a careful one acknowledges everything."""
    dice = model.dice
    while True:
        invisible_s = dice.choice((1, 2, 5))
        try:
            messages = await consumer.receive(dice.randrange(1, 12), invisible_s, wait=3)
        except OrbitError:
            await model.world.sleep(0.1)
            continue
        dealt = [(message, *model.dealt(message)) for message in messages]
        for message, name, known in dealt:
            try:
                await settle(model, consumer, message, known, "ack" if careful else "")
            except OrbitError:
                known.sure = False  # nobody knows what the broker has done
            assert name in model.known


async def settle(
    model: Model, consumer: SimpleConsumer, message: ReceivedMessage, known: Known, way: str
) -> None:
    dice, epoch = model.dice, model.epoch
    way = way or dice.choices(("ack", "change", "retry", "forget"), (6, 2, 1, 2))[0]
    await model.world.sleep(dice.choice((0, 0, 0.01, 0.3)))
    before = model.now_ms()
    if way == "ack":
        known.sure = False
        try:
            settled = await consumer.ack(message)
        except OrbitError:
            known.maybe = True
            raise
        known.done |= settled is Settled.DONE
    elif way == "change":
        known.sure = False
        seconds = dice.choice((1, 3, LONGEST_S))
        lease = message.owner
        if await consumer.change_invisible(message, seconds) is Settled.DONE:
            assert isinstance(lease, Lease)
            known.due, known.sure = (lease.receipt.deadline_ms,) * 2, epoch == model.epoch
    elif way == "retry":
        known.sure = False
        if await consumer.retry(message, delay=2) is Settled.DONE:
            known.due = before + 2000, model.now_ms() + 2000
            known.sure = epoch == model.epoch


async def faults(model: Model) -> None:
    """Power is lost a few times, in any iteration of the event loop."""
    dice, world = model.dice, model.world
    for _ in range(dice.randrange(3)):
        await world.sleep(dice.random() * 6)
        for _ in range(dice.randrange(60)):
            await asyncio.sleep(0)
        model.power_lost()
        world.crash("broker-a", keep=dice.choice(list(Keep)))
        await world.sleep(dice.random() * 3)
        await world.start_broker("broker-a")
        model.up = True


async def ended(model: Model, *tasks: asyncio.Task[None]) -> None:
    """Wait for what ends; a member that fails its assertion ends the test."""
    for task in tasks:
        await task


@pytest.mark.behaviour("PP-01", "PP-02", "PP-03")
@pytest.mark.parametrize("orbitmq_seed", seeds(10))
async def test_pop_keeps_its_promises(orbitmq_world: World, orbitmq_seed: int) -> None:
    world = orbitmq_world
    dice = random.Random(orbitmq_seed)
    model = Model(world, dice)
    world.runtime.network.set_delay(0.0, 0.004)
    async with (
        world.simple_consumer("billing", invisible_for=5) as one,
        world.simple_consumer("billing", invisible_for=5) as other,
    ):
        one.subscribe("orders")
        other.subscribe("orders")
        async with asyncio.TaskGroup() as work:
            members = [work.create_task(member(model, each)) for each in (one, other, one)]
            await ended(model, work.create_task(producer(model)), work.create_task(faults(model)))
            careful = work.create_task(member(model, other, careful=True))
            await world.until(model.finished, timeout_s=600)
            for each in members:
                each.cancel()
            await world.sleep(3 * LONGEST_S)
            careful.cancel()
    # The broker counts exactly the members' messages as done: no message is in between.
    async with world.admin() as admin:
        assert [lag for lag in (await admin.groups.lag("billing")).whole() if lag.lag] == []


@pytest.mark.behaviour("PP-04")
@pytest.mark.parametrize("orbitmq_seed", seeds(5))
async def test_ordered_pop_never_overtakes(orbitmq_world: World, orbitmq_seed: int) -> None:
    world = orbitmq_world
    dice = random.Random(orbitmq_seed)
    model = Model(world, dice)
    order: dict[int, list[int]] = defaultdict(list)
    world.runtime.network.set_delay(0.0, 0.004)

    async def ordered_producer() -> None:
        async with world.producer("test_producer", retries=0) as sender:
            for number in range(MESSAGES):
                try:
                    await sender.send(Message("orders", f"m{number}"), ordering_key=number % 2, timeout=3)
                except OrbitError:
                    continue
                model.stored.add(f"m{number}")
                await world.sleep(dice.random() / 4)

    async def ordered_member(consumer: SimpleConsumer) -> None:
        while True:
            try:
                messages = await consumer.receive(dice.randrange(1, 6), dice.choice((1, 2)), wait=3)
            except OrbitError:
                await world.sleep(0.1)
                continue
            by_queue: dict[int, list[ReceivedMessage]] = defaultdict(list)
            for message in messages:
                by_queue[message.queue_id].append(message)
            for queue_id, dealt in by_queue.items():
                offsets = [message.queue_offset for message in dealt]
                assert offsets == sorted(offsets)
                ahead = {offset for offset in order[queue_id] if offset < offsets[0]}
                names = {f"{queue_id}/{offset}" for offset in ahead}
                open_ahead = {name for name in names if not model.known[name].done}
                assert not any(model.known[name].sure for name in open_ahead), (offsets, open_ahead)
                for message in dealt:
                    name = f"{queue_id}/{message.queue_offset}"
                    assert not model.known[name].done, f"{name} comes again"
                    model.known[name].sure = model.up
                    order[queue_id].append(message.queue_offset)
            for message in messages:
                known = model.known[f"{message.queue_id}/{message.queue_offset}"]
                await world.sleep(dice.choice((0, 0, 0.05)))
                if dice.random() < 0.8:
                    known.sure = False
                    total = model.known[message.body.decode()]
                    try:
                        known.done = await consumer.ack(message) is Settled.DONE or known.done
                    except OrbitError:
                        total.maybe = True
                    total.done |= known.done

    async with (
        world.simple_consumer("billing", ordered=True) as one,
        world.simple_consumer("billing", ordered=True) as other,
    ):
        one.subscribe("orders")
        other.subscribe("orders")
        async with asyncio.TaskGroup() as work:
            members = [work.create_task(ordered_member(each)) for each in (one, other)]
            await ended(model, work.create_task(ordered_producer()), work.create_task(faults(model)))
            await world.until(model.finished, timeout_s=600)
            for each in members:
                each.cancel()
