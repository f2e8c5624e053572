"""Levels of loggers as settings of running servers."""

from __future__ import annotations

import logging

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

NAME = "orbitmq.store.log"


def level() -> int:
    return logging.getLogger(NAME).level


@pytest.mark.behaviour("MX-14")
async def test_a_running_broker_changes_levels(orbitmq_runtime: SimulatedRuntime) -> None:
    before = level()
    async with (
        Broker(orbitmq_runtime, broker_config(logger_levels=f"{NAME}:ERROR")) as broker,
        BrokerPeer(orbitmq_runtime, broker.address) as peer,
    ):
        assert level() == logging.ERROR
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, f"logLevels={NAME}:DEBUG".encode())
        assert level() == logging.DEBUG
        for wrong in (NAME, f"{NAME}:LOUD", "asyncio:DEBUG", f"{NAME}:debug", ":INFO", f"{NAME}:INFO;root"):
            answer = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, f"logLevels={wrong}".encode())
            assert answer.code != ResponseCode.SUCCESS, wrong
            assert "logLevels" in answer.remark
        assert level() == logging.DEBUG
    assert level() == before


@pytest.mark.behaviour("MX-14")
async def test_a_running_name_server_changes_levels(orbitmq_runtime: SimulatedRuntime) -> None:
    before = level()
    config, _ = NameServerConfig.load(f"kvConfigPath=/kv\nconfigStorePath=/conf\nlogLevels={NAME}:ERROR")
    async with NameServer(orbitmq_runtime, config):
        assert level() == logging.ERROR
        client = RemotingClient(orbitmq_runtime)
        change = Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=f"logLevels={NAME}:DEBUG".encode())
        answer = await client.request("127.0.0.1:9876", change, 60_000)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert level() == logging.DEBUG
        await client.close()
    assert level() == before
