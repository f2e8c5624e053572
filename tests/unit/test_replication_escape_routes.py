"""An acting master asks for a topic's route twice a minute at most, and for that topic only."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.replication.escape.forms import Target
from orbitmq.replication.escape.routes import Routes
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

ROUTE = TopicRouteData([QueueData("b", 4, 4, 6)], [BrokerData("c", "b", {0: "127.0.0.1:1"})])


@pytest.mark.behaviour("ES-07")
async def test_a_route_is_good_for_30_s_and_the_template_is_not_asked_for(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    runtime, asked = orbitmq_runtime, list[str]()

    def answer(_connection: Any, command: Command) -> Command:
        asked.append(command.ext["topic"])
        if command.ext["topic"] == "t":
            return command.reply(body=ROUTE.encode())
        return command.reply(ResponseCode.TOPIC_NOT_EXIST, "no route info")

    server, client = RemotingServer(runtime, answer), RemotingClient(runtime)
    await server.start("127.0.0.1", 9876)
    routes = Routes(runtime.clock, broker_config(namesrv_addr="127.0.0.1:9876"), client)
    for pause_s, questions in ((0.0, 1), (29.0, 1), (1.5, 2), (29.0, 2)):
        await runtime.clock.sleep(pause_s)
        assert await routes.targets("t", helped=True) == ((Target("b", "127.0.0.1:1", 4),), "")
        assert asked == ["t"] * questions
    found, problem = await routes.targets("unknown", helped=True)
    assert found == ()
    assert "no route info" in problem
    assert asked == ["t", "t", "unknown"]
    await routes.close()
    await client.close()
    await server.stop()
