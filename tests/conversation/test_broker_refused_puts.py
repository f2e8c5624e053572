"""The disk refuses messages of the broker's own services, and the broker's role changes meanwhile.

Such messages wait in memory and are stored when the disk takes writes again. Until then no file contains
them, so a service that starts again has to wait for them or remember them.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conversation.test_broker_transactions import COMMIT, TransactionPeer, end_request, stored

from orbitmq.broker.broker import Broker
from orbitmq.broker.events import LogCut
from orbitmq.broker.role import Role
from orbitmq.broker.transactions.service import Transactions
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> TransactionPeer:
    return orbitmq_loop.enter(TransactionPeer(broker))


@asynccontextmanager
async def a_disk_that_refuses(broker: Broker, runtime: SimulatedRuntime) -> AsyncIterator[None]:
    """Let the disk refuse writes to the log until some seconds after the broker has become master again."""
    runtime.files.fail("pwrite", "commitlog", error=errno.EIO, times=-1)
    yield
    assert broker.services.store.has_unwritten
    await broker.change_role(Role.FENCED)
    await asyncio.sleep(1)
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(5)
    runtime.files.heal()
    await asyncio.sleep(60)
    assert not broker.services.store.has_unwritten


@pytest.mark.behaviour("DL-09")
@pytest.mark.parametrize("wait", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "2000"}], ids=["level", "timer"])
async def test_a_message_that_was_delivered_then_comes_once(
    broker: Broker, peer: TransactionPeer, runtime: SimulatedRuntime, wait: dict[str, str]
) -> None:
    """Seed 16308: the message was delivered while the disk refused the log."""
    await peer.sent(b"later", topic="T", queue_id=1, properties={"UNIQ_KEY": "K", **wait})
    await asyncio.sleep(0.1)
    async with a_disk_that_refuses(broker, runtime):
        await asyncio.sleep(4)
    assert [record.body for record in stored(broker, "T", 1)] == [b"later"]


@pytest.mark.behaviour("TX-09")
async def test_a_transaction_that_ended_then_is_not_asked_about(
    broker: Broker, peer: TransactionPeer, runtime: SimulatedRuntime
) -> None:
    peer.answer = COMMIT
    half = await peer.prepare()
    async with a_disk_that_refuses(broker, runtime):
        end = end_request(half.offset, half.physical, COMMIT)
        await peer.client.oneway(broker.address, end.command(), 3000)
        await asyncio.sleep(1)
    assert peer.checks == []
    assert [record.body for record in stored(broker, "Orders", 2)] == [b"paid"]


@pytest.mark.behaviour("TX-10")
async def test_a_mark_that_waits_is_forgotten_when_the_log_is_cut(
    broker: Broker, peer: TransactionPeer
) -> None:
    """Its message may be in the part that was cut off; with the mark, the transaction would not be checked
    again.
    """
    peer.answer = COMMIT
    half = await peer.prepare()
    await broker.change_role(Role.FENCED)
    broker.part(Transactions)._unmarked.append(half.offset)
    broker.services.events.publish(LogCut(broker.services.store.end))
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(60)
    assert [record.body for record in stored(broker, "Orders", 2)] == [b"paid"]
