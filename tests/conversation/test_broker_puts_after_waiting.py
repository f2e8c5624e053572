"""The broker's role changes while a request waits: the broker stores nothing and reports no success."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, send_request
from tests.conversation.test_admin_roles import CHANGES, DELETE_TOPIC, ask
from tests.conversation.test_broker_transactions import TransactionPeer
from tests.conversation.test_writer_fences import bind

from orbitmq.broker.broker import Broker
from orbitmq.broker.role import Role
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.bodies.client import HeartbeatData, ProducerData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

pytestmark = pytest.mark.behaviour("PO-48")

GROUP = b'{"groupName":"cg"}'

Ask = Callable[[BrokerPeer, int], Awaitable[Command]]


async def to_new_topic(peer: BrokerPeer, _stored: int) -> Command:
    return await peer.send(b"late", topic="New")


async def batch_to_new_topic(peer: BrokerPeer, _stored: int) -> Command:
    item = (23).to_bytes(4, "big") + bytes(4) * 3 + (1).to_bytes(4, "big") + b"x" + bytes(2)
    return await peer.ask(send_request("New", batch=True).command(item))


async def sent_back(peer: BrokerPeer, stored: int) -> Command:
    ext: dict[str, str | int] = {"group": "cg", "offset": stored, "delayLevel": 3, "originTopic": "T"}
    return await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, b"", **ext)


async def sent_back_as_dead(peer: BrokerPeer, stored: int) -> Command:
    ext: dict[str, str | int] = {"group": "cg", "offset": stored, "delayLevel": -1, "originTopic": "T"}
    return await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, b"", **ext)


async def dead_letter(peer: BrokerPeer, _stored: int) -> Command:
    return await peer.send(b"late", topic="%RETRY%cg", reconsume_times=99, max_reconsume_times=1)


async def fence(peer: BrokerPeer, _stored: int) -> Command:
    return await bind(peer, 1, fence=True)


@asynccontextmanager
async def a_slow_disk(broker: Broker) -> AsyncIterator[None]:
    """Let changes of tables wait for the disk."""
    async with broker.services.persistence._writing:
        yield


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (to_new_topic, ResponseCode.SERVICE_NOT_AVAILABLE),
        (batch_to_new_topic, ResponseCode.SERVICE_NOT_AVAILABLE),
        (sent_back, ResponseCode.SYSTEM_ERROR),
        (sent_back_as_dead, ResponseCode.SYSTEM_ERROR),
        (dead_letter, ResponseCode.SERVICE_NOT_AVAILABLE),
        (fence, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
async def test_a_request_that_waits_for_a_table_is_refused_by_a_broker_that_is_no_master_by_then(
    broker: Broker, peer: BrokerPeer, request_of: Ask, code: int
) -> None:
    sent = await peer.sent()
    await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP)
    stored = int((sent.msg_id or "")[16:], 16)
    end = broker.services.store.max_commit_log_offset
    async with a_slow_disk(broker):
        asking = asyncio.ensure_future(request_of(peer, stored))
        await asyncio.sleep(0.1)
        assert not asking.done()
        changing = asyncio.ensure_future(broker.change_role(Role.PRE_ONLINE))
        await asyncio.sleep(0.1)
    answer = await asking
    await changing
    assert answer.code == code
    assert "pre-online" in (answer.remark or "")
    assert broker.services.store.max_commit_log_offset == end


@pytest.mark.behaviour("MO-20")
@pytest.mark.parametrize("change", [CHANGES[0], CHANGES[1], DELETE_TOPIC], ids=lambda change: change[0].name)
async def test_a_change_of_an_administrator_is_not_done_where_it_does_not_last_by_then(
    broker: Broker, peer: BrokerPeer, change: tuple[int, bytes, dict[str, Any]]
) -> None:
    await peer.create()
    async with a_slow_disk(broker):
        asking = asyncio.ensure_future(ask(peer, change))
        await asyncio.sleep(0.1)
        assert not asking.done()
        changing = asyncio.ensure_future(broker.change_role(Role.PRE_ONLINE))
        await asyncio.sleep(0.1)
    answer = await asking
    await changing
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "would not last at a broker that is pre-online" in (answer.remark or "")


class SlowPeer(BrokerPeer):
    """A client that answers the broker's requests after a while."""

    async def _note(self, _connection: object, command: Command) -> Command:  # type: ignore[override]
        await asyncio.sleep(1)
        return command.reply()


@pytest.mark.broker(store_reply_message_enable=True)
async def test_a_reply_that_is_pushed_meanwhile_is_not_stored(
    broker: Broker, orbitmq_loop: SimulatedLoop, runtime: SimulatedRuntime
) -> None:
    async with SlowPeer(runtime) as peer:
        await peer.create("R")
        beat = HeartbeatData("client", [ProducerData("pg")], [])
        await peer.ok(RequestCode.HEART_BEAT, beat.encode())
        end = broker.services.store.max_commit_log_offset
        header = send_request("R", properties={"REPLY_TO_CLIENT": "client"})
        command = header.command(b"reply")
        command.code = RequestCode.SEND_REPLY_MESSAGE_V2
        asking = asyncio.ensure_future(peer.ask(command))
        await asyncio.sleep(0.5)
        assert not asking.done()
        await broker.change_role(Role.PRE_ONLINE)
        assert (await asking).code == ResponseCode.SUCCESS  # the client has received the reply
        assert broker.services.store.max_commit_log_offset == end


async def test_a_discarded_half_message_is_not_taken_up_by_a_slave(
    broker: Broker, orbitmq_loop: SimulatedLoop
) -> None:
    """This request, too, checks the role."""
    async with TransactionPeer(broker) as peer:
        half = await peer.prepare()
        end = broker.services.store.max_commit_log_offset
        await broker.change_role(Role.SLAVE)
        answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, b"", msgId=half.sent.msg_id)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.services.store.max_commit_log_offset == end
