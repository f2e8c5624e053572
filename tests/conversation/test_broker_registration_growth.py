"""Registration at a cost that does not grow: requests to name servers, and the routes that result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import TOPICS, FeedEntry
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.registration import REQUEST_TOPICS
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.handlers import Answer, Handlers
from orbitmq.nameserver.kv import KvConfig
from orbitmq.nameserver.routes import RouteTable
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import RegisterBrokerBody, TopicRouteData
from orbitmq.wire.bodies.topic import DataVersion, MadeAt, TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest

ADDRESS = "127.0.0.1:9876"


class NameServer:
    """A name server's real handlers, and the registrations that they received."""

    def __init__(self, runtime: SimulatedRuntime, **settings: Any) -> None:
        self.runtime = runtime
        self.routes = RouteTable()
        config = NameServerConfig(**settings)
        self._handlers = Handlers(runtime, config, self.routes, KvConfig(runtime, ""))
        self._server = RemotingServer(runtime, self._handle)
        self.bodies: list[RegisterBrokerBody] = []
        self.refuse = False

    async def __aenter__(self) -> NameServer:
        await self._server.start("127.0.0.1", 9876)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._server.stop()

    def _handle(self, connection: Any, command: Command) -> Answer:
        if command.code == RequestCode.REGISTER_BROKER:
            body = RegisterBrokerBody.decode_registration(
                command.body, compressed=False, version=command.version
            )
            self.bodies.append(body)
            if self.refuse:
                return command.reply(ResponseCode.SYSTEM_ERROR, "refused")
        return self._handlers.handle(connection, command)

    def named(self) -> list[list[str]]:
        """The topics in each registration since the last call, without system topics."""
        bodies, self.bodies = self.bodies, []
        return [
            sorted(t for t in body.topic_config_serialize_wrapper.topic_config_table if t.startswith("t-"))
            for body in bodies
        ]

    def knows(self, broker: Broker) -> bool:
        return self.routes.version_of("DefaultCluster", broker.address) == broker.services.topics.version


def broker(runtime: SimulatedRuntime, **settings: Any) -> Broker:
    return Broker(
        runtime,
        BrokerConfig(
            namesrv_addr=ADDRESS,
            store_path_root_dir="/b",
            mapped_file_size_commit_log=1024 * 1024,
            **settings,
        ),
    )


async def create(client: RemotingClient, of: Broker, topic: str) -> None:
    header = UpdateAndCreateTopicRequest(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    answer = await client.request(of.address, header.command(), 3000)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.behaviour("NR-15")
async def test_a_new_topic_is_told_alone_and_those_that_come_together_in_one_request(
    runtime: SimulatedRuntime,
) -> None:
    client = RemotingClient(runtime)
    async with NameServer(runtime) as server, broker(runtime) as one:
        await asyncio.sleep(1)
        first = server.bodies[0].topic_config_serialize_wrapper.topic_config_table
        assert set(first) == {config.topic_name for config in one.services.topics}
        server.named()
        await create(client, one, "t-1")
        # The response arrives when the name server knows the topic.
        assert server.named() == [["t-1"]]
        assert server.routes.topics.groups("t-1")
        assert server.knows(one)
        await asyncio.gather(*(create(client, one, f"t-{number}") for number in range(2, 40)))
        told = server.named()
        assert sorted(topic for named in told for topic in named) == sorted(f"t-{n}" for n in range(2, 40))
        assert len(told) < 10
        assert server.knows(one)
        # Topics that a registration does not name stay.
        assert server.routes.topics.groups("TBW102")
        assert server.routes.topics.groups("t-1")
        made = TopicConfig("t-1", 4, 4, made_at=MadeAt(7, 8))
        one.services.feed.apply(FeedEntry(0, 0, TOPICS, "t-1", made.to_plain()))
        await asyncio.sleep(1)
        told_now = server.bodies[-1].topic_config_serialize_wrapper.topic_config_table
        assert told_now == {"t-1": TopicConfig("t-1", 4, 4)}  # name servers get no other field of the topic
        server.named()
        one.services.topics.delete("t-1")
        await asyncio.sleep(1)
        assert server.named() == [[]]
        assert server.knows(one)
    await client.close()


async def test_a_table_of_many_topics_is_told_in_parts_of_which_the_last_has_its_version(
    runtime: SimulatedRuntime,
) -> None:
    async with broker(runtime) as one:
        for number in range(2 * REQUEST_TOPICS):
            one.services.topics.create_if_absent(f"t-{number}", 1)
        async with NameServer(runtime) as server:
            await asyncio.sleep(5)
            wrappers = [body.topic_config_serialize_wrapper for body in server.bodies]
            assert [len(wrapper.topic_config_table) for wrapper in wrappers[:2]] == [REQUEST_TOPICS] * 2
            versions = [wrapper.data_version for wrapper in wrappers]
            assert len(versions) == 3
            assert len({version.timestamp for version in versions}) == 3
            assert versions[-1] == one.services.topics.version
            assert len(server.routes.topics.names()) == len(one.services.topics)
            assert server.knows(one)
            server.named()
            await asyncio.sleep(65)
            # the name server has the broker's version, so the registrations only show that the broker lives
            assert server.named() == [[], []]


async def test_a_name_server_that_lacks_our_version_is_told_everything(runtime: SimulatedRuntime) -> None:
    async with broker(runtime) as one:
        one.services.topics.create_if_absent("t-1", 1)
        async with NameServer(runtime) as server:
            await asyncio.sleep(5)
            server.named()
            # The name server looks like another one that answers at the same address.
            server.routes._members["DefaultCluster", one.address].version = DataVersion(0, 1, 1)
            server.routes.topics.remove("t-1", "broker-a")
            await asyncio.sleep(31)
            assert server.named() == [["t-1"]]
            assert server.routes.topics.groups("t-1")
        async with NameServer(runtime) as server:
            await asyncio.sleep(5)
            assert server.named() == [["t-1"]]
            assert server.knows(one)


async def test_a_refused_registration_is_followed_by_a_whole_one(runtime: SimulatedRuntime) -> None:
    async with NameServer(runtime) as server, broker(runtime) as one:
        one.services.topics.create_if_absent("t-1", 1)
        await asyncio.sleep(1)
        server.named()
        server.refuse = True
        one.services.topics.create_if_absent("t-2", 1)
        await asyncio.sleep(0.05)
        assert server.named()[0] == ["t-2"]
        server.refuse = False
        await asyncio.sleep(3)
        assert server.named()[-1] == ["t-1", "t-2"]
        assert server.knows(one)


@pytest.mark.behaviour("NR-15")
async def test_a_name_server_that_removes_what_is_not_named_gets_whole_tables(
    runtime: SimulatedRuntime,
) -> None:
    async with broker(runtime) as one:
        for number in range(REQUEST_TOPICS):
            one.services.topics.create_if_absent(f"t-{number}", 1)
        async with NameServer(runtime, delete_topic_with_broker_registration=True) as server:
            await asyncio.sleep(3)
            assert [len(named) for named in server.named()] == [REQUEST_TOPICS]
            one.services.topics.update(TopicConfig("t-new", 1, 1))
            one.services.topics.delete("t-0")
            await asyncio.sleep(1)
            assert all(len(named) == REQUEST_TOPICS for named in server.named())
            assert not server.routes.topics.groups("t-0")
            assert server.routes.topics.groups("t-new")
            assert server.routes.topics.groups("t-1")


async def test_a_changed_broker_permission_is_told_for_all_topics(runtime: SimulatedRuntime) -> None:
    client = RemotingClient(runtime)
    async with NameServer(runtime) as server, broker(runtime) as one:
        one.services.topics.create_if_absent("t-1", 1)
        await asyncio.sleep(1)
        request = Command(RequestCode.UPDATE_BROKER_CONFIG, {}, body=b"brokerPermission=4")
        assert (await client.request(one.address, request, 3000)).code == ResponseCode.SUCCESS
        await asyncio.sleep(1)
        route = server.routes.route("t-1")
        assert isinstance(route, TopicRouteData)
        assert route.queue_datas[0].perm == 4
        config = one.services.topics.get("t-1")
        assert config is not None
        assert config.perm == 6
    await client.close()
