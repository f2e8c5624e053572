"""Handlers that settle as chance has it, while members come and go: every message ends, none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest
from tests.seeds import seeds

from orbitmq import ConsumeFrom, Consumer, Message, Producer, Reader, ReceivedMessage, Settled
from orbitmq.cluster.local import LocalCluster
from orbitmq.testing import SimulatedRuntime

MESSAGES, QUEUES = 80, 4
CHOICES = ("return", "ack", "raise", "cancelled", "level", "time", "reject", "block", "block fails", "twice")


class Handled:
    """What became of each message, by what its handlers did."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.runtime = runtime
        # By number: who ended it, and when. One that is done, behind one that is not, comes again when its
        # queue goes to another member, and when it comes back: progress is the smallest unfinished offset.
        self.done: dict[int, set[tuple[int, int]]] = {}
        # By queue: who had its last message, and how often that changed.
        self.holders: dict[int, tuple[int, int]] = {}
        self.dead: set[int] = set()
        self.deliveries = 0
        self.wrong: list[str] = []

    def told(self, outcome: Settled, wanted: Settled) -> None:
        if outcome not in (wanted, Settled.GONE):
            self.wrong.append(f"{outcome} instead of {wanted}")

    def _held_by(self, queue: int, member: int) -> tuple[int, int]:
        """The member, and which time in a row it has the queue."""
        holder, changes = self.holders.get(queue, (member, 0))
        if holder != member:
            changes += 1
        self.holders[queue] = (member, changes)
        return self.holders[queue]

    async def one(self, message: ReceivedMessage, member: int) -> None:
        number = int(message.body)
        held = self._held_by(number % QUEUES, member)
        if held in self.done.get(number, ()):
            self.wrong.append(f"{number} came again to the member that ended it")
        self.deliveries += 1
        await self.runtime.clock.sleep(self.runtime.random.uniform(0, 0.05))
        choice = self.runtime.random.choice(CHOICES) if message.reconsume_times < 2 else "return"
        if choice == "reject":
            outcome = message.reject("chance")
            self.told(outcome, Settled.DONE)
            if outcome is Settled.DONE:
                self.dead.add(number)
                self.done.setdefault(number, set()).add(held)
        elif choice in ("level", "time"):
            again = {"delay_level": 1} if choice == "level" else {"delay": 0.5}
            self.told(message.retry(**again), Settled.DONE)
        elif choice == "block fails":
            async with message.process():
                raise KeyError(number)
        elif choice in ("raise", "cancelled"):
            error = RuntimeError("no") if choice == "raise" else asyncio.CancelledError()
            # In a batch it concerns this message only.
            async with message.process():
                raise error
        else:
            if choice == "block":
                async with message.process():
                    pass
            elif choice in ("ack", "twice"):
                self.told(message.ack(), Settled.DONE)
            if choice == "twice":
                self.told(message.retry(), Settled.ALREADY)
            self.done.setdefault(number, set()).add(held)

    async def many(self, batch: list[ReceivedMessage], member: int) -> None:
        for message in batch:
            await self.one(message, member)


@pytest.mark.parametrize("orbitmq_seed", seeds(6))
@pytest.mark.parametrize("way", ["single", "batch", "ordered", "ordered batch", "loop"])
@pytest.mark.orbitmq(limit_s=7200)
async def test_every_message_ends(runtime: SimulatedRuntime, way: str) -> None:
    handled = Handled(runtime)
    async with LocalCluster(runtime, brokers=1, root="/data") as cluster:
        options: dict[str, Any] = {
            "name_servers": cluster.name_server,
            "runtime": runtime,
            "consume_from": ConsumeFrom.FIRST,
        }

        async def member(stay_s: float) -> None:
            consumer = Consumer("cg", ordered="ordered" in way, failure_pause=0.05, concurrency=3, **options)
            consumer.subscribe("t")
            async with consumer:
                work = asyncio.ensure_future(_work(consumer))
                await runtime.clock.sleep(0.2)
                until = runtime.clock.monotonic() + stay_s
                while runtime.clock.monotonic() < until and not _all_ended():
                    await runtime.clock.sleep(runtime.random.uniform(0.2, 2))
                    if runtime.random.random() < 0.2:
                        consumer.pause(*runtime.random.choice([("t",), ()]))
                        await runtime.clock.sleep(0.3)
                        consumer.resume()
                await consumer.close()
                await work

        async def _work(consumer: Consumer) -> None:
            if way == "loop":
                async with contextlib.aclosing(consumer.messages()) as messages:
                    async for message in messages:
                        await handled.one(message, id(consumer))
            elif "batch" in way:
                await consumer.run(partial(handled.many, member=id(consumer)), batch=5)
            else:
                await consumer.run(partial(handled.one, member=id(consumer)))

        def _all_ended() -> bool:
            return len(handled.done) == MESSAGES

        async with Producer("p", name_servers=cluster.name_server, runtime=runtime) as producer:
            for number in range(MESSAGES):
                await producer.send(Message("t", b"%d" % number), ordering_key=number % QUEUES)
        await asyncio.gather(member(3600), member(runtime.random.uniform(1, 5)), _later(runtime, member))
        assert _all_ended()
        assert handled.wrong == []
        assert handled.deliveries > MESSAGES
        await runtime.clock.sleep(120)
        async with Reader("%DLQ%cg", name_servers=cluster.name_server, runtime=runtime) as dead:
            assert {int(message.body) async for message in dead} == handled.dead


async def _later(runtime: SimulatedRuntime, member: Any) -> None:
    await runtime.clock.sleep(runtime.random.uniform(1, 4))
    await member(runtime.random.uniform(1, 30))
