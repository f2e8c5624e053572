"""Asking the name servers for the route of a topic."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import OrbitError
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.route import TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers.route import GetRouteinfoByTopicRequest

TIMEOUT_MS = 3000


class NoRouteError(OrbitError):
    """No name server gave a route."""


async def route_of(client: RemotingClient, config: BrokerConfig, topic: str) -> TopicRouteData:
    """The topic's route, from the first name server that knows the topic.

    Raises:
        NoRouteError: no name server gives one; the text is what the last one answered.
    """
    problem = "no name server is configured"
    question = GetRouteinfoByTopicRequest(topic=topic, accept_standard_json_only=True).command()
    for server in config.name_servers:
        try:
            answer = await client.request(server, question, TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS:
                return TopicRouteData.decode(answer.body)
            problem = f"name server {server}: code {answer.code}, {answer.remark}"
        except (TransportError, WireError) as error:
            problem = f"name server {server}: {error}"
    raise NoRouteError(problem)
