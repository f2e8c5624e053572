"""One function adds a whole feature to the broker: component, table, request codes, hook, lines of
the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.assembly import FEATURES
from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.events import ConnectionClosed
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.broker.metadata.pretty import file_text
from orbitmq.broker.role import LEADING, Role
from orbitmq.store import NewMessage
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

HOW_MANY = 99_999
NAME = "visitors"


class Visitors(Component):
    """Counts the messages of each topic."""

    name = NAME
    runs_as = LEADING

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self.counts: dict[str, int] = {}
        self.left = 0
        feed.register(NAME, FedTable(int, self.counts.__setitem__, items=lambda: list(self.counts.items())))

    def tables(self) -> Sequence[Table]:
        return (Table(NAME, self),)

    def file_text(self) -> Iterator[str]:
        return file_text([(topic, str(count)) for topic, count in self.counts.items()])

    def restore(self, content: Mapping[str, Any]) -> None:
        self.counts.update(content)

    def count(self, message: NewMessage, _properties: Mapping[str, str]) -> NewMessage:
        self.counts[message.topic] = self.counts.get(message.topic, 0) + 1
        self._feed.changed(NAME, message.topic, self.counts[message.topic])
        return message

    def closed(self, _event: ConnectionClosed) -> None:
        self.left += 1


class VisitorHandlers(HandlerFamily):
    def __init__(self, visitors: Visitors) -> None:
        self._visitors = visitors

    def routes(self) -> dict[int, Handler]:
        return {HOW_MANY: self.how_many}

    def how_many(self, _connection: ServerConnection, command: Command) -> Answer:
        return command.reply(body=str(self._visitors.counts.get(command.ext["topic"], 0)).encode())


def attach(host: Host) -> Attachment:
    visitors = Visitors(host.services.feed)
    host.services.append.hooks.append(visitors.count)
    host.services.events.subscribe(ConnectionClosed, visitors.closed)
    return Attachment(
        components=[visitors],
        families=[VisitorHandlers(visitors)],
        status=lambda: {"visitors": str(sum(visitors.counts.values()))},
    )


async def test_all_that_a_function_adds_is_at_work(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config(), [attach]) as broker:
        async with BrokerPeer(runtime) as peer:
            # Hooks do not see plain sends, which take the fast path; these messages have a delay.
            for _ in range(3):
                await peer.sent(properties={"DELAY": "0"})
            answer = await peer.ok(HOW_MANY, topic="T")
            state = KVTable.decode((await peer.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        await asyncio.sleep(1)
        visitors = broker.part(Visitors)
        assert (answer.body, state["visitors"]) == (b"3", "3")
        assert visitors.left == 1
        assert NAME in broker.running
        await broker.change_role(Role.SLAVE)
        assert NAME not in broker.running
    async with Broker(runtime, broker_config(), [attach]) as broker:
        assert broker.part(Visitors).counts == visitors.counts == {"T": 3}


def test_the_services_of_the_broker_are_such_functions() -> None:
    modules = [feature.__module__ for feature in FEATURES]
    assert all(module.endswith(".attach") for module in modules)
    assert len(set(modules)) == len(modules) >= 5
