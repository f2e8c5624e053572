"""The registrations of a broker, recorded by a scripted name server."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.route import RegisterBrokerBody, registration_crc
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.topic import UpdateAndCreateTopicRequest


class Recorder:
    """A name server that accepts all requests and records their times."""

    def __init__(self, runtime: Any, port: int = 9876) -> None:
        self._port = port
        self.heard: list[tuple[float, Command]] = []
        self._clock = runtime.clock
        self._server = RemotingServer(runtime, self._handle)

    async def __aenter__(self) -> Recorder:
        await self._server.start("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._server.stop()

    def registrations(self) -> list[tuple[float, Command]]:
        return [(at, command) for at, command in self.heard if command.code == RequestCode.REGISTER_BROKER]

    def _handle(self, connection: Any, command: Command) -> Command:
        self.heard.append((self._clock.monotonic(), command))
        return command.reply()


@pytest.fixture
def recorder(orbitmq_loop: SimulatedLoop, runtime: SimulatedRuntime) -> Recorder:
    return orbitmq_loop.enter(Recorder(runtime))


@pytest.fixture
def broker(
    recorder: Recorder, orbitmq_loop: SimulatedLoop, runtime: SimulatedRuntime, request: pytest.FixtureRequest
) -> Broker:
    """A broker that registers with ``recorder``, with the settings in ``pytest.mark.broker``."""
    mark = request.node.get_closest_marker("broker")
    settings = mark.kwargs if mark else {}
    return orbitmq_loop.enter(Broker(runtime, broker_config(namesrv_addr="127.0.0.1:9876", **settings)))


@pytest.mark.behaviour("HB-01")
async def test_a_broker_registers_at_its_start_and_every_period(
    runtime: SimulatedRuntime, recorder: Recorder, broker: Broker
) -> None:
    await runtime.clock.sleep(95)
    times = [at for at, _ in recorder.registrations()]
    assert len(times) == 4
    assert all(29.9 < later - earlier < 30.2 for earlier, later in itertools.pairwise(times))
    await broker.stop()
    assert recorder.heard[-1][1].code == RequestCode.UNREGISTER_BROKER


@pytest.mark.behaviour("HB-01")
def test_the_period_of_registrations_is_10_to_60_s() -> None:
    for period_ms in (10_000, 60_000):
        config, _ = BrokerConfig.load(f"registerNameServerPeriod={period_ms}")
        assert config.register_period_ms == period_ms
    for period_ms in (9_999, 60_001):
        with pytest.raises(ConfigError, match=r"registerNameServerPeriod.*10000 to 60000"):
            BrokerConfig.load(f"registerNameServerPeriod={period_ms}")


async def test_name_servers_may_change_while_the_broker_runs(
    runtime: SimulatedRuntime, recorder: Recorder, broker: Broker
) -> None:
    await runtime.clock.sleep(1)
    client = RemotingClient(runtime)

    async def change(servers: str) -> None:
        command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"namesrvAddr={servers}".encode())
        assert (await client.request(broker.address, command, 5000)).code == ResponseCode.SUCCESS

    before = len(recorder.registrations())
    async with Recorder(runtime, 9877) as other:
        await change("127.0.0.1:9877")
        await runtime.clock.sleep(65)
        assert len(other.registrations()) == 3
        assert len(recorder.registrations()) == before
        await change("127.0.0.1:9877;127.0.0.1:9876")
        await runtime.clock.sleep(1)
        assert len(recorder.registrations()) == before + 1
    await client.close()


@pytest.mark.behaviour("NR-01")
@pytest.mark.parametrize(
    ("acting", "timeout"),
    [
        ("false", None),
        pytest.param("true", "4000", marks=pytest.mark.broker(enable_slave_acting_master=True)),
    ],
)
async def test_only_a_group_with_acting_masters_asks_for_the_short_timeout(
    runtime: SimulatedRuntime, recorder: Recorder, broker: Broker, acting: str, timeout: str | None
) -> None:
    await runtime.clock.sleep(1)
    ext = recorder.registrations()[0][1].ext
    assert ext["enableActingMaster"] == acting
    assert ext.get("heartbeatTimeoutMillis") == timeout


@pytest.mark.behaviour("RT-08")
async def test_a_new_topic_is_told_at_once_with_a_newer_version(
    runtime: SimulatedRuntime, recorder: Recorder, broker: Broker
) -> None:
    await runtime.clock.sleep(1)
    client = RemotingClient(runtime)
    header = UpdateAndCreateTopicRequest(
        topic="TopicA",
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    answer = await client.request(broker.address, header.command(), 3000)
    assert answer.code == ResponseCode.SUCCESS
    await runtime.clock.sleep(0.5)
    await client.close()
    first, last = recorder.registrations()[0][1], recorder.registrations()[-1][1]
    wrappers = []
    for command in (first, last):
        assert int(command.ext["bodyCrc32"]) == registration_crc(command.body)
        body = RegisterBrokerBody.decode_registration(command.body, compressed=False, version=command.version)
        wrappers.append(body.topic_config_serialize_wrapper)
    before, after = wrappers
    assert "TopicA" not in before.topic_config_table
    assert after.topic_config_table["TopicA"].write_queue_nums == 4
    assert after.data_version.is_newer_than(before.data_version)
