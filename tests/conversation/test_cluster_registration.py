"""What a broker tells the name servers, seen by one that writes everything down."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime.simulated import run, simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies import RegisterBrokerBody, registration_crc
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import UpdateAndCreateTopicRequest


class Recorder:
    """A name server that accepts everything, and when it was told."""

    def __init__(self, runtime: Any) -> None:
        self.heard: list[tuple[float, Command]] = []
        self._clock = runtime.clock
        self._server = RemotingServer(runtime, self._handle)

    async def __aenter__(self) -> Recorder:
        await self._server.start("127.0.0.1", 9876)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._server.stop()

    def registrations(self) -> list[tuple[float, Command]]:
        return [(at, command) for at, command in self.heard if command.code == RequestCode.REGISTER_BROKER]

    def _handle(self, connection: Any, command: Command) -> Command:
        self.heard.append((self._clock.monotonic(), command))
        return command.reply()


def watch(script: Any, **settings: Any) -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        async with Recorder(runtime) as recorder:
            broker = Broker(
                runtime,
                BrokerConfig(
                    namesrv_addr="127.0.0.1:9876",
                    store_path_root_dir="/b",
                    mapped_file_size_commit_log=1024 * 1024,
                    **settings,
                ),
            )
            await broker.start()
            try:
                await script(runtime, recorder, broker)
            finally:
                await broker.stop()
            assert recorder.heard[-1][1].code == RequestCode.UNREGISTER_BROKER

    run(main())


@pytest.mark.behaviour("HB-01")
def test_a_broker_registers_at_its_start_and_every_period() -> None:
    async def script(runtime: Any, recorder: Recorder, broker: Broker) -> None:
        await runtime.clock.sleep(95)
        times = [at for at, _ in recorder.registrations()]
        assert len(times) == 4
        assert all(29.9 < later - earlier < 30.2 for earlier, later in itertools.pairwise(times))

    watch(script)


@pytest.mark.behaviour("NR-01")
@pytest.mark.parametrize(("acting", "timeout"), [(False, None), (True, "10000")])
def test_only_a_group_with_acting_masters_asks_for_the_short_timeout(
    acting: bool, timeout: str | None
) -> None:
    async def script(runtime: Any, recorder: Recorder, broker: Broker) -> None:
        await runtime.clock.sleep(1)
        ext = recorder.registrations()[0][1].ext
        assert ext["enableActingMaster"] == str(acting).lower()
        assert ext.get("heartbeatTimeoutMillis") == timeout

    watch(script, enable_slave_acting_master=acting)


@pytest.mark.behaviour("HB-02")
@pytest.mark.behaviour("HB-03")
def test_in_acting_mode_a_light_heartbeat_goes_out_every_second() -> None:
    async def script(runtime: Any, recorder: Recorder, broker: Broker) -> None:
        await runtime.clock.sleep(20.5)
        beats = [command for _, command in recorder.heard if command.code == RequestCode.QUERY_DATA_VERSION]
        assert len(beats) == 20
        assert all(beat.is_oneway for beat in beats)
        assert {beat.body for beat in beats} == {broker.services.topics.version.encode()}
        assert len(recorder.registrations()) == 1

    watch(script, enable_slave_acting_master=True)


@pytest.mark.behaviour("RT-08")
def test_a_new_topic_is_told_at_once_with_a_newer_version() -> None:
    async def script(runtime: Any, recorder: Recorder, broker: Broker) -> None:
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
            body = RegisterBrokerBody.decode_registration(
                command.body, compressed=False, version=command.version
            )
            wrappers.append(body.topic_config_serialize_wrapper)
        before, after = wrappers
        assert "TopicA" not in before.topic_config_table
        assert after.topic_config_table["TopicA"].write_queue_nums == 4
        assert after.data_version.is_newer_than(before.data_version)

    watch(script)
