"""A broker that requires keys: its settings, its users, and a client that sends requests as one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq import Credentials
from orbitmq.admin import Admin
from orbitmq.broker.config import BrokerConfig
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

ROOT = Credentials("root", "root-secret-1")
APP = Credentials("app", "app-secret-1")
WRONG = Credentials("app", "app-secret-2")
NOBODY = Credentials("nobody", "app-secret-1")
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "root-secret-1"}),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
}
APPS = [
    ("Topic:orders", "Pub,Sub,Get"),
    ("Group:billing", "Sub"),
    ("Group:TOOLS_CONSUMER", "Sub"),
    ("Topic:RMQ_SYS_TRACE_TOPIC", "Pub"),
]


class Keys:
    """A client that sends one broker requests as one user."""

    def __init__(self, world: World, credentials: Credentials | None) -> None:
        self._client = RemotingClient(world.runtime, identity=Identity(credentials))
        self._address = next(iter(world.brokers.values())).address

    async def ask(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int = 5000,
    ) -> Command:
        return await self._client.request(self._address, Command(code, dict(fields or {}), body), timeout_ms)

    async def ok(self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
        answer = await self.ask(code, fields, body)
        assert (answer.code, answer.remark) == (0, None)
        return answer.body

    async def make_user(self, name: str, **values: Any) -> None:
        await self.ok(Code.AUTH_CREATE_USER, {"username": name}, UserInfo(**values).encode())

    async def allow(self, name: str, *rules: tuple[str, str], decision: str = "Allow") -> None:
        entries = [
            PolicyEntryInfo(resource, actions.split(","), None, decision) for resource, actions in rules
        ]
        body = AclInfo(None, [PolicyInfo(None, entries)]).encode()
        await self.ok(Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)

    async def close(self) -> None:
        await self._client.close()


def settings(**changes: str) -> dict[str, str]:
    return {**ON, **changes}


@pytest.fixture
def secured(request: pytest.FixtureRequest, orbitmq_runtime: SimulatedRuntime, orbitmq_loop: Any) -> World:
    """One broker that requires keys, with the topic "orders" and the user "app"."""
    world = World(orbitmq_runtime, settings=settings(**getattr(request, "param", {})))
    orbitmq_loop.enter(world)
    orbitmq_loop.run(prepare(world))
    return world


async def prepare(world: World) -> None:
    async with admin(world, ROOT) as client:
        await client.topics.create("orders", queues=2)
    root = Keys(world, ROOT)
    await root.make_user("app", password="app-secret-1")
    await root.allow("app", *APPS)
    await root.close()


def admin(world: World, credentials: Credentials) -> Admin:
    return Admin(world.name_server, runtime=world.runtime, credentials=credentials)


def on(**changes: Any) -> BrokerConfig:
    """The settings of a broker that requires keys, outside a cluster."""
    config = broker_config(authentication_enabled=True, init_authentication_user=ROOT)
    for name, value in changes.items():
        setattr(config, name, value)
    return config
