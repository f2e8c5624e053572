"""Name servers named by an address server or DNS, for clients and brokers; the last known list stays."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq import Message, Producer
from orbitmq.admin import Admin
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.broker.live_settings import LiveSettings
from orbitmq.client.core.name_servers import name_servers_of
from orbitmq.errors import NameServerError, ValidationError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime.seam import Listener
from orbitmq.testing import World
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.addresses import AddressServer, DnsName

URL = "http://web.example:8080/rocketmq/nsaddr"
NOBODY = "10.0.9.9:9876"


class WebServer:
    """Answers each request with ``answer``; while that is ``None``, it does not respond."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.machine = runtime.machine("10.0.8.1")
        self.requests: list[bytes] = []
        self.answer: bytes | None = None
        self._listener: Listener | None = None
        runtime.network.names["web.example"] = "10.0.8.1"

    def tells(self, body: str, status: str = "200 OK") -> None:
        self.answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    async def start(self) -> None:
        server = self

        class Conversation(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self.transport = transport
                self.request = b""

            def data_received(self, data: bytes) -> None:
                self.request += data
                if not self.request.endswith(b"\r\n\r\n"):
                    return
                server.requests.append(self.request)
                if server.answer is not None:
                    self.transport.write(server.answer)
                    self.transport.close()

        self._listener = await self.machine.network.listen(Conversation, "10.0.8.1", 8080)

    async def stop(self) -> None:
        assert self._listener is not None
        await self._listener.close()


@pytest.fixture
def web(orbitmq_world: World) -> WebServer:
    return WebServer(orbitmq_world.runtime)


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


# -- clients -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("NF-02")
async def test_a_client_asks_an_address_server(orbitmq_world: World, web: WebServer) -> None:
    await web.start()
    web.tells(f"  {orbitmq_world.name_server}\r\nwhat stands behind is no address\n")
    async with Producer("pg", name_servers=URL, runtime=orbitmq_world.runtime) as producer:
        await producer.send(Message("far", b"x"))
    assert web.requests == [b"GET /rocketmq/nsaddr HTTP/1.0\r\nHost: web.example:8080\r\nAccept: */*\r\n\r\n"]


@pytest.mark.behaviour("NF-03")
async def test_a_client_keeps_the_list_while_the_address_server_is_away(
    orbitmq_world: World, web: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    await web.start()
    web.tells(orbitmq_world.name_server)
    async with Admin(URL, runtime=orbitmq_world.runtime) as admin:
        await admin.brokers.list()
        await web.stop()
        for _ in range(40):
            await orbitmq_world.sleep(30)
            await admin.brokers.list()
        told = [line for line in lines(caplog) if "web.example" in line]
        assert len(told) == 1
        assert f"those known stay: {orbitmq_world.name_server}" in told[0]
        asked = len(web.requests)
        await web.start()
        await orbitmq_world.sleep(130)
        await admin.brokers.list()
        await orbitmq_world.sleep(1)
        assert len(web.requests) == asked + 1
        await web.stop()


@pytest.mark.behaviour("NF-04")
async def test_a_client_asks_again_at_once_when_no_known_name_server_answers(
    orbitmq_world: World, web: WebServer
) -> None:
    await web.start()
    web.tells(NOBODY)
    async with Admin(URL, runtime=orbitmq_world.runtime) as admin:
        with pytest.raises(NameServerError, match=NOBODY):
            await admin.brokers.list()
        web.tells(orbitmq_world.name_server)
        await orbitmq_world.sleep(11)
        assert await admin.brokers.list()


@pytest.mark.behaviour("NF-02")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\nnone", "status 404"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "the answer is empty"),
        (b"HTTP/1.1 200 OK\r\n\r\n \n ; \n", "the answer is empty"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "'<html>' is not host:port"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe:1", "not UTF-8"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\na:1", "in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a:1;" * 20_000, "more than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b";".join(b"a:%d" % n for n in range(1, 102)), "101 addresses"),
        (b"220 mail.example ESMTP\r\n", "not HTTP"),
        (b"", "not HTTP"),
        (None, "does not answer within 3 s"),
    ],
)
async def test_an_answer_that_names_no_name_server_is_said_and_the_next_may(
    orbitmq_world: World, web: WebServer, answer: bytes | None, why: str
) -> None:
    await web.start()
    web.answer = answer
    async with Admin(URL, runtime=orbitmq_world.runtime, timeout=5) as admin:
        with pytest.raises(NameServerError, match=why) as refused:
            await admin.brokers.list()
        assert URL in str(refused.value)
        web.tells(orbitmq_world.name_server)
        assert await admin.brokers.list()


@pytest.mark.behaviour("NF-05")
async def test_a_client_looks_a_name_up_and_follows_its_addresses(
    orbitmq_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    lookups = orbitmq_world.runtime.network.lookups
    async with Admin("dns://ns.example:9876", runtime=orbitmq_world.runtime) as admin:
        with pytest.raises(NameServerError, match=r"DNS knows no address of ns\.example"):
            await admin.brokers.list()
        lookups["ns.example"] = []
        with pytest.raises(NameServerError, match="the answer is empty"):
            await admin.brokers.list()
        lookups["ns.example"] = ["10.0.9.9", "10.0.0.1"]
        assert await admin.brokers.list()
        del lookups["ns.example"]
        for _ in range(20):
            await orbitmq_world.sleep(60)
            assert await admin.brokers.list()
    assert len([line for line in lines(caplog) if "ns.example" in line]) == 2


class Environment:
    """A machine whose environment has one variable."""

    def __init__(self, text: str) -> None:
        self.text = text

    def variable(self, name: str) -> str:
        return self.text if name == "NAMESRV_ADDR" else ""


@pytest.mark.behaviour("NF-01")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("127.0.0.1:9876",)),
        ("  ", ("127.0.0.1:9876",)),
        (" ; ,;", ("127.0.0.1:9876",)),
        (" a:1 ; b:2;; a:1", ("a:1", "b:2")),
        (f" {URL} ", AddressServer("web.example", 8080, "/rocketmq/nsaddr")),
        ("http://web/ns?group=a", AddressServer("web", 80, "/ns?group=a")),
        ("http://[::1]/ns", AddressServer("::1", 80, "/ns")),
        ("dns://NS.example:9876", DnsName("ns.example", 9876)),
    ],
)
def test_the_environment_names_the_name_servers(text: str, expected: object) -> None:
    assert name_servers_of(None, Environment(text)) == expected  # type: ignore[arg-type]
    assert name_servers_of("c:3", Environment(text)) == ("c:3",)  # type: ignore[arg-type]


@pytest.mark.behaviour("NF-01")
@pytest.mark.parametrize(
    "text", ["a", "a:1;http://web/ns", "http://web", "dns://a", "dns://a:1;b:2", "http://web/a b"]
)
def test_a_variable_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValidationError, match="NAMESRV_ADDR: name server address '"):
        name_servers_of(None, Environment(text))  # type: ignore[arg-type]


# -- brokers -------------------------------------------------------------------------------------------


async def name_server(runtime: SimulatedRuntime, host: str) -> NameServer:
    server = NameServer(runtime.machine(host), NameServerConfig(bind_address=host, listen_port=9876))
    await server.start()
    return server


def a_broker(runtime: SimulatedRuntime, text: str) -> Broker:
    shared = "brokerIP1=10.0.7.1\nbindAddress=10.0.7.1\nmappedFileSizeCommitLog=1048576\n"
    return Broker(runtime.machine("10.0.7.1"), BrokerConfig.load(shared + text)[0])


def knows(server: NameServer) -> bool:
    return bool(server.routes.cluster_info().broker_addr_table)


@pytest.mark.behaviour("NF-06")
async def test_a_broker_looks_a_name_up_and_follows_its_addresses(
    orbitmq_runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    lookups = orbitmq_runtime.network.lookups
    first, second = [await name_server(orbitmq_runtime, host) for host in ("10.0.6.1", "10.0.6.2")]
    sleep = orbitmq_runtime.clock.sleep
    text = "namesrvAddr=ns.example:9876\nfetchNameSrvAddrByDnsLookup=true\nupdateNameServerAddrPeriod=30000\n"
    async with a_broker(orbitmq_runtime, text) as broker:
        assert broker.config.name_servers == []
        lookups["ns.example"] = ["10.0.6.1"]
        await sleep(11)
        assert knows(first)
        assert not knows(second)
        lookups["ns.example"] = ["10.0.6.2", "10.0.6.1"]
        await sleep(31)
        assert knows(second)
        lookups["ns.example"] = []
        await sleep(120)
        assert broker.config.name_servers == ["10.0.6.1:9876", "10.0.6.2:9876"]
        assert knows(first)
        assert knows(second)
        told = [line for line in lines(caplog) if "ns.example" in line]
        assert len(told) == 2, told
    await first.stop()
    await second.stop()


@pytest.mark.behaviour("NF-07")
async def test_a_broker_asks_an_address_server(
    orbitmq_runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    web = WebServer(orbitmq_runtime)
    await web.start()
    web.tells("10.0.6.1:9876")
    server = await name_server(orbitmq_runtime, "10.0.6.1")
    text = "fetchNamesrvAddrByAddressServer=true\nrmqAddressServerDomain=web.example\n"
    async with a_broker(orbitmq_runtime, text) as broker:
        await orbitmq_runtime.clock.sleep(1)
        assert knows(server)
        assert web.requests[0].startswith(b"GET /rocketmq/nsaddr HTTP/1.0\r\n")
        await web.stop()
        await orbitmq_runtime.clock.sleep(120)
        assert broker.config.name_servers == ["10.0.6.1:9876"]
        assert knows(server)
        assert len([line for line in lines(caplog) if "web.example" in line]) == 1
    await server.stop()


@pytest.mark.behaviour("NF-06")
async def test_a_running_broker_takes_another_name(orbitmq_runtime: SimulatedRuntime) -> None:
    lookups = orbitmq_runtime.network.lookups
    first, second = [await name_server(orbitmq_runtime, host) for host in ("10.0.6.1", "10.0.6.2")]
    lookups["one.example"], lookups["two.example"] = ["10.0.6.1"], ["10.0.6.2"]
    text = "namesrvAddr=one.example:9876\nfetchNameSrvAddrByDnsLookup=true\n"
    async with a_broker(orbitmq_runtime, text) as broker:
        await orbitmq_runtime.clock.sleep(1)
        assert knows(first)
        settings = LiveSettings(broker.config, broker.runtime, broker.services.events)
        await settings.change({"namesrvAddr": "two.example:9876"})
        assert broker.config.name_servers == ["10.0.6.1:9876"]
        await orbitmq_runtime.clock.sleep(1)
        assert broker.config.name_servers == ["10.0.6.2:9876"]
        assert knows(second)
    await first.stop()
    await second.stop()


@pytest.mark.behaviour("NF-06")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("namesrvAddr=a:1;b:2\nfetchNameSrvAddrByDnsLookup=true", "namesrvAddr to be one name"),
        ("fetchNameSrvAddrByDnsLookup=true", "namesrvAddr to be one name"),
        ("fetchNamesrvAddrByAddressServer=true", "rmqAddressServerDomain"),
        ("rmqAddressServerDomain=web:x", "host:port"),
        ("rmqAddressServerSubGroup=a b", "last part"),
        ("fetchNamesrvAddrInterval=0", "a whole number from 1000"),
    ],
)
def test_a_search_that_does_not_say_where_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        BrokerConfig.load(text)


@pytest.mark.behaviour("NF-07")
def test_the_address_server_of_a_broker() -> None:
    def source(text: str) -> object:
        return BrokerConfig.load(f"fetchNamesrvAddrByAddressServer=true\n{text}")[0].name_server_source

    assert str(source("rmqAddressServerDomain=web")) == "http://web:8080/rocketmq/nsaddr"
    group = "rmqAddressServerDomain=web:90\nrmqAddressServerSubGroup=test"
    assert str(source(group)) == "http://web:90/rocketmq/test"
    assert source("rmqAddressServerDomain=web\nnamesrvAddr=a:1") == ("a:1",)
    assert str(BrokerConfig.load(f"namesrvAddr={URL}")[0].name_server_source) == URL
