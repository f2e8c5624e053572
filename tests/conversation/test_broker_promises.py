"""The promise of a success response holds when the disk refuses at the worst moment."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.broker import Broker
from orbitmq.message.record import iter_records
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.send import SendMessageV2Request

KIB = 1024


async def send(client: RemotingClient, broker: Broker, body: bytes = b"hello", **values: Any) -> ResponseCode:
    header: dict[str, Any] = {
        "producer_group": "pg",
        "topic": "T",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 5,
        "flag": 0,
        "properties": "",
    }
    request = SendMessageV2Request(**{**header, **values}).command(body)
    answer = await client.request(broker.address, request, 60_000)
    return ResponseCode(answer.code)


async def pull(client: RemotingClient, broker: Broker, topic: str = "T") -> tuple[ResponseCode, list[bytes]]:
    header = PullMessageRequest(
        consumer_group="cg",
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=100,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    )
    answer = await client.request(broker.address, header.command(), 60_000)
    bodies = [record.body for record in iter_records(answer.body)] if answer.code == 0 else []
    return ResponseCode(answer.code), bodies


async def update(client: RemotingClient, broker: Broker, text: str) -> None:
    request = Command(RequestCode.UPDATE_BROKER_CONFIG, {}, body=text.encode())
    assert (await client.request(broker.address, request, 60_000)).code == ResponseCode.SUCCESS


async def test_no_message_is_promised_before_its_topic_is_on_the_disk(runtime: SimulatedRuntime) -> None:
    client = RemotingClient(runtime)
    broker = Broker(runtime, broker_config())
    await broker.start()
    runtime.files.fail("pwrite", "tables.journal", error=errno.ENOSPC, times=-1)
    answers = [await send(client, broker) for _ in range(3)]
    answers += await asyncio.gather(*(send(client, broker) for _ in range(3)))
    assert set(answers) == {ResponseCode.SERVICE_NOT_AVAILABLE}
    runtime.files.heal()
    answers = await asyncio.gather(*(send(client, broker, b"%d" % number) for number in range(20)))
    assert set(answers) == {ResponseCode.SUCCESS}
    assert await send(client, broker, b"20") == ResponseCode.SUCCESS
    assert broker.services.counters.fast_in > 0
    runtime.files.crash()
    async with Broker(runtime, broker_config(listen_port=10921)) as again:
        code, bodies = await pull(client, again)
        assert code == ResponseCode.SUCCESS
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(21)]
    await client.close()


@pytest.mark.parametrize("wait", ["true", "false"])
@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_no_message_is_promised_that_the_system_did_not_take(
    runtime: SimulatedRuntime, mode: str, wait: str
) -> None:
    client = RemotingClient(runtime)
    async with Broker(runtime, broker_config(flush_disk_type=mode, sync_flush_timeout_ms=100)) as broker:
        runtime.files.fail("pwrite", "commitlog", error=errno.ENOSPC, times=1)
        answer = await send(client, broker, properties=f"WAIT\x01{wait}\x02")
        assert answer in (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT)
        assert await send(client, broker) == ResponseCode.SERVICE_NOT_AVAILABLE
        await asyncio.sleep(25)
        assert await send(client, broker) == ResponseCode.SUCCESS
    await client.close()


async def test_a_consume_queue_without_room_is_code_14_and_ends_no_connection(
    runtime: SimulatedRuntime,
) -> None:
    client = RemotingClient(runtime)
    async with Broker(runtime, broker_config()) as broker:
        assert await send(client, broker) == ResponseCode.SUCCESS
        runtime.files.fail("pwrite", "consumequeue", error=errno.ENOSPC, times=-1)
        answers = [await send(client, broker, b"%d" % number) for number in range(600)]
        assert set(answers) == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
        runtime.files.heal()
        await asyncio.sleep(25)
        assert await send(client, broker) == ResponseCode.SUCCESS
    runtime.files.crash(keep=Keep.NOTHING)
    async with Broker(runtime, broker_config(listen_port=10921)) as again:
        stored = again.services.store.max_offset("T", 0)
        assert stored == answers.count(ResponseCode.SUCCESS) + 2
    await client.close()


async def test_a_changed_permission_reaches_the_fast_path(runtime: SimulatedRuntime) -> None:
    client = RemotingClient(runtime)
    async with Broker(runtime, broker_config()) as broker:
        for _ in range(3):
            assert await send(client, broker) == ResponseCode.SUCCESS
            assert (await pull(client, broker))[0] == ResponseCode.SUCCESS
        await update(client, broker, "brokerPermission=2")
        assert (await pull(client, broker))[0] == ResponseCode.NO_PERMISSION
        await update(client, broker, "brokerPermission=6")
        assert (await pull(client, broker))[0] == ResponseCode.SUCCESS
    await client.close()


async def _crash_and_start(runtime: SimulatedRuntime) -> Broker:
    runtime.files.crash()
    broker = Broker(runtime, broker_config(listen_port=10921))
    await broker.start()
    return broker


async def test_a_topic_deleted_and_made_again_is_the_new_one_after_a_crash(runtime: SimulatedRuntime) -> None:
    client = RemotingClient(runtime)
    broker = Broker(runtime, broker_config())
    await broker.start()
    for number in range(30):
        assert await send(client, broker, b"old %d" % number) == ResponseCode.SUCCESS
    request = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (await client.request(broker.address, request, 60_000)).code == ResponseCode.SUCCESS
    assert (await pull(client, broker))[0] == ResponseCode.TOPIC_NOT_EXIST
    for number in range(5):
        assert await send(client, broker, b"new %d" % number) == ResponseCode.SUCCESS
    again = await _crash_and_start(runtime)
    assert (await pull(client, again))[1] == [b"new %d" % number for number in range(5)]
    await again.stop()
    await client.close()
