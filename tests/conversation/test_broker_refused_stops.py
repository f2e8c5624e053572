"""Clean stops of brokers that can neither write nor check their deliveries: the next start knows that."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records

from orbitmq.broker.broker import Broker
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.machines import PowerMachine
from orbitmq.wire.codes import ResponseCode


async def put(peer: BrokerPeer, body: bytes, **properties: int) -> None:
    texts = {name: str(value) for name, value in properties.items()}
    answer = await peer.send(body, properties={"UNIQ_KEY": body.decode(), **texts})
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def bodies(peer: BrokerPeer) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    offset = 0
    while got := records(await peer.pull(offset, suspend_timeout_millis=0)):
        found.update(bytes(record.body) for record in got)
        offset = got[-1].queue_offset + 1
    return found


async def stopped_and_started(runtime: SimulatedRuntime, broker: Broker) -> Broker:
    await broker.stop()
    runtime.files.heal()
    runtime.files.crash()  # the machine crashes when its disk is repaired
    again = Broker(runtime, broker_config())
    await again.start()
    return again


@pytest.mark.behaviour("ST-12")
@pytest.mark.parametrize(
    ("operation", "error"), [("pwrite", errno.ENOSPC), ("sync", errno.EIO)], ids=["full", "failed flush"]
)
async def test_a_timer_that_the_log_refused_is_delivered_by_the_next_start(
    runtime: SimulatedRuntime, operation: str, error: int
) -> None:
    broker, peer = Broker(runtime, broker_config()), BrokerPeer(runtime)
    await broker.start()
    for number in range(3):
        await put(peer, b"timer %d" % number, TIMER_DELAY_MS=5300 + 5000 * number)
    await put(peer, b"level", DELAY=3)
    await asyncio.sleep(2)
    runtime.files.fail(operation, "commitlog", error=error, times=-1)
    await asyncio.sleep(7)
    broker = await stopped_and_started(runtime, broker)
    await asyncio.sleep(20)
    assert await bodies(peer) == {b"timer 0": 1, b"timer 1": 1, b"timer 2": 1, b"level": 1}
    await peer.leave()
    await broker.stop()


@pytest.mark.behaviour("ST-13")
@pytest.mark.parametrize(
    ("operation", "path", "error"),
    [
        ("pwrite", "timercheck", errno.ENOSPC),
        ("sync", "timerlog", errno.EIO),
        ("write_atomic", "config/delayOffset", errno.ENOSPC),
    ],
)
async def test_what_was_delivered_while_progress_was_refused_does_not_come_twice(
    runtime: SimulatedRuntime, operation: str, path: str, error: int
) -> None:
    broker, peer = Broker(runtime, broker_config()), BrokerPeer(runtime)
    await broker.start()
    for number in range(3):
        await put(peer, b"timer %d" % number, TIMER_DELAY_MS=5300 + 1000 * number)
        await put(peer, b"level %d" % number, DELAY=2)
    runtime.files.fail(operation, path, error=error, times=-1)
    await asyncio.sleep(10)
    assert len(await bodies(peer)) == 6
    broker = await stopped_and_started(runtime, broker)
    await asyncio.sleep(20)
    found = await bodies(peer)
    assert (len(found), found.total()) == (6, 6)
    await peer.leave()
    await broker.stop()
    assert not runtime.files.exists("/store/abort")


@pytest.mark.behaviour("ST-13")
async def test_a_start_behind_a_kill_that_is_stopped_at_once_leaves_the_search_to_the_next(
    runtime: SimulatedRuntime,
) -> None:
    machine = PowerMachine(runtime.machine("10.0.0.1"))

    async def started() -> Broker:
        broker = Broker(machine.runtime, broker_config(broker_ip1="10.0.0.1"))
        await broker.start()
        return broker

    await started()
    peer = BrokerPeer(runtime, "10.0.0.1:10911")
    for number in range(3):
        await put(peer, b"timer %d" % number, TIMER_DELAY_MS=4900 + 10 * number)
        await put(peer, b"level %d" % number, DELAY=2)
    await asyncio.sleep(5.05)
    assert len(await bodies(peer)) == 6
    machine.kill()
    for _ in range(2):
        broker = await started()
        await broker.stop()
    broker = await started()
    await asyncio.sleep(10)
    found = await bodies(peer)
    assert (len(found), found.total()) == (6, 6)
    await peer.leave()
    await broker.stop()
    assert not machine.disk.exists("/store/abort")


@pytest.mark.behaviour("ST-13")
async def test_without_timers_the_stop_behind_a_kill_is_a_clean_one(runtime: SimulatedRuntime) -> None:
    """A service of timers that is switched off has no search to wait for, so it does not make the stop
    unclean.
    """
    machine = PowerMachine(runtime.machine("10.0.0.1"))
    config = broker_config(broker_ip1="10.0.0.1", timer_wheel_enable=False)
    await Broker(machine.runtime, config).start()
    machine.kill()
    broker = Broker(machine.runtime, config)
    await broker.start()
    await asyncio.sleep(10)
    await broker.stop()
    assert not machine.disk.exists("/store/abort")
