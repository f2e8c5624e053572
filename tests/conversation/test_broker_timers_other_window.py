"""Waiting timers that were cut into several waits with another roll window than the current one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.test_broker_timers_precision import Peer, off_by
from tests.conversation.test_replication_escape import stored
from tests.conversation.test_replication_members import launch
from tests.replicas import ESCAPING, MASTER, SLAVE, Watch

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import iter_records
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, World
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.behaviour("TW-17")
# The shortest windows are 60 slots: 6 s and 12 s.
SHORT, LONG = 100, 200
COUNT = 70
STEP_MS = 417


def window_config(precision_ms: int, port: int) -> BrokerConfig:
    return broker_config(
        listen_port=port,
        timer_precision_ms=precision_ms,
        timer_roll_window_slots=60,
        recall_message_enable=True,
        mapped_file_size_timer_log=52 * 500,
    )


@asynccontextmanager
async def run(
    runtime: SimulatedRuntime, precision_ms: int, port: int, end: str = "stop"
) -> AsyncIterator[Peer]:
    """Run a broker in the folder, with a window of 60 slots.

    Args:
        port: a new one for each run, since a crashed broker keeps its port.
        end: "stop", "crash", or "lost", a stop after which the timer log is removed.
    """
    broker = Broker(runtime, window_config(precision_ms, port))
    await broker.start()
    async with Peer(runtime, f"127.0.0.1:{port}") as peer:
        yield peer
    if end == "crash":
        runtime.files.crash(keep=Keep.PREFIX)
        return
    await broker.stop()
    if end == "lost":
        for name in runtime.files.list_dir("/store/timerlog"):
            runtime.files.remove(f"/store/timerlog/{name}")


async def fill(peer: Peer) -> dict[bytes, int]:
    start = peer.now() + 1000
    due = {b"%03d" % number: start + number * STEP_MS for number in range(COUNT)}
    for body, at in due.items():
        await peer.put(at, body.decode())
    return due


@pytest.mark.parametrize("end", ["stop", "crash", "lost"])
@pytest.mark.parametrize("pause_s", [7.7, 10.2, 13.1])
@pytest.mark.parametrize(
    "precisions", [(LONG, SHORT), (SHORT, LONG), (LONG, SHORT, LONG), (SHORT, LONG, SHORT)]
)
async def test_all_come_once_and_in_time_whatever_the_window_was(
    runtime: SimulatedRuntime, precisions: tuple[int, ...], pause_s: float, end: str
) -> None:
    """The current window does not tell which messages were stored again: a message cut by an earlier window
    was, or was not.
    """
    *before, last = precisions
    due: dict[bytes, int] = {}
    for number, precision in enumerate(before):
        async with run(runtime, precision, 10911 + 10 * number, end) as peer:
            due = due or await fill(peer)
            await asyncio.sleep(pause_s)
    async with run(runtime, last, 10961) as peer:
        back = peer.now()
        await asyncio.sleep(35)
        found = await peer.delivered()
        assert Counter(record.body for record in found) == Counter(due.keys())
        assert min(off_by(found, due)) >= 0
        assert max(off_by([each for each in found if due[each.body] > back + 100], due)) <= 20
        assert await peer.waiting() == "0"


@pytest.mark.orbitmq(brokers=2, replicas=2, settings=ESCAPING | {"timerRollWindowSlot": "60"})
@pytest.mark.parametrize(("of_slave", "of_master"), [("100", "200"), ("200", "100")])
async def test_a_slave_with_another_window_loses_nothing(
    orbitmq_world: World, of_slave: str, of_master: str
) -> None:
    """The slave acts and the master returns; messages that wait in another broker group may be delivered here
    too.
    """
    world = orbitmq_world
    async with Watch(world):
        for name, precision in ((SLAVE, of_slave), (MASTER, of_master)):
            await world.stop_broker(name)
            world._cluster._settings["timerPrecisionMs"] = precision
            await launch(world, name)
            await world.sleep(10)
        due = await fill_orders(world)
        await world.sleep(10.5)
        await comes_once_though_a_slave_acts(world, due)


@pytest.mark.orbitmq(
    brokers=2,
    replicas=2,
    settings=ESCAPING | {"timerRollWindowSlot": "120", "timerPrecisionMs": str(SHORT)},
)
@pytest.mark.parametrize("changed", [(MASTER,), (SLAVE,), (MASTER, SLAVE)])
async def test_a_slave_whose_window_changes_while_it_runs_loses_nothing(
    orbitmq_world: World, changed: tuple[str, ...]
) -> None:
    world = orbitmq_world
    async with Watch(world):
        await world.sleep(10)
        due = await fill_orders(world)
        await world.sleep(4)
        for name in changed:
            async with BrokerPeer(world.runtime, world.brokers[name].address) as peer:
                await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=0\n")
        await world.sleep(6.5)
        await comes_once_though_a_slave_acts(world, due)


async def fill_orders(world: World) -> dict[bytes, int]:
    """Send timers to the master; returns each body's due time."""
    for name in (MASTER, "broker-b"):
        world.brokers[name].services.topics.create_if_absent("orders", 1)
    await world.sleep(3)
    master = world.brokers[MASTER].services
    now = master.runtime.clock.now_ms()
    due = {b"%03d" % number: now + 2000 + number * STEP_MS for number in range(COUNT)}
    for body, at in due.items():
        properties = {"TIMER_DELIVER_MS": str(at), "UNIQ_KEY": body.decode()}
        message = NewMessage("orders", 0, body, encode_properties(properties), born_timestamp=now)
        master.append.put(message, properties)
    return due


async def comes_once_though_a_slave_acts(world: World, due: dict[bytes, int]) -> None:
    """Stop the master for a while; afterwards exactly one broker has each message, once."""
    world.crash(MASTER)
    await world.sleep(12)
    await launch(world, MASTER)
    await world.sleep(60)
    found, elsewhere = (stored(world.brokers[name], "orders") for name in (MASTER, "broker-b"))
    for of_one in (found, elsewhere):
        assert max(Counter(record.body for record in of_one).values()) == 1
    assert {record.body for record in found + elsewhere} == due.keys()
    assert min(off_by(found + elsewhere, due)) >= 0


def live_config(hours: int, port: int) -> BrokerConfig:
    """Settings with a window of 12 s, or with ``fileReservedTime=0`` the shortest one, 6 s."""
    return replace(window_config(SHORT, port), timer_roll_window_slots=120, file_reserved_time_hours=hours)


@pytest.mark.parametrize("end", ["none", "stop", "crash"])
@pytest.mark.parametrize("at_s", [2.0, 7.7, 13.1])
@pytest.mark.parametrize("hours", [(72, 0, 0), (72, 0, 72), (0, 72, 72), (0, 72, 0)])
async def test_all_come_once_and_in_time_though_the_window_changes_while_the_broker_runs(
    runtime: SimulatedRuntime, hours: tuple[int, int, int], at_s: float, end: str
) -> None:
    """The next start must not mistake messages cut by the old window for messages that were stored again.

    Args:
        hours: ``fileReservedTime`` of the first run, its change during that run, and that of the second run.
    """
    first, changed, second = hours
    broker = Broker(runtime, live_config(first, 10911))
    await broker.start()
    async with Peer(runtime, "127.0.0.1:10911") as peer:
        due = await fill(peer)
        start = peer.now()
        await asyncio.sleep(at_s)
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=%d\n" % changed)
        await asyncio.sleep(7)
    if end == "crash":
        runtime.files.crash(keep=Keep.PREFIX)
    elif end == "stop":
        await broker.stop()
    if end != "none":
        broker = Broker(runtime, live_config(second, 10921))
        await broker.start()
    async with Peer(runtime, f"127.0.0.1:{broker.port}") as peer:
        back = peer.now()
        await asyncio.sleep(35)
        found = await peer.delivered()
        assert Counter(record.body for record in found) == Counter(due.keys())
        assert min(off_by(found, due)) >= 0
        before = back if end != "none" else start
        assert max(off_by([each for each in found if due[each.body] > before + 100], due)) <= 20
        assert await peer.waiting() == "0"
    await broker.stop()


@pytest.mark.parametrize("role", [Role.MASTER, Role.SLAVE])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_log_file_is_kept_while_a_timer_in_it_waits(
    runtime: SimulatedRuntime, role: Role, restarts: bool
) -> None:
    """With the longer ``fileReservedTime`` at its start, the message's wait is longer than the new setting
    keeps files.
    """
    config = replace(live_config(72, 10911), mapped_file_size_commit_log=1 << 16)
    broker = Broker(runtime, config)
    await broker.start()
    async with Peer(runtime, "127.0.0.1:10911") as peer:
        due = peer.now() + 60_000
        await peer.put(due, "waits")
        for number in range(40):
            await peer.sent(b"." * 8000, properties={"UNIQ_KEY": str(number)})
        if not restarts:
            await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=0\n")
    if restarts:
        await broker.stop()
        broker = Broker(runtime, replace(config, file_reserved_time_hours=0, listen_port=10921))
        await broker.start()
    if role is Role.SLAVE:
        await broker.change_role(role)
    await asyncio.sleep(8)
    store = broker.services.store
    store.clean()
    assert store.min_commit_log_offset == 0
    if role is Role.SLAVE:
        await broker.change_role(Role.MASTER)
    await asyncio.sleep(60)
    store.clean()
    assert store.min_commit_log_offset > 0
    high = store.max_offset("T", 0)
    (last,) = iter_records(store.get("T", 0, high - 1, 1).body)
    assert last.body == b"waits"
    assert 0 <= last.store_timestamp - due <= 20
    await broker.stop()
