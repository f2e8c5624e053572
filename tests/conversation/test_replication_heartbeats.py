"""The notices and requests that a broker sends to name servers every second in acting mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.events import SettingsChanged
from orbitmq.broker.role import Role
from orbitmq.cluster.brokers import make_broker
from orbitmq.errors import StartError
from orbitmq.message.reserved import SYNC_MEMBER_TOPIC_PREFIX
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from orbitmq.wire.bodies.topic import DataVersion
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.route import NotifyMinBrokerIdChangeRequest, QueryDataVersionResponse

MEMBERS = {0: "127.0.0.1:10911", 1: "10.0.0.9:10911"}
HEARTBEATS = (RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT)


class NameServerScript:
    """Gives the responses of the test, and records the requests and their times."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._clock = runtime.clock
        self.heard: list[tuple[float, Command]] = []
        self.registered = True
        self.refuses = False
        self.heartbeat_s = 0.0
        self.members: dict[int, str] = dict(MEMBERS)
        self.server = RemotingServer(runtime, self.answer)

    def of(self, *codes: int) -> list[tuple[float, Command]]:
        return [(at, command) for at, command in self.heard if command.code in codes]

    async def answer(self, _connection: Any, command: Command) -> Command:
        self.heard.append((self._clock.monotonic(), command))
        if command.code in HEARTBEATS and self.heartbeat_s:
            await self._clock.sleep(self.heartbeat_s)
        if self.refuses:
            return command.reply(ResponseCode.SYSTEM_ERROR)
        if command.code == RequestCode.QUERY_DATA_VERSION:
            ours = DataVersion.decode(command.body)
            ext = QueryDataVersionResponse(changed=False).to_ext()
            return command.reply(ext=ext, body=ours.encode() if self.registered else b"")
        data = BrokerData(cluster="DefaultCluster", broker_name="broker-a", broker_addrs=dict(self.members))
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return command.reply(body=TopicRouteData(broker_datas=[data]).encode())
        if command.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            group = BrokerMemberGroup("DefaultCluster", "broker-a", dict(self.members))
            return command.reply(body=GetBrokerMemberGroupResponseBody(group).encode())
        return command.reply()


@pytest.fixture
def names(orbitmq_loop: SimulatedLoop, runtime: SimulatedRuntime) -> Iterator[NameServerScript]:
    script = NameServerScript(runtime)
    orbitmq_loop.run(script.server.start("127.0.0.1", 9876))
    yield script
    orbitmq_loop.run(script.server.stop())


def acting(**settings: Any) -> Any:
    return broker_config(namesrv_addr="127.0.0.1:9876", enable_slave_acting_master=True, **settings)


@pytest.mark.behaviour("HB-02")
@pytest.mark.behaviour("HB-03")
@pytest.mark.behaviour("MB-05")
@pytest.mark.behaviour("MB-06")
@pytest.mark.parametrize("old", [True, False])
async def test_a_heartbeat_and_a_look_each_second(
    runtime: SimulatedRuntime, names: NameServerScript, old: bool
) -> None:
    assert acting().heartbeat_timeout_ms == 1000
    async with make_broker(runtime, acting(compatible_with_old_name_server=old)) as broker:
        begin = runtime.clock.monotonic()
        await runtime.clock.sleep(20.5)
        code = RequestCode.QUERY_DATA_VERSION if old else RequestCode.BROKER_HEARTBEAT
        beats = [command for at, command in names.of(*HEARTBEATS) if at > begin]
        assert {beat.code for beat in beats} == {code}
        assert 19 <= len(beats) <= 22
        assert not any(beat.is_oneway for beat in beats), "only an answer renews the right to lead"
        if old:
            assert {beat.body for beat in beats} == {broker.services.topics.version.encode()}
        look = RequestCode.GET_ROUTEINFO_BY_TOPIC if old else RequestCode.GET_BROKER_MEMBER_GROUP
        looks = [command for at, command in names.of(look) if at > begin]
        assert 19 <= len(looks) <= 22
        if old:
            assert looks[0].ext["topic"] == SYNC_MEMBER_TOPIC_PREFIX + "broker-a"
        assert broker.services.role.role is Role.MASTER


@pytest.mark.behaviour("HB-02")
async def test_a_heartbeat_each_brokerheartbeatinterval(
    runtime: SimulatedRuntime, names: NameServerScript
) -> None:
    async with make_broker(runtime, acting(broker_heartbeat_interval_ms=250)):
        begin = runtime.clock.monotonic()
        await runtime.clock.sleep(10.1)
        assert 38 <= len([at for at, _ in names.of(*HEARTBEATS) if at > begin]) <= 42


@pytest.mark.parametrize(("timeout_ms", "role"), [(500, Role.FENCED), (1000, Role.MASTER)])
async def test_an_answer_counts_when_it_comes_within_sendheartbeattimeoutmillis(
    runtime: SimulatedRuntime, names: NameServerScript, timeout_ms: int, role: Role
) -> None:
    names.members = {0: "127.0.0.1:10911"}
    names.heartbeat_s = 0.7
    async with make_broker(runtime, acting(heartbeat_timeout_ms=timeout_ms)) as broker:
        await runtime.clock.sleep(20)
        assert broker.services.role.role is role


@pytest.mark.behaviour("HB-02")
async def test_without_acting_masters_there_is_no_heartbeat(
    runtime: SimulatedRuntime, names: NameServerScript
) -> None:
    config = broker_config(namesrv_addr="127.0.0.1:9876")
    async with make_broker(runtime, config):
        await runtime.clock.sleep(5)
        assert names.of(*HEARTBEATS) == []


async def test_an_answer_without_a_body_is_no_right_to_lead(
    runtime: SimulatedRuntime, names: NameServerScript
) -> None:
    names.registered = False
    names.members = {0: "127.0.0.1:10911"}
    async with make_broker(runtime, acting()) as broker:
        await runtime.clock.sleep(3.4)
        assert broker.services.role.role is Role.MASTER
        assert broker.services.role.leads
        await runtime.clock.sleep(0.2)
        assert broker.services.role.role is Role.FENCED
        assert broker.services.role.takes_messages
        assert "delayed messages" not in broker.running


@pytest.mark.behaviour("HB-02")
async def test_every_name_server_gets_a_heartbeat_each_second(
    runtime: SimulatedRuntime, names: NameServerScript
) -> None:
    other = NameServerScript(runtime)
    await other.server.start("127.0.0.1", 9877)
    config = broker_config(namesrv_addr="127.0.0.1:9876;127.0.0.1:9877", enable_slave_acting_master=True)
    async with make_broker(runtime, config):
        begin = runtime.clock.monotonic()
        await runtime.clock.sleep(20.5)
        for server in (names, other):
            assert 19 <= len([at for at, _ in server.of(*HEARTBEATS) if at > begin]) <= 22
    await other.server.stop()


@pytest.mark.behaviour("HB-02")
@pytest.mark.behaviour("PO-01")
@pytest.mark.behaviour("PO-03")
async def test_an_isolated_broker_looks_and_tells_nothing(
    runtime: SimulatedRuntime, names: NameServerScript
) -> None:
    # The member refuses connections, so the broker makes all its tries before it serves.
    async with make_broker(runtime, acting(total_replicas=2)) as broker:
        await runtime.clock.sleep(1.5)
        assert broker.services.role.role is Role.PRE_ONLINE
        assert names.of(RequestCode.REGISTER_BROKER, *HEARTBEATS) == []
        assert len(names.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) >= 2
        await runtime.clock.sleep(10)
        assert broker.services.role.role is not Role.PRE_ONLINE
        assert names.of(RequestCode.REGISTER_BROKER)


@pytest.mark.behaviour("PO-01")
@pytest.mark.behaviour("PO-02")
@pytest.mark.behaviour("PO-14")
@pytest.mark.parametrize("settings", [{"total_replicas": 1}, {"total_replicas": 2, "skip_pre_online": True}])
async def test_only_replicas_with_acting_masters_start_isolated(
    runtime: SimulatedRuntime, names: NameServerScript, settings: dict[str, Any]
) -> None:
    async with make_broker(runtime, acting(**settings)) as broker:
        assert broker.services.role.role is Role.MASTER
        assert "delayed messages" in broker.running
    slave = acting(**settings, broker_role="SLAVE", broker_id=2, listen_port=10921)
    async with make_broker(runtime, slave) as broker:
        assert broker.services.role.role is Role.SLAVE
        assert "delayed messages" not in broker.running, "special services are for id 0 only"


@pytest.mark.behaviour("MB-01")
async def test_a_notice_makes_it_look_at_once(runtime: SimulatedRuntime, names: NameServerScript) -> None:
    async with make_broker(runtime, acting()) as broker:
        await runtime.clock.sleep(10.5)
        looks = len(names.of(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        client = RemotingClient(runtime)
        notice = NotifyMinBrokerIdChangeRequest(min_broker_id=1, min_broker_addr="10.0.0.9:10911")
        await client.oneway(broker.address, notice.command(), 300)
        await runtime.clock.sleep(0.05)
        assert len(names.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) > looks
        await client.close()


async def test_an_error_answer_is_no_look(runtime: SimulatedRuntime, names: NameServerScript) -> None:
    async with make_broker(runtime, acting()) as broker:
        await runtime.clock.sleep(5)
        names.refuses = True
        await runtime.clock.sleep(5)
        assert broker.services.role.role is Role.FENCED


class OtherBroker:
    """A broker with the same id at another address, which answers requests."""

    def __init__(self, runtime: SimulatedRuntime, term: int) -> None:
        self._term = term
        self.server = RemotingServer(runtime.machine("10.0.0.7"), self.answer)

    def answer(self, _connection: Any, command: Command) -> Command:
        return command.reply(ext={"orbitmqTerm": str(self._term)})


@pytest.mark.parametrize("mode", [True, False])
async def test_a_broker_whose_id_is_taken_does_not_start(
    runtime: SimulatedRuntime, names: NameServerScript, mode: bool
) -> None:
    other = OtherBroker(runtime, 0)
    await other.server.start("10.0.0.7", 10911)
    names.members = {0: "10.0.0.7:10911"}
    config = broker_config(namesrv_addr="127.0.0.1:9876", enable_slave_acting_master=mode)
    with pytest.raises(
        StartError, match=r"the broker at 10\.0\.0\.7:10911 is broker-a with brokerId 0 already"
    ):
        await make_broker(runtime, config).start()
    assert names.of(RequestCode.REGISTER_BROKER) == []
    await other.server.stop()
    # The name server shows the other address until it notices that the broker is gone.
    async with make_broker(runtime, config) as broker:
        assert broker.services.role.role is Role.MASTER


@pytest.mark.parametrize(("term", "isolated"), [(1, True), (0, False)])
async def test_of_two_masters_that_meet_the_one_with_the_lower_term_isolates_itself(
    runtime: SimulatedRuntime,
    names: NameServerScript,
    caplog: pytest.LogCaptureFixture,
    term: int,
    isolated: bool,
) -> None:
    other = OtherBroker(runtime, term)
    await other.server.start("10.0.0.7", 10911)
    names.members = {0: "127.0.0.1:10911"}
    async with make_broker(runtime, acting()) as broker:
        await runtime.clock.sleep(10)
        names.members = {0: "10.0.0.7:10911"}
        await runtime.clock.sleep(5)
        assert (broker.services.role.role is Role.PRE_ONLINE) == isolated
        said = [record for record in caplog.records if "two brokers are broker-a id 0" in record.getMessage()]
        assert len(said) == isolated
        await other.server.stop()
        names.members = {0: "127.0.0.1:10911"}
        await runtime.clock.sleep(15)
        assert broker.services.role.role is Role.MASTER


async def test_a_silent_name_server_delays_a_start_and_is_taken_out_of_the_settings(
    runtime: SimulatedRuntime, names: NameServerScript, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.network.partition(["10.0.0.66"], [runtime.network.host])
    names.members = {0: "127.0.0.1:10911"}
    config = acting(total_replicas=2)
    config.namesrv_addr = "127.0.0.1:9876;10.0.0.66:9876"
    async with make_broker(runtime, config) as broker:
        await runtime.clock.sleep(5)
        assert broker.services.role.role is Role.PRE_ONLINE
        await runtime.clock.sleep(12)
        assert broker.services.role.role is Role.FENCED, "the silent one may show another leader"
        assert "without knowing the other brokers" in caplog.text
        await runtime.clock.sleep(60)
        assert broker.services.role.role is Role.FENCED
        config.apply_live({"namesrvAddr": "127.0.0.1:9876"})
        broker.services.events.publish(SettingsChanged(frozenset({"namesrvAddr"})))
        await runtime.clock.sleep(6)
        assert broker.services.role.role is Role.MASTER
