"""The responses of a name server's HTTP listener."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conversation.broker_peer import broker_config
from tests.conversation.http_peer import HOST, Raw, ask, get
from tests.metrics_text import families, value

from orbitmq.broker.broker import Broker
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

PORT = 5558
OF_PROCESS = {
    "orbitmq_ready",
    "orbitmq_event_loop_delay_seconds",
    "orbitmq_log_lines_dropped_total",
    "orbitmq_certificate_end_seconds",
}


def config(**changes: object) -> NameServerConfig:
    text = "".join(f"{key}={value}\n" for key, value in changes.items())
    return NameServerConfig.load(f"metricsExporterType=PROM\nkvConfigPath=/kv\n{text}")[0]


async def asked(runtime: SimulatedRuntime, path: str) -> Raw:
    return await ask(runtime, get(path), PORT)


@pytest.mark.behaviour("MX-07")
async def test_figures_of_a_name_server_with_one_broker(orbitmq_runtime: SimulatedRuntime) -> None:
    runtime = orbitmq_runtime
    name_server = "127.0.0.1:9876"
    async with (
        NameServer(runtime, config()),
        Broker(runtime, broker_config(namesrv_addr=name_server)) as broker,
    ):
        client = RemotingClient(runtime)
        for _ in range(3):
            question = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
            await client.request(name_server, question, 60_000)
        await client.close()
        answer = await asked(runtime, "/metrics")
        assert b"text/plain; version=0.0.4" in answer.received
        found = families(answer.body)
        assert value(found, "orbitmq_ready", node_type="nameserver") == 1
        assert value(found, "orbitmq_nameserver_brokers") == 1
        assert value(found, "orbitmq_nameserver_topics") == len(broker.services.topics)
        assert value(found, "orbitmq_nameserver_registrations_total") >= 1
        assert value(found, "orbitmq_nameserver_route_queries_total") == 3
        members = {"cluster": "DefaultCluster", "broker": "broker-a"}
        assert value(found, "orbitmq_nameserver_broker_members", **members) == 1
        page = (Path(__file__).resolve().parents[2] / "docs/monitoring.md").read_text()
        listed = set(re.findall(r"`(orbitmq_nameserver_\w+)`", page))
        process = {name for name in found if name.startswith("process_")}
        assert len(process) == 2
        assert listed | OF_PROCESS | process == set(found)


@pytest.mark.behaviour("MX-07")
async def test_a_name_server_is_ready_when_it_answers_route_queries(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    waiting = config(needWaitForService="true", waitSecondsForService="20")
    async with NameServer(orbitmq_runtime, waiting):
        answer = await asked(orbitmq_runtime, "/readyz")
        assert answer.status == 503
        reason = "waits for brokers to register (needWaitForService, waitSecondsForService)"
        assert json.loads(answer.body) == {"ready": False, "reasons": [reason]}
        assert (await asked(orbitmq_runtime, "/healthz")).status == 200
        await orbitmq_runtime.clock.sleep(21)
        assert (await asked(orbitmq_runtime, "/readyz")).status == 200


@pytest.mark.behaviour("MX-07")
async def test_a_port_in_use_ends_the_start_and_frees_the_other_port(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    taken = await orbitmq_runtime.network.listen(Raw, HOST, PORT)
    with pytest.raises(StartError, match=r"cannot listen on 127.0.0.1:5558.*metricsPromExporterPort"):
        await NameServer(orbitmq_runtime, config()).start()
    await taken.close()
    async with NameServer(orbitmq_runtime, config()):
        assert (await asked(orbitmq_runtime, "/healthz")).status == 200


@pytest.mark.behaviour("MX-07")
async def test_without_the_key_nothing_listens(orbitmq_runtime: SimulatedRuntime) -> None:
    async with NameServer(orbitmq_runtime, config(metricsExporterType="DISABLE")):
        with pytest.raises(ConnectionRefusedError):
            await asked(orbitmq_runtime, "/healthz")
