"""Routes of topics on several brokers, for gRPC clients."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.grpc_rpc import RpcClient, kinds, message

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.attach import attach as gateway
from orbitmq.gateway.call import GrpcStatus
from orbitmq.gateway.cluster import FOUND_SECONDS, ROUTE_SECONDS
from orbitmq.gateway.messages import new, parse, timestamp
from orbitmq.gateway.schema import MessageType, QueryRouteResponse
from orbitmq.gateway.status import Code
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

NAME_SERVER = 9876
SECOND = 10921


class Cluster:
    """A name server and two brokers; the second one serves gRPC, or, like Apache's, does not."""

    def __init__(self, runtime: SimulatedRuntime, *, second_serves: bool = True) -> None:
        self.runtime = runtime
        self.name_server = NameServer(runtime, NameServerConfig(listen_port=NAME_SERVER))
        self.first = self._broker("broker-a", 10911, serves=True)
        self.second = self._broker("broker-b", SECOND, serves=second_serves)

    def _broker(self, name: str, port: int, *, serves: bool) -> Broker:
        config = broker_config(
            broker_name=name,
            listen_port=port,
            store_path_root_dir=f"/{name}",
            namesrv_addr=f"127.0.0.1:{NAME_SERVER}",
            grpc_server_port=0,
            recall_message_enable=True,
        )
        return Broker(self.runtime, config, extensions=[gateway] if serves else [])

    async def __aenter__(self) -> Cluster:
        await self.name_server.start()
        await self.first.start()
        await self.second.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.second.stop()
        await self.first.stop()
        await self.name_server.stop()

    async def create(self, topic: str, *ports: int, **values: str | int) -> None:
        for port in ports:
            async with BrokerPeer(self.runtime, f"127.0.0.1:{port}") as peer:
                await peer.create(topic, **values)
        await self.runtime.clock.sleep(1)


class Told:
    """A name server that answers each request with a route of three brokers.

    Attributes:
        asked: the number of its requests.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._server = RemotingServer(cluster.runtime, self._answer)
        self.asked = 0

    def _answer(self, _connection: ServerConnection, command: Command) -> Command:
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return command.reply()
        self.asked += 1
        route = TopicRouteData(
            [QueueData(name, 2, 2, 6) for name in ("broker-a", "broker-b", "broker-c")],
            [
                BrokerData("c", "broker-a", {0: "127.0.0.1:10911"}),
                BrokerData("c", "broker-b", {0: f"127.0.0.1:{SECOND}"}),
                # Only a slave is left, which no name server shows in its master's place.
                BrokerData("c", "broker-c", {1: f"127.0.0.1:{SECOND}"}),
            ],
        )
        return command.reply(body=route.encode())

    async def __aenter__(self) -> Told:
        await self._cluster.name_server.stop()
        await self._server.start("127.0.0.1", NAME_SERVER)
        await self._cluster.runtime.clock.sleep(ROUTE_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> Cluster:
    return orbitmq_loop.enter(Cluster(orbitmq_runtime, second_serves=getattr(request, "param", True)))


@pytest.fixture
def client(cluster: Cluster, orbitmq_loop: SimulatedLoop) -> RpcClient:
    return orbitmq_loop.enter(RpcClient(cluster.runtime))


def places(answer: QueryRouteResponse) -> list[tuple[str, int, int, int]]:
    """Broker name, broker id, port and queue, in the order of the route."""
    assert answer.status.code == Code.OK, answer
    return [
        (
            queue.broker.name,
            queue.broker.id,
            queue.broker.endpoints.addresses[0].port,
            queue.id,
        )
        for queue in answer.message_queues
    ]


A, B = ("broker-a", 0, 10911), ("broker-b", 0, SECOND)
BOTH = [(*A, 0), (*B, 0), (*A, 1), (*B, 1)]


@pytest.mark.behaviour("GW-39")
async def test_queues_of_several_brokers_alternate_each_at_its_own_port(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.create("T", 10911, SECOND)
    assert places(await client.route("T")) == BOTH
    # The address that the client used leads to this broker only.
    assert places(await client.route("T", ("mq.example.com", 30_081))) == BOTH


@pytest.mark.behaviour("GW-39")
async def test_an_assignment_has_one_entry_of_each_broker(cluster: Cluster, client: RpcClient) -> None:
    await cluster.create("T", 10911, SECOND)
    answer = await client.assignment()
    found = [(each.message_queue.broker.name, each.message_queue.id) for each in answer.assignments]
    assert found == [("broker-a", -1), ("broker-b", -1)]


@pytest.mark.behaviour("GW-39")
async def test_a_topic_of_another_broker_is_found_and_not_made_here(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.create("T", SECOND, attributes="+message.type=FIFO")
    answer = await client.route("T")
    assert places(answer) == [(*B, 0), (*B, 1)]
    assert kinds(answer.message_queues[0]) == [MessageType.FIFO]
    assert cluster.first.services.topics.get("T") is None


@pytest.mark.behaviour("GW-40")
async def test_a_broker_that_is_dead_is_left_out_though_the_name_server_knows_it(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.create("T", 10911, SECOND)
    assert places(await client.route("T")) == BOTH
    await cluster.second.stop()
    async with Told(cluster):
        await cluster.runtime.clock.sleep(FOUND_SECONDS)
        assert places(await client.route("T")) == [(*A, 0), (*A, 1)]


@pytest.mark.behaviour("GW-40")
async def test_a_topic_whose_brokers_are_all_dead_is_not_made_here(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.create("T", SECOND)
    await cluster.second.stop()
    async with Told(cluster):
        answer = await client.route("T")
    assert answer.status.code == Code.INTERNAL_SERVER_ERROR
    assert f"broker broker-b at 127.0.0.1:{SECOND} does not answer" in answer.status.message
    assert cluster.first.services.topics.get("T") is None


@pytest.mark.behaviour("GW-40")
async def test_a_broker_that_leaves_is_in_the_route_for_seconds_only(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.create("T", 10911, SECOND)
    assert places(await client.route("T")) == BOTH
    await cluster.second.stop()
    await cluster.runtime.clock.sleep(ROUTE_SECONDS)
    assert places(await client.route("T")) == [(*A, 0), (*A, 1)]


@pytest.mark.behaviour("GW-41")
async def test_a_name_server_is_asked_once_for_all_clients_in_two_seconds(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.create("T", 10911, SECOND)
    async with Told(cluster) as told:
        for _ in range(3):
            for _ in range(20):
                assert places(await client.route("T")) == BOTH
                assert (await client.assignment()).status.code == Code.OK
            await cluster.runtime.clock.sleep(ROUTE_SECONDS)
    assert told.asked == 3


@pytest.mark.behaviour("GW-41")
async def test_a_silent_name_server_holds_up_nobody_for_long(cluster: Cluster, client: RpcClient) -> None:
    await cluster.create("T", 10911, SECOND)
    await cluster.create("only-here", 10911)
    assert places(await client.route("T")) == BOTH
    await cluster.name_server.stop()
    silent = await cluster.runtime.network.listen(asyncio.Protocol, "127.0.0.1", NAME_SERVER)
    await cluster.runtime.clock.sleep(ROUTE_SECONDS)
    took = []
    for topic in ("T", "T", "only-here"):
        start = cluster.runtime.clock.monotonic()
        found = places(await client.route(topic))
        took.append(cluster.runtime.clock.monotonic() - start)
        assert found == (BOTH if topic == "T" else [(*A, 0), (*A, 1)])
    await silent.close()
    # Clients wait 3 s.
    assert took[0] < 2
    assert max(took[1:]) < 0.1


@pytest.mark.behaviour("GW-41")
async def test_without_a_name_server_an_unknown_topic_is_not_made_and_the_client_may_try_again(
    cluster: Cluster, client: RpcClient
) -> None:
    await cluster.name_server.stop()
    answer = await client.route("unknown")
    assert answer.status.code == Code.INTERNAL_SERVER_ERROR
    assert "no name server answers" in answer.status.message
    assert cluster.first.services.topics.get("unknown") is None
    cluster.name_server = NameServer(cluster.runtime, NameServerConfig(listen_port=NAME_SERVER))
    await cluster.name_server.start()
    await cluster.runtime.clock.sleep(60)
    assert (await client.route("unknown")).status.code == Code.OK


@pytest.mark.behaviour("GW-40")
@pytest.mark.parametrize("cluster", [False], indirect=True, ids=["second without gRPC"])
async def test_a_broker_without_grpc_is_left_out_with_one_log_line(
    cluster: Cluster, client: RpcClient, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("T", 10911, SECOND)
    with caplog.at_level(logging.WARNING, "orbitmq.gateway"):
        for _ in range(5):
            assert places(await client.route("T")) == [(*A, 0), (*A, 1)]
            await cluster.runtime.clock.sleep(20)
    lines = [record for record in caplog.records if "does not speak gRPC" in record.getMessage()]
    assert len(lines) == 1
    assert f"broker-b at 127.0.0.1:{SECOND}" in lines[0].getMessage()


@pytest.mark.behaviour("GW-39")
async def test_without_a_name_server_the_last_route_is_given(cluster: Cluster, client: RpcClient) -> None:
    await cluster.create("T", 10911, SECOND)
    assert places(await client.route("T")) == BOTH
    await cluster.name_server.stop()
    assert places(await client.route("T")) == BOTH


@pytest.mark.behaviour("GW-40")
async def test_many_who_ask_at_once_wait_for_one_look(cluster: Cluster, client: RpcClient) -> None:
    await cluster.create("T", 10911, SECOND)
    answers = await asyncio.gather(*(client.route("T") for _ in range(50)))
    assert all(places(answer) == BOTH for answer in answers)


@pytest.mark.behaviour("GW-44")
async def test_a_recall_reaches_the_broker_that_has_the_message(cluster: Cluster, client: RpcClient) -> None:
    await cluster.create("T", SECOND, attributes="+message.type=DELAY")
    at = timestamp(cluster.runtime.clock.now_ms() + 60_000)
    delayed = message(message_type=MessageType.DELAY, delivery_timestamp=at, id="id-1")
    async with RpcClient(cluster.runtime, port=SECOND) as sender:
        sent = await sender.send(delayed)
    # Clients send a recall to the endpoint that they are configured with.
    handle = sent.entries[0].recall_handle
    recalled = await client.recall(handle)
    assert (recalled.status.code, recalled.message_id) == (Code.OK, "id-1")
    again = await client.recall(handle)
    assert again.status.code == Code.BAD_REQUEST
    assert "recalled already" in again.status.message
    await cluster.second.stop()
    lost = await client.recall(handle)
    assert lost.status.code == Code.INTERNAL_SERVER_ERROR
    assert "the message of this handle is at broker broker-b" in lost.status.message


@pytest.mark.behaviour("GW-49")
@pytest.mark.parametrize(
    ("language", "version", "told"),
    [
        ("JAVA", "5.1.0", True),
        ("JAVA", "5.2.1-SNAPSHOT", True),
        ("JAVA", "5.0.8", False),
        ("JAVA", "", False),
        ("NODE_JS", "1.0.8", True),
        ("GO", "5.1.4", True),
        ("PYTHON", "5.1.2", False),
        ("RUST", "5.0.0", False),
    ],
)
async def test_a_clean_stop_sends_clients_away_that_understand_it(
    cluster: Cluster, language: str, version: str, told: bool
) -> None:
    await cluster.create("T", 10911)
    clock = cluster.runtime.clock
    async with RpcClient(cluster.runtime, language=language, version=version) as rpc:
        await rpc.heartbeat()
        stream = await rpc.start()
        held = asyncio.create_task(rpc.receive(wait_ms=20_000))
        await asyncio.sleep(1)
        began = clock.now_ms()
        stopping = asyncio.create_task(cluster.first.stop())
        answer = await held
        assert (answer.code, answer.messages) == (Code.MESSAGE_NOT_FOUND, [])
        assert clock.now_ms() - began < 500
        await stream.answer.done.wait()
        commands = [parse(schema.TelemetryCommand, each) for each in stream.answer.messages()[1:]]
        assert [each.HasField("reconnect_endpoints_command") for each in commands] == [True] * told
        assert stream.answer.status == 0
        await rpc.grpc.gone.wait()
        # The first GOAWAY ends new calls; the last one comes when the calls under way have ended.
        assert rpc.grpc.goaways[0][0] == 2**31 - 1
        assert len(rpc.grpc.goaways) == 2
        await stopping


@pytest.mark.behaviour("GW-49")
async def test_a_clean_stop_loses_no_send_of_a_producer_that_has_another_broker(cluster: Cluster) -> None:
    """As clients do, the producer sends each message until a broker takes it: after UNAVAILABLE to the other
    one.
    """
    await cluster.create("T", 10911, SECOND, readQueueNums=2, writeQueueNums=2)
    taken: list[bytes] = []

    async def produce(number: int, rpcs: list[RpcClient]) -> None:
        for count in range(40):
            body = b"%d-%d" % (number, count)
            for attempt in range(3):
                rpc = rpcs[(count + attempt) % 2]
                if rpc.grpc.gone.is_set() or rpc.grpc.goaways:
                    continue
                request = new(schema.SendMessageRequest, messages=[message(body)])
                answer = await rpc.grpc.call("SendMessage", request.SerializeToString(), headers=rpc.headers)
                if answer.status == 0:
                    assert parse(schema.SendMessageResponse, answer.messages()[0]).status.code == Code.OK
                    taken.append(body)
                    break
                # The call had not begun, or its connection ended before a response.
                assert answer.status == GrpcStatus.UNAVAILABLE, answer
            else:
                raise AssertionError(f"no broker took {body!r}")
            await asyncio.sleep(0.01)

    async with (
        RpcClient(cluster.runtime, client_id="p-1") as first,
        RpcClient(cluster.runtime, client_id="p-2", port=SECOND) as second,
    ):
        producers = [asyncio.create_task(produce(number, [first, second])) for number in range(4)]
        await asyncio.sleep(0.15)
        await cluster.first.stop()
        await asyncio.gather(*producers)
    assert len(taken) == len(set(taken)) == 160
