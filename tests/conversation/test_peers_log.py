"""A minute of garbage on the ports of a broker and a name server: few log lines, and both keep serving."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

SECONDS = 60
PER_SECOND = 25


async def garbage(runtime: object, address: str, client: RemotingClient, number: int) -> None:
    """Open a connection that sends no protocol, and send a request whose header lacks everything."""
    host, port = address.split(":")
    first = (b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n", struct.pack(">ii", 12, 8) + b"not json")[number % 3]
    transport, _ = await runtime.network.connect(asyncio.Protocol, host, int(port))  # type: ignore[attr-defined]
    transport.write(first)
    answer = await client.request(address, Command(RequestCode.PULL_MESSAGE), 3000)
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    if number % 2:
        await client.request(address, Command(RequestCode.PUT_KV_CONFIG), 3000)
    transport.close()


@pytest.mark.orbitmq(limit_s=600)
async def test_a_minute_of_garbage_is_one_line_a_second_of_each_kind(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq")

    async with NameServer(runtime.machine("ns")) as name_server:
        machine = runtime.machine("127.0.0.2")
        config = BrokerConfig(store_path_root_dir="/store", broker_ip1="127.0.0.2")
        async with Broker(machine, config) as broker:
            client = RemotingClient(runtime)
            caplog.clear()
            for number in range(SECONDS * PER_SECOND):
                for address in (f"ns:{name_server.port}", broker.address):
                    await garbage(runtime, address, client, number)
                await asyncio.sleep(1 / PER_SECOND)
            sane = await client.request(broker.address, Command(RequestCode.GET_BROKER_CONFIG), 3000)
            assert sane.code == ResponseCode.SUCCESS
            await client.close()
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("orbitmq")]
    counted = sum(" more within a second, the last: " in line for line in lines)
    # The kinds are two of an impossible beginning, unreadable frame, refused request and bad request, on two
    # servers.
    assert len(lines) < 8 * (SECONDS + 5)
    assert counted > SECONDS
    assert sum(
        int(line.split(" more within")[0].rsplit(" ", 1)[1]) for line in lines if " more within" in line
    ) > (2 * SECONDS * PER_SECOND)


async def test_requests_that_are_refused_again_and_again_are_few_lines(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq")
    times = 300
    sent = {"a": "g", "b": "New", "c": "SELF_TEST_TOPIC", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    pull = {"consumerGroup": "a/b", "topic": "TBW102", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
    pull |= {"sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
    ended = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "7", "msgId": "x"}
    ended |= {"commitOrRollback": "8", "fromTransactionCheck": "false", "transactionId": "x"}
    gone = {"brokerName": "b", "brokerAddr": "10.0.0.9:1", "clusterName": "c", "brokerId": "0"}
    async with NameServer(runtime.machine("ns")) as name_server:
        machine = runtime.machine("127.0.0.2")
        config = BrokerConfig(store_path_root_dir="/store", broker_ip1="127.0.0.2")
        async with Broker(machine, config) as broker:
            client = RemotingClient(runtime)
            for address, command in (
                (broker.address, Command(RequestCode.SEND_MESSAGE_V2, {**sent, "i": ""}, b"x")),
                (broker.address, Command(RequestCode.PULL_MESSAGE, {**pull, "subscription": "*"})),
                (broker.address, Command(RequestCode.END_TRANSACTION, ended)),
                (f"ns:{name_server.port}", Command(RequestCode.UNREGISTER_BROKER, gone)),
            ):
                caplog.clear()
                began = runtime.clock.monotonic()
                for _ in range(times):
                    await client.request(address, command, 3000)
                took_s = runtime.clock.monotonic() - began
                assert len(caplog.records) <= 2 + took_s < times, (command.code, caplog.messages[:3])
            await client.close()
