"""Access to health and metrics when the operator requires a token."""

from __future__ import annotations

import logging
from typing import cast

import pytest
from tests.conversation.broker_peer import broker_config
from tests.conversation.http_peer import ON, ask, get

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.testing import SimulatedRuntime

FILE = "/etc/metrics.token"
TOKEN = "0123456789abcdef-token"
PATHS = ("/readyz", "/metrics", "/nowhere")


@pytest.mark.behaviour("MX-12")
async def test_pages_need_the_token(
    orbitmq_runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = orbitmq_runtime
    runtime.files.write_atomic(FILE, f"{TOKEN}\n".encode())
    async with Broker(runtime, broker_config(**ON, metrics_token_file=FILE)):
        wrong: tuple[tuple[str, ...], ...] = (
            (),
            ("Authorization: Bearer",),
            (f"Authorization: Bearer {TOKEN}x",),
            (f"Authorization: Bearer {TOKEN[:-1]}",),
            (f"Authorization: Basic {TOKEN}",),
            (f"Authorization: {TOKEN}",),
            (f"Authorization: Bearer {TOKEN}", "Authorization: Bearer other"),
        )
        with caplog.at_level(logging.WARNING, "orbitmq.monitoring"):
            for headers in wrong:
                for path in PATHS:
                    answer = await ask(runtime, get(path, *headers))
                    assert answer.status == 401, (path, headers)
                    assert b"www-authenticate: bearer" in bytes(answer.received).lower()
                    assert b"/metrics" not in answer.body
                assert (await ask(runtime, get("/healthz", *headers))).status == 200
        assert len([line for line in caplog.messages if "has no valid token" in line]) < len(wrong) * len(
            PATHS
        )
        assert TOKEN[:-1] not in caplog.text
        for right in (f"Authorization: Bearer {TOKEN}", f"authorization: bearer  {TOKEN} "):
            statuses = [(await ask(runtime, get(path, right))).status for path in PATHS]
            assert statuses == [200, 200, 404]


@pytest.mark.behaviour("MX-12")
@pytest.mark.parametrize(
    "content", [None, b"", b"short", b"two words of a length", b"0123456789abcdef\nmore"]
)
async def test_a_file_without_a_token_is_a_start_error(
    orbitmq_runtime: SimulatedRuntime, content: bytes | None
) -> None:
    if content is not None:
        orbitmq_runtime.files.write_atomic(FILE, content)
    with pytest.raises(StartError, match=f"metricsTokenFile={FILE}") as refused:
        await Broker(orbitmq_runtime, broker_config(**ON, metrics_token_file=FILE)).start()
    assert not content or content.decode() not in str(refused.value)


@pytest.mark.behaviour("MX-12")
async def test_a_name_server_asks_for_the_token_too(orbitmq_runtime: SimulatedRuntime) -> None:
    orbitmq_runtime.files.write_atomic(FILE, TOKEN.encode())
    text = f"metricsExporterType=PROM\nkvConfigPath=/kv\nmetricsTokenFile={FILE}\n"
    config, _ = NameServerConfig.load(text)
    async with NameServer(orbitmq_runtime, config):
        assert (await ask(orbitmq_runtime, get("/readyz"), 5558)).status == 401
        right = get("/readyz", f"Authorization: Bearer {TOKEN}")
        assert (await ask(orbitmq_runtime, right, 5558)).status == 200


@pytest.mark.behaviour("MX-12")
@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ("metricsExporterType=PROM", False),
        ("metricsExporterType=PROM\nmetricsPromExporterHost=localhost", False),
        ("metricsExporterType=PROM\nmetricsPromExporterHost=::1", False),
        ("metricsExporterType=PROM\nmetricsPromExporterHost=0.0.0.0", True),
        ("metricsExporterType=PROM\nmetricsPromExporterHost=10.0.0.5", True),
        ("metricsExporterType=PROM\nmetricsPromExporterHost=10.0.0.5\nmetricsTokenFile=/t", False),
        ("metricsPromExporterHost=10.0.0.5", False),
    ],
)
def test_a_port_for_other_machines_without_a_token_is_warned_of(settings: str, warns: bool) -> None:
    for kind in (BrokerConfig, NameServerConfig):
        _, warnings = cast("type[BrokerConfig]", kind).load(settings)
        assert any("metricsTokenFile" in warning for warning in warnings) is warns
