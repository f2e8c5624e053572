"""Masters are killed, stopped and come back: what waits at them is delivered once, whoever delivers it."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest
from tests.conversation.test_replication_escape import stored
from tests.replicas import ESCAPING, MASTER, OTHER, SLAVE, role_of
from tests.seeds import seeds

from orbitmq import Message, ReceivedMessage, TransactionState
from orbitmq.broker.role import Role
from orbitmq.message.properties import encode_properties
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, World

SETTINGS = {**ESCAPING, "messageDelayLevel": "1s 2s 5s 10s"}
TOPIC = "orders"
# Before a master is lost: what was put may go with its memory, what was delivered may come again.
NEAR_MS = 500


class Run:
    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.dice = dice
        self.put_at: dict[bytes, int] = {}
        self.halves: set[bytes] = set()
        self.losses: list[int] = []
        self.number = 0

    def now(self) -> int:
        return self.world.clock.now_ms()

    async def put(self) -> None:
        """Store messages at the master while there is one."""
        while True:
            await asyncio.sleep(self.dice.random() / 10)
            if role_of(self.world, MASTER) is not Role.MASTER:
                continue
            self.number += 1
            body = b"%d" % self.number
            properties = {"UNIQ_KEY": f"U{self.number}"}
            if self.dice.random() < 0.3:
                properties |= {"TRAN_MSG": "true", "PGROUP": "shop"}
                self.halves.add(body)
            elif self.dice.random() < 0.5:
                properties["TIMER_DELAY_MS"] = str(self.dice.randrange(100, 10_000))
            else:
                properties["DELAY"] = str(self.dice.randint(1, 4))
            services = self.world.brokers[MASTER].services
            message = NewMessage(TOPIC, 0, body, encode_properties(properties), born_timestamp=self.now())
            services.append.put(message, properties)
            self.put_at[body] = self.now()

    async def fault(self) -> None:
        """Lose the master or the slave for a while, or both one after the other."""
        world, dice = self.world, self.dice
        names = dice.choice([[MASTER], [MASTER], [SLAVE]])
        for name in names:
            if dice.random() < 0.7:
                if name == MASTER:
                    self.losses.append(self.now())
                world.crash(name, keep=dice.choice(list(Keep)))
            else:
                await world.stop_broker(name)
        await world.sleep(dice.choice([0.5, 3, 12, 25]) * dice.random())
        for name in names:
            await world.start_broker(name)
        await world.until(
            lambda: role_of(world, MASTER) is Role.MASTER and role_of(world, SLAVE) is Role.SLAVE
        )
        await world.sleep(5 * dice.random())

    def may_be_gone(self, at_ms: int) -> bool:
        """Whether a loss of the master may have taken what it did then; a clean stop takes nothing."""
        return any(0 <= lost_ms - at_ms <= NEAR_MS for lost_ms in self.losses)

    def repeated(self, done: dict[bytes, list[int]]) -> dict[bytes, list[int]]:
        """What was done again, though it was known to be done."""
        return {
            body: times
            for body, times in done.items()
            if not all(self.may_be_gone(at) for at in sorted(times)[:-1])
        }


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=SETTINGS)
@pytest.mark.parametrize("orbitmq_seed", seeds(6))
async def test_what_waits_at_a_master_is_delivered_once(orbitmq_world: World, orbitmq_seed: int) -> None:
    world, dice = orbitmq_world, random.Random(orbitmq_seed)
    run = Run(world, dice)
    asked: dict[bytes, list[int]] = defaultdict(list)

    async def check(message: ReceivedMessage) -> TransactionState:
        asked[message.body].append(run.now())
        return TransactionState.COMMIT

    for name in (MASTER, OTHER):
        await world.until(lambda name=name: role_of(world, name) is Role.MASTER)  # type: ignore[misc]
        for topic in (TOPIC, "beats"):
            world.brokers[name].services.topics.create_if_absent(topic, 4)
    async with world.transaction_producer("shop", check=check) as producer:
        for _ in range(8):
            await producer.send(Message("beats", b"so that all masters know this producer"))
        putting = asyncio.ensure_future(run.put())
        await world.sleep(3)
        for _ in range(3):
            await run.fault()
        await world.sleep(3)
        putting.cancel()
        await world.sleep(100)
    found: dict[bytes, list[int]] = defaultdict(list)
    for name in (MASTER, OTHER):
        for record in stored(world.brokers[name], TOPIC):
            found[record.body].append(record.store_timestamp)
    lost = [body for body, at in run.put_at.items() if body not in found and not run.may_be_gone(at)]
    assert lost == []
    assert run.repeated(found) == {}
    assert run.repeated(asked) == {}
    assert asked.keys() >= run.halves & found.keys()
    assert len(run.put_at) > 50
