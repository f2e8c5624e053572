"""A broker fetches the route of a topic when its last answer is too old, once for all callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.name_servers import NameServers, NoRouteError
from orbitmq.replication.escape.escape import ROUTE_SECONDS
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

ROUTE = TopicRouteData([QueueData("b", 4, 4, 6)], [BrokerData("c", "b", {0: "127.0.0.1:1"})])


@asynccontextmanager
async def name_servers(runtime: SimulatedRuntime, asked: list[str]) -> AsyncIterator[NameServers]:
    """One name server, which knows only topic t and records the topics of its requests."""

    def answer(_connection: Any, command: Command) -> Command:
        asked.append(command.ext["topic"])
        if command.ext["topic"] == "t":
            return command.reply(body=ROUTE.encode())
        return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no route info")

    server = RemotingServer(runtime, answer)
    await server.start("127.0.0.1", 9876)
    part = NameServers(runtime, broker_config(namesrv_addr="127.0.0.1:9876"))
    yield part
    await part.stop()
    await server.stop()


@pytest.mark.behaviour("ES-07")
async def test_a_route_is_good_for_30_s_and_the_template_is_not_asked_for(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    asked = list[str]()
    async with name_servers(orbitmq_runtime, asked) as part:
        for pause_s, questions in ((0.0, 1), (29.0, 1), (1.5, 2), (29.0, 2)):
            await orbitmq_runtime.clock.sleep(pause_s)
            assert await part.route("t", ROUTE_SECONDS) == ROUTE
            assert asked == ["t"] * questions
        with pytest.raises(NoRouteError, match="no route info"):
            await part.route("unknown", ROUTE_SECONDS)
        assert asked == ["t", "t", "unknown"]


async def test_that_there_is_no_route_counts_for_a_time_of_its_own(orbitmq_runtime: SimulatedRuntime) -> None:
    asked = list[str]()
    async with name_servers(orbitmq_runtime, asked) as part:
        for failed_s, questions in ((0.0, 1), (1.0, 1), (0.0, 2)):
            with pytest.raises(NoRouteError):
                await part.route("unknown", ROUTE_SECONDS, failed_s=failed_s)
            assert len(asked) == questions


async def test_all_who_want_a_route_at_once_wait_for_one_question(orbitmq_runtime: SimulatedRuntime) -> None:
    asked = list[str]()
    async with name_servers(orbitmq_runtime, asked) as part:
        assert await asyncio.gather(*(part.route("t", 0.0) for _ in range(100))) == [ROUTE] * 100
        assert asked == ["t"]
