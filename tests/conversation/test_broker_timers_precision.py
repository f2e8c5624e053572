"""Waiting timers whose slots were chosen with another timerPrecisionMs than the current one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records
from tests.conversation.test_broker_timers_java import as_java
from tests.conversation.test_replication_escape import stored
from tests.conversation.test_replication_members import launch
from tests.replicas import ESCAPING, MASTER, SLAVE, Watch

from orbitmq.broker.broker import Broker
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, World
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.behaviour("TW-19")
COUNT = 60
OTHER_GROUP = "broker-b"


class Peer(BrokerPeer):
    """A client that sends timers to topic T, and reads the delivered messages."""

    async def put(self, at_ms: int, name: str) -> str:
        """Send a message for a time; returns the handle to recall it with."""
        properties = {"TIMER_DELIVER_MS": str(at_ms), "UNIQ_KEY": name}
        return (await self.sent(name.encode(), properties=properties)).recall_handle or ""

    async def fill(self) -> dict[bytes, int]:
        """Send :data:`COUNT` messages; returns when each is due."""
        start = self.now() + 2000
        due = {b"%03d" % number: start + number * 217 for number in range(COUNT)}
        for body, at in due.items():
            await self.put(at, body.decode())
        return due

    async def recall(self, handle: str) -> None:
        await self.ok(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle)

    async def delivered(self) -> list[Record]:
        found: list[Record] = []
        while page := records(await self.pull(len(found))):
            found += page
        return found

    async def waiting(self) -> str:
        answer = await self.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
        return str(json.loads(answer.body)["table"]["timerCongestNum"])


@asynccontextmanager
async def run(
    runtime: SimulatedRuntime, precision_ms: int, port: int, keep: Keep | None = None
) -> AsyncIterator[Peer]:
    """Run a broker in the folder with this precision.

    Args:
        port: a new one for each run, since a crashed broker keeps its port.
        keep: what a power cut at the end leaves of the last writes; ``None`` for a clean stop.
    """
    config = broker_config(listen_port=port, timer_precision_ms=precision_ms, recall_message_enable=True)
    broker = Broker(runtime, config)
    await broker.start()
    async with Peer(runtime, f"127.0.0.1:{port}") as peer:
        yield peer
    if keep is None:
        await broker.stop()
    else:
        runtime.files.crash(keep=keep)


def off_by(found: list[Record], due: dict[bytes, int]) -> list[int]:
    """By how many milliseconds each message was delivered late."""
    return [record.store_timestamp - due[record.body] for record in found]


@pytest.mark.parametrize("keep", [None, Keep.PREFIX])
@pytest.mark.parametrize(
    "precisions", [(100, 1000), (500, 1000), (200, 500), (1000, 100), (500, 200), (100, 1000, 100)]
)
async def test_all_come_once_and_in_their_millisecond(
    runtime: SimulatedRuntime, precisions: tuple[int, ...], keep: Keep | None
) -> None:
    """A slot of the current precision may hold several of the earlier one: no message may be lost or
    early.
    """
    *before, last = precisions
    due: dict[bytes, int] = {}
    for number, precision in enumerate(before):
        async with run(runtime, precision, 10911 + 10 * number, keep) as peer:
            due = due or await peer.fill()
            await asyncio.sleep(3.3)
    async with run(runtime, last, 10961) as peer:
        back = peer.now()
        await asyncio.sleep(20)
        found = await peer.delivered()
        assert Counter(record.body for record in found) == Counter(due.keys())
        late = off_by([record for record in found if due[record.body] > back + 100], due)
        assert len(late) > COUNT // 3
        assert min(off_by(found, due)) >= 0
        assert max(late) <= 20
        assert await peer.waiting() == "0"


@pytest.mark.parametrize(
    "precisions", [(100, 1000, 100), (1000, 1000, 100), (1000, 100, 100), (500, 200, 1000)]
)
async def test_a_recall_finds_its_message_and_counts_until_that_is_due(
    runtime: SimulatedRuntime, precisions: tuple[int, int, int]
) -> None:
    """The message is sent, recalled and due with these precisions, so it and its recall may have different
    slots.
    """
    sent_with, recalled_with, due_with = precisions
    second = runtime.clock.now_ms() // 1000 * 1000 + 10_000
    async with run(runtime, sent_with, 10911) as peer:
        handle = await peer.put(second + 777, "recalled")
        for late in (123, 456, 789):
            await peer.put(second + late, f"stays {late}")
    async with run(runtime, recalled_with, 10921) as peer:
        await peer.recall(handle)
    async with run(runtime, due_with, 10931) as peer:
        await asyncio.sleep(20)
        found = await peer.delivered()
        assert [record.body for record in found] == [b"stays 123", b"stays 456", b"stays 789"]
        assert await peer.waiting() == "0"


@pytest.mark.parametrize(("of_java", "of_ours"), [(1000, 100), (100, 1000), (1000, 1000)])
async def test_units_of_a_java_broker_are_not_early_whatever_its_precision_was(
    runtime: SimulatedRuntime, of_java: int, of_ours: int
) -> None:
    async with run(runtime, of_java, 10911) as peer:
        due = await peer.fill()
        await asyncio.sleep(3.3)
    as_java(runtime.files)
    async with run(runtime, of_ours, 10921) as peer:
        await asyncio.sleep(20)
        found = await peer.delivered()
        assert Counter(record.body for record in found) == Counter(due.keys())
        assert min(off_by(found, due)) >= 0
    # No message of the second of the stop is delivered again.
    async with run(runtime, of_ours, 10931) as peer:
        await asyncio.sleep(5)
        assert len(await peer.delivered()) == COUNT


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=ESCAPING)
@pytest.mark.parametrize(("of_slave", "of_master"), [("100", "1000"), ("1000", "100")])
async def test_brokers_of_one_name_may_differ_for_a_while(
    orbitmq_world: World, of_slave: str, of_master: str
) -> None:
    """The slave acts in between: neither may it deliver early, nor the master deliver the message again in
    time.
    """
    world = orbitmq_world
    async with Watch(world):
        for name, precision in ((SLAVE, of_slave), (MASTER, of_master)):
            await world.stop_broker(name)
            world._cluster._settings["timerPrecisionMs"] = precision
            await launch(world, name)
            await world.sleep(10)
        for name in (MASTER, OTHER_GROUP):
            world.brokers[name].services.topics.create_if_absent("orders", 1)
        await world.sleep(3)
        master = world.brokers[MASTER].services
        now = master.runtime.clock.now_ms()
        due = {b"%03d" % number: now + 2000 + number * 517 for number in range(COUNT)}
        for body, at in due.items():
            properties = {"TIMER_DELIVER_MS": str(at), "UNIQ_KEY": body.decode()}
            message = NewMessage("orders", 0, body, encode_properties(properties), born_timestamp=now)
            master.append.put(message, properties)
        await world.sleep(5)
        world.crash(MASTER)
        await world.sleep(12)
        await launch(world, MASTER)
        await world.sleep(60)
        found = [record for name in (MASTER, OTHER_GROUP) for record in stored(world.brokers[name], "orders")]
        assert Counter(record.body for record in found) == Counter(due.keys())
        assert min(off_by(found, due)) >= 0
