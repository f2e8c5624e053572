"""A broker that starts slowly, and one whose role changes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import Role, RoleError
from orbitmq.message.properties import properties_text
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendMessageV2Request
from orbitmq.wire.headers.transaction import EndTransactionRequest


def settings(**changes: Any) -> BrokerConfig:
    values: dict[str, Any] = {
        "listen_port": 10911,
        "store_path_root_dir": "/store",
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 6000,
    }
    return BrokerConfig(**{**values, **changes})


def send_request(**properties: str) -> Command:
    return SendMessageV2Request(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        properties=properties_text(properties),
    ).command(b"hello")


class Caller:
    def __init__(self, runtime: SimulatedRuntime, address: str) -> None:
        self.client = RemotingClient(runtime)
        self.address = address

    async def send(self, **properties: str) -> int:
        return (await self.client.request(self.address, send_request(**properties), 60_000)).code

    async def end_transaction(self) -> Command:
        header = EndTransactionRequest(
            producer_group="pg",
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=8,
            from_transaction_check=False,
            msg_id="unused",
        )
        return await self.client.request(self.address, header.command(), 60_000)


def slow(runtime: SimulatedRuntime) -> None:
    """From this point on the work of threads takes up to a minute."""
    runtime.threads.max_delay_s = 60.0


async def test_a_broker_that_still_recovers_refuses_at_once(runtime: SimulatedRuntime) -> None:
    slow(runtime)
    broker = Broker(runtime, settings())
    starting = asyncio.ensure_future(broker.start())
    await asyncio.sleep(0.01)
    caller = Caller(runtime, "127.0.0.1:10911")
    loop = asyncio.get_running_loop()
    before = loop.time()
    answer = await caller.client.request(caller.address, send_request(), 60_000)
    assert loop.time() - before < 0.1
    assert not starting.done()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "is starting" in (answer.remark or "")
    await starting
    runtime.threads.max_delay_s = 0.001
    assert await caller.send() == ResponseCode.SUCCESS
    await caller.client.close()
    await broker.stop()


async def test_a_start_that_is_cancelled_gives_everything_back(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings()) as broker:
        caller = Caller(runtime, broker.address)
        assert await caller.send() == ResponseCode.SUCCESS
    slow(runtime)
    for _ in range(5):
        starting = asyncio.ensure_future(Broker(runtime, settings()).start())
        await asyncio.sleep(0.01)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        assert starting.cancelled()
    runtime.threads.max_delay_s = 0.001
    async with Broker(runtime, settings()) as broker:
        assert broker.services.store.max_offset("T", 0) == 1
        assert await caller.send() == ResponseCode.SUCCESS
        await caller.client.close()


@pytest.mark.parametrize("fast", [True, False])
async def test_sends_and_services_follow_the_role(runtime: SimulatedRuntime, fast: bool) -> None:
    async with Broker(runtime, settings()) as broker:
        if not fast:
            broker.doors.fast_path = None
        caller = Caller(runtime, broker.address)
        assert await caller.send() == ResponseCode.SUCCESS
        assert await caller.send() == ResponseCode.SUCCESS
        assert (broker.services.counters.fast_in > 0) is fast
        assert {"delayed messages", "transactions"} <= set(broker.running)

        await broker.change_role(Role.SLAVE)
        assert not {"delayed messages", "transactions"} & set(broker.running)
        assert await caller.send() == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await caller.end_transaction()
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE

        await broker.change_role(Role.ACTING_MASTER)
        assert {"delayed messages", "open transactions of the master"} <= set(broker.running)
        assert "transactions" not in broker.running
        assert await caller.send() == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await caller.end_transaction()
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE

        await broker.change_role(Role.MASTER)
        assert await caller.send() == ResponseCode.SUCCESS
        assert broker.services.store.max_offset("T", 0) == 3
        with pytest.raises(RoleError):
            await broker.change_role(Role.ACTING_MASTER)
        await caller.client.close()


@pytest.mark.behaviour("DL-10")
async def test_delayed_messages_wait_for_a_broker_that_leads(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings()) as broker:
        caller = Caller(runtime, broker.address)
        store = broker.services.store
        assert await caller.send() == ResponseCode.SUCCESS
        for level in ("3", "3", "5"):
            assert await caller.send(DELAY=level) == ResponseCode.SUCCESS
        await asyncio.sleep(1)
        await broker.change_role(Role.SLAVE)
        await asyncio.sleep(120)
        assert store.max_offset("T", 0) == 1
        await broker.change_role(Role.MASTER)
        await asyncio.sleep(5)
        assert store.max_offset("T", 0) == 4
        await broker.change_role(Role.SLAVE)
        await broker.change_role(Role.MASTER)
        await asyncio.sleep(5)
        assert store.max_offset("T", 0) == 4
        await caller.client.close()


async def test_a_broker_that_is_not_online_yet_is_known_to_no_name_server(
    runtime: SimulatedRuntime,
) -> None:
    async with Broker(runtime, settings()) as broker:
        assert "registration" in broker.running
        await broker.change_role(Role.PRE_ONLINE)
        assert "registration" not in broker.running
        assert "serving" in broker.running
        await broker.change_role(Role.SLAVE)
        assert "registration" in broker.running


async def test_a_slave_without_replication_starts_as_a_slave(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings(broker_role="SLAVE", broker_id=1)) as broker:
        assert broker.services.role.role is Role.SLAVE
        caller = Caller(runtime, broker.address)
        assert await caller.send() == ResponseCode.SERVICE_NOT_AVAILABLE
        body = (
            await caller.client.request(broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 3000)
        ).body
        assert b'"brokerActive":"false"' in body
        await caller.client.close()


async def test_a_listener_that_fails_keeps_no_answer_from_senders(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(runtime, settings()) as broker:
        caller = Caller(broker.runtime, broker.address)  # type: ignore[arg-type]
        assert await caller.send() == ResponseCode.SUCCESS

        def fails(_topic: str, _queue_id: int, _max_offset: int) -> None:
            raise ValueError("a listener's mistake")

        heard: list[int] = []
        broker.services.events.on_messages_arrived(fails)
        broker.services.events.on_messages_arrived(lambda _topic, _queue, offset: heard.append(offset))
        for fast_path in (broker.doors.fast_path, None):
            broker.doors.fast_path = fast_path
            broker.services.store.watch("T", 0)
            assert await caller.send() == ResponseCode.SUCCESS
        assert heard == [2, 3]
        await caller.client.close()
    assert "a listener's mistake" in caplog.text
