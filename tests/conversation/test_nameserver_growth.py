"""A name server with many topics: long reports in slices, repeated ones unread, departures cleared later."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from orbitmq.nameserver import handlers as handlers_module
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.handlers import Handlers
from orbitmq.nameserver.kv import KvConfig
from orbitmq.nameserver.registration import SHORT_BYTES, read_long_registration, read_registration
from orbitmq.nameserver.route_text import encode_route
from orbitmq.nameserver.routes import RouteTable
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.bodies.route import BrokerData, QueueData, RegisterBrokerBody, TopicRouteData
from orbitmq.wire.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.route import GetRouteinfoByTopicRequest, RegisterBrokerRequest

MANY = 3000


@dataclass(eq=False)
class Connection:
    """A stand-in for the connection of one broker."""

    closed: bool = False


def report(
    topics: int = MANY, *, counter: int = 1, queues: int = 8, broker: str = "a", **more: Any
) -> Command:
    table = {f"t-{number}": TopicConfig(f"t-{number}", queues, queues) for number in range(topics)}
    wrapper = TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(0, 1, counter), topic_config_table=table, **more
    )
    body = RegisterBrokerBody(wrapper, ["filter:1"]).encode(java_keys=True)
    return RegisterBrokerRequest(
        broker_name=broker,
        broker_addr=f"{broker}:10911",
        cluster_name="c",
        ha_server_addr=f"{broker}:10912",
        broker_id=0,
        enable_acting_master=False,
        compressed=False,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    ).command(body)


class Server:
    """The handlers of a name server whose cleaning after departures the test calls."""

    def __init__(self, runtime: SimulatedRuntime, **settings: Any) -> None:
        self.routes = RouteTable()
        self.work = 0
        self.handlers = Handlers(
            runtime, NameServerConfig(**settings), self.routes, KvConfig(runtime, ""), on_work=self._work
        )

    def _work(self) -> None:
        self.work += 1

    async def ask(self, connection: Connection, command: Command) -> Command:
        answer = self.handlers.handle(connection, command)
        return await answer if isinstance(answer, Awaitable) else answer

    def queues(self, topic: str) -> int | None:
        route = self.routes.route(topic)
        return None if route is None else route.queue_datas[0].write_queue_nums


async def test_a_long_report_is_read_as_a_short_one(runtime: SimulatedRuntime) -> None:
    mapping = TopicQueueMappingInfo("t-1", bname="a", total_queues=2, curr_id_map={0: 0, 1: 1})
    command = report(700, topic_queue_mapping_info_map={"t-1": mapping})
    assert len(command.body) > SHORT_BYTES
    at_once = read_registration(command, "x")
    assert len(at_once.topics) == 700
    assert at_once.filter_servers == ("filter:1",)
    assert at_once.mappings["t-1"].curr_id_map == {0: 0, 1: 1}
    assert await read_long_registration(command, "x", runtime.threads) == at_once
    body = RegisterBrokerBody.decode(command.body)
    ext = {**command.ext, "compressed": "true", "bodyCrc32": "0"}
    packed = msgspec.structs.replace(command, ext=ext, body=body.encode_compressed())
    assert (await read_long_registration(packed, "x", runtime.threads)).topics == at_once.topics


@pytest.mark.parametrize("at", [0, 1, 200, 5000, -1])
async def test_a_long_report_that_is_damaged_is_refused(runtime: SimulatedRuntime, at: int) -> None:
    server = Server(runtime)
    command = report(700)
    torn = bytearray(command.body)
    torn[at] = 0xFF
    for body in (bytes(torn), command.body[: len(command.body) // 2], b"[" * 20_000, b"1" * 20_000):
        with pytest.raises(RemotingError, match="crc32 not match"):
            await server.ask(Connection(), msgspec.structs.replace(command, body=body))
        unchecked = msgspec.structs.replace(command, ext={**command.ext, "bodyCrc32": "0"}, body=body)
        with pytest.raises(RemotingError, match="Failed to decode RegisterBrokerBody"):
            await server.ask(Connection(), unchecked)
    assert server.routes.version_of("c", "a:10911") is None


async def test_queries_are_answered_while_a_long_report_is_read(runtime: SimulatedRuntime) -> None:
    server = Server(runtime)
    await server.ask(Connection(), report(20, broker="b"))
    reading = asyncio.ensure_future(server.ask(Connection(), report()))
    query = GetRouteinfoByTopicRequest(topic="t-5", accept_standard_json_only=True).command()
    answered = 0
    while not reading.done():
        route = TopicRouteData.decode((await server.ask(Connection(), query)).body)
        answered += 1
        assert {data.broker_name for data in route.queue_datas} <= {"a", "b"}
        await asyncio.sleep(0 if answered % 20 else 0.001)
    await reading
    assert answered > MANY // 100
    assert len(server.routes.topics.names()) == MANY
    assert server.routes.version_of("c", "a:10911") == DataVersion(0, 1, 1)


async def test_reports_of_one_broker_count_in_their_order(runtime: SimulatedRuntime) -> None:
    server = Server(runtime)
    broker = Connection()
    await asyncio.gather(
        server.ask(broker, report(counter=1, queues=1)),
        server.ask(broker, report(40, counter=2, queues=2)),
        server.ask(broker, report(counter=3, queues=3)),
        server.ask(broker, report(20, counter=4, queues=4)),
    )
    assert server.queues("t-1") == 4
    assert server.queues("t-30") == 3
    assert server.routes.version_of("c", "a:10911") == DataVersion(0, 1, 4)


async def test_a_report_that_is_the_same_is_not_read_again(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(runtime)
    read: list[object] = []
    original = handlers_module.read_long_registration

    async def counted(*args: Any) -> Any:
        read.append(args)
        return await original(*args)

    monkeypatch.setattr(handlers_module, "read_long_registration", counted)
    broker = Connection()
    for _ in range(3):
        await asyncio.sleep(100)
        # the report counted as a heartbeat
        assert server.routes.expire(int(runtime.clock.monotonic() * 1000)) == ([], [])
        await server.ask(broker, report())
    assert len(read) == 1
    # A topic that was deleted at the name server returns with the broker's next report (NR-05).
    delete = Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t-7"})
    await server.ask(Connection(), delete)
    assert server.queues("t-7") is None
    await server.ask(broker, report())
    assert server.queues("t-7") == 8
    assert len(read) == 2
    # The report is read again, whatever reports came in between.
    await server.ask(broker, report(20, counter=2, queues=1))
    await server.ask(broker, report())
    assert server.queues("t-3") == 8
    assert len(read) == 3
    await server.ask(Connection(), report())
    assert len(read) == 4


async def test_a_broker_that_goes_while_its_report_is_stored_leaves_nothing(
    runtime: SimulatedRuntime,
) -> None:
    server = Server(runtime)
    broker = Connection()
    storing = asyncio.ensure_future(server.ask(broker, report()))
    while server.routes.version_of("c", "a:10911") is None:
        await asyncio.sleep(0.001)
    server.routes.connection_closed(broker)
    await storing
    assert server.routes.topics.names() == []


async def test_a_departure_counts_at_once_and_is_cleared_in_slices(runtime: SimulatedRuntime) -> None:
    server = Server(runtime)
    one, two = Connection(), Connection()
    await server.ask(one, report())
    await server.ask(two, report(20, broker="b"))
    server.routes.connection_closed(one)
    assert server.queues("t-100") is None
    route = server.routes.route("t-1")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["b"]
    slices = 0
    while server.routes.has_work:
        server.routes.sweep(100)
        slices += 1
    assert slices > MANY // 100
    assert server.routes.topics.names() == sorted(f"t-{number}" for number in range(20))
    # A broker that returns before the cleaning has exactly the topics of its report.
    await server.ask(one, report())
    server.routes.connection_closed(one)
    await server.ask(one, report(40))
    assert not server.routes.has_work
    assert len(server.routes.topics.names()) == 40


@pytest.mark.parametrize("standard", [True, False])
@pytest.mark.parametrize("version", [380, 480])
def test_a_route_of_shared_parts_is_encoded_as_a_whole_one(standard: bool, version: int) -> None:
    mapping = TopicQueueMappingInfo("t", bname="a", total_queues=1, curr_id_map={0: 0})
    route = TopicRouteData(
        queue_datas=[QueueData('a"queueDatas":[]', 1, 2, 6, 3), QueueData("b", 1, 2, 6, 3)],
        broker_datas=[
            BrokerData("c", "a", {0: "x:1", 2: "x:2"}, zone_name="z"),
            BrokerData("c", "b", {1: "y:1"}, enable_acting_master=True),
        ],
        filter_server_table={'"brokerDatas":[]': ['"queueDatas":[]']},
        order_topic_conf='"queueDatas":[]',
        topic_queue_mapping_by_broker={"a": mapping},
    )
    for _ in range(2):
        found = encode_route(route, standard=standard, version=version)
        whole = replace(
            route,
            queue_datas=[
                replace(data, topic_syn_flag=data.topic_sys_flag if version < 393 else None)
                for data in route.queue_datas
            ],
        )
        assert found == whole.encode(java_keys=not standard)
