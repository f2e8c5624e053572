"""The responses of a broker's HTTP listener, in every state of the broker, and to bad input."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.http_peer import HOST, ON, PORT, Raw, ask, get, opened
from tests.replicas import MASTER, SLAVE, same_end, send

from orbitmq.broker.broker import Broker
from orbitmq.broker.component import Component
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.monitoring import BrokerMonitoring
from orbitmq.errors import StartError
from orbitmq.monitoring.http import CONNECTION_SECONDS, MAX_CONNECTIONS, HttpListener, text
from orbitmq.store.recovery.opening import Opening
from orbitmq.testing import SimulatedLoop, SimulatedRuntime, World
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.command import Command


async def ready(runtime: SimulatedRuntime) -> Any:
    answer = await ask(runtime, get("/readyz"))
    return answer.status, answer.json()


@pytest.mark.behaviour("MX-01")
@pytest.mark.broker(**ON)
async def test_a_broker_that_serves_is_alive_and_ready(broker: Broker) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    assert broker.running[0] == "monitoring"
    alive = await ask(runtime, get("/healthz"))
    assert (alive.status, alive.body) == (200, b"ok\n")
    assert await ready(runtime) == (200, {"ready": True})


@pytest.mark.behaviour("MX-01")
async def test_without_the_key_nothing_listens(broker: Broker) -> None:
    with pytest.raises(ConnectionRefusedError):
        await opened(cast("SimulatedRuntime", broker.runtime))


@pytest.mark.behaviour("MX-01")
async def test_a_port_in_use_is_a_start_error(orbitmq_runtime: SimulatedRuntime) -> None:
    taken = await orbitmq_runtime.network.listen(Raw, HOST, PORT)
    with pytest.raises(StartError, match=r"cannot listen on 127.0.0.1:5557.*metricsPromExporterPort"):
        await Broker(orbitmq_runtime, broker_config(**ON)).start()
    await taken.close()


class Asking(Component):
    """Requests the broker's readiness while it starts and while it stops."""

    name = "asking"

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self.heard: list[Any] = []

    async def start(self) -> None:
        self.heard.append(await ready(self._runtime))

    async def stop(self) -> None:
        self.heard.append(await ready(self._runtime))


@pytest.mark.behaviour("MX-02")
async def test_a_broker_that_starts_or_stops_says_so(orbitmq_runtime: SimulatedRuntime) -> None:
    asking = Asking(orbitmq_runtime)

    def attach(_host: Host) -> Attachment:
        return Attachment(components=[asking])

    async with Broker(orbitmq_runtime, broker_config(**ON), extensions=[attach]):
        pass
    assert asking.heard == [
        (503, {"ready": False, "reasons": ["starting"]}),
        (503, {"ready": False, "reasons": ["stopping"]}),
    ]


@pytest.mark.behaviour("MX-02")
async def test_a_broker_that_recovers_says_so(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(orbitmq_runtime, broker_config(**ON))
    heard: list[Any] = []
    run = orbitmq_runtime.threads.run

    def slowly(*work: Any) -> Any:
        """Make a request before the first work in a thread, that of the store's start."""
        if heard:
            return run(*work)
        heard.append(None)

        async def later() -> Any:
            heard[0] = await ready(orbitmq_runtime)
            return await run(*work)

        return asyncio.ensure_future(later())

    monkeypatch.setattr(orbitmq_runtime.threads, "run", slowly)
    async with broker:
        assert heard == [(503, {"ready": False, "reasons": ["recovering: the store is opened"]})]


@pytest.mark.behaviour("MX-02")
async def test_a_broker_that_reads_its_log_says_how_far_it_is(
    orbitmq_runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = broker_config(**ON, mapped_file_size_commit_log=128 * 1024)
    async with Broker(orbitmq_runtime, config) as broker, BrokerPeer(orbitmq_runtime, broker.address) as peer:
        await peer.create("T", readQueueNums=1, writeQueueNums=1)
        for _ in range(8):
            await peer.sent(bytes(60_000), topic="T")
    orbitmq_runtime.files.remove_tree(f"{config.store_path_root_dir}/consumequeue")
    broker = Broker(orbitmq_runtime, config)
    heard: list[Any] = []
    note = Opening._note_read

    def noted(opening: Opening, percent: int) -> None:
        note(opening, percent)
        heard.extend(broker.part(BrokerMonitoring).readiness.reasons())

    monkeypatch.setattr(Opening, "_note_read", noted)
    async with broker:
        assert heard[0] == "recovering: 0 % of the log is read"
        assert len(set(heard)) >= 4
        assert all(re.fullmatch(r"recovering: \d+ % of the log is read", reason) for reason in heard)
        assert await ready(orbitmq_runtime) == (200, {"ready": True})


@pytest.mark.behaviour("MX-02")
@pytest.mark.orbitmq(replicas=2, settings={"metricsExporterType": "PROM"})
async def test_a_slave_to_which_no_master_sends_is_not_ready(orbitmq_world: World) -> None:
    world = orbitmq_world

    async def reasons() -> list[str]:
        status, told = await ready(cast("SimulatedRuntime", world.brokers[SLAVE].runtime))
        assert (status == 200) == told["ready"]
        return cast("list[str]", told.get("reasons", []))

    await send(world, 1)
    await world.until(lambda: same_end(world))
    master = world.brokers[MASTER].address
    assert await reasons() == []
    await world.stop_broker(MASTER)
    await world.sleep(5)
    assert await reasons() == [f"no master: nothing is copied from {master}"]
    await world.stop_broker(SLAVE)
    await world.start_broker(SLAVE)
    await world.sleep(5)
    assert await reasons() == ["no master: no name server shows one of this name"]
    await world.start_broker(MASTER)
    await world.sleep(10)
    assert await reasons() == []


@pytest.mark.behaviour("MX-02")
@pytest.mark.broker(**ON, namesrv_addr="127.0.0.1:9876")
async def test_a_broker_that_no_name_server_knows_is_not_ready(broker: Broker) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    status, told = await ready(runtime)
    assert status == 503
    assert told["reasons"] == ["not registered: no name server has taken the registration (127.0.0.1:9876)"]

    def accepts(_connection: Any, command: Command) -> Command:
        return command.reply()

    server = RemotingServer(runtime, accepts)
    await server.start(HOST, 9876)
    await asyncio.sleep(5)
    assert await ready(runtime) == (200, {"ready": True})
    await server.stop()


@pytest.mark.behaviour("MX-02")
@pytest.mark.broker(**ON)
async def test_a_broker_that_takes_no_messages_is_not_ready(broker: Broker) -> None:
    broker.services.store.refuse("the disk of /store is 91% full, the limit is 90%")
    assert await ready(cast("SimulatedRuntime", broker.runtime)) == (
        503,
        {
            "ready": False,
            "reasons": ["takes no messages: the disk of /store is 91% full, the limit is 90%"],
        },
    )


@pytest.mark.behaviour("MX-02")
@pytest.mark.broker(**ON, enable_slave_acting_master=True, total_replicas=2)
async def test_a_broker_in_pre_online_is_not_ready(broker: Broker) -> None:
    status, told = await ready(cast("SimulatedRuntime", broker.runtime))
    assert status == 503
    assert told["reasons"] == ["pre-online: it catches up with the others of its name"]


@pytest.mark.behaviour("MX-03")
@pytest.mark.broker(**ON)
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\x05hello\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (get("/healthz", "X: " + "x" * 1_000_000), 431),
        (get("/healthz", "Content-Length: 5") + b"hello", 400),
        (get("/healthz", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n", 400),
        (get("/healthz", "Content-Length: -1"), 400),
        (get("/healthz", method="POST"), 405),
        (get("/../etc/passwd"), 404),
        (get("/healthz/../readyz"), 404),
        (get("http://elsewhere/healthz"), 404),
        (get("/%68ealthz"), 404),
        (get("/healthz?x=1"), 200),
        (get("/healthz") + get("/readyz"), 200),
    ],
    ids=[
        "no version", "TLS", "no Host", "1 MB of headers", "body", "chunked body", "negative length", "POST",
        "other folder", "dots", "other host", "escaped", "query", "two requests",
    ],
)  # fmt: skip
async def test_bad_requests_are_answered_and_closed(
    broker: Broker, request_bytes: bytes, status: int
) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    assert (await ask(runtime, request_bytes)).status == status
    assert (await ask(runtime, get("/healthz"))).status == 200


@pytest.mark.behaviour("MX-03")
@pytest.mark.broker(**ON)
async def test_head_gets_no_body(broker: Broker) -> None:
    answer = await ask(cast("SimulatedRuntime", broker.runtime), get("/healthz", method="HEAD"))
    assert (answer.status, answer.body) == (200, b"")
    assert b"content-length: 3" in bytes(answer.received).lower()


@pytest.mark.behaviour("MX-03")
@pytest.mark.broker(**ON)
@pytest.mark.parametrize(
    "first", [b"", b"GET /hea", get("/healthz")[:-2]], ids=["nothing", "line", "headers"]
)
async def test_half_a_request_is_closed_in_time(broker: Broker, first: bytes) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    client = await opened(runtime)
    assert client.transport is not None
    client.transport.write(first)
    began = runtime.clock.monotonic()
    while not client.ended.done():
        # One byte a second does not extend the deadline.
        if first:
            client.transport.write(b"x")
        await asyncio.sleep(1)
        assert runtime.clock.monotonic() - began <= CONNECTION_SECONDS + 1
    assert client.status == 0


@pytest.mark.behaviour("MX-03")
@pytest.mark.broker(**ON)
async def test_500_connections_hold_up_nobody(broker: Broker) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    clients = [await opened(runtime) for _ in range(500)]
    await asyncio.sleep(1)
    assert sum(not client.ended.done() for client in clients) == MAX_CONNECTIONS
    await asyncio.sleep(CONNECTION_SECONDS)
    assert all(client.ended.done() for client in clients)
    assert (await ask(runtime, get("/healthz"))).status == 200


@pytest.mark.behaviour("MX-03")
async def test_a_page_that_fails_is_answered(orbitmq_runtime: SimulatedRuntime) -> None:
    def fails() -> Any:
        raise ValueError("broken")

    listener = HttpListener(orbitmq_runtime.network, {"/fails": fails, "/works": lambda: text(200, "yes")})
    await listener.start(HOST, PORT)
    answer = await ask(orbitmq_runtime, get("/fails"))
    assert (answer.status, b"broken" in answer.body) == (500, False)
    assert (await ask(orbitmq_runtime, get("/works"))).status == 200
    await listener.stop()


@pytest.mark.behaviour("MX-03")
@pytest.mark.broker(**ON)
async def test_a_stop_closes_open_connections(
    orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> None:
    broker = Broker(orbitmq_runtime, broker_config(**ON))
    async with broker:
        client = await opened(orbitmq_runtime)
    await asyncio.sleep(0.1)
    assert client.ended.done()
