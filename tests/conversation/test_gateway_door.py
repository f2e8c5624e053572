"""The gRPC listener: HTTP/2 on the broker's port and on its own; limits and bad input."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config
from tests.conversation.grpc_client import GrpcClient, prefixed

from orbitmq.broker.broker import Broker
from orbitmq.gateway import calls as gateway_calls
from orbitmq.gateway.attach import attach
from orbitmq.gateway.call import Call, CallError, GrpcStatus, Handler, Open, Reply
from orbitmq.gateway.door import GrpcDoor
from orbitmq.gateway.frames import CONTROLS, PREFACE
from orbitmq.gateway.framing import MAX_MESSAGE_BYTES
from orbitmq.gateway.http2 import MAX_STREAMS
from orbitmq.testing import SimulatedRuntime


@dataclass
class Script:
    """A stand-in for the broker's service that records what its calls do."""

    calls: list[Call] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False
    streams: Mapping[str, Open] = field(default_factory=dict)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "Echo": self._echo,
            "Wait": self._wait,
            "Fail": self._fail,
            "Break": self._break,
            "Big": self._big,
            "Chat": self._chat,
        }

    async def stop(self) -> None:
        self.stopped = True
        self.release.set()

    async def _echo(self, call: Call) -> None:
        self.calls.append(call)
        message = await call.read()
        assert message is not None
        await call.write(message)

    async def _wait(self, call: Call) -> None:
        self.calls.append(call)
        try:
            await self.release.wait()
            await call.write(b"released")
        except CallError as error:
            self.ends.append(error.status.name)
            raise
        self.ends.append("written")

    async def _fail(self, call: Call) -> None:
        raise CallError(GrpcStatus.FAILED_PRECONDITION, "50 % and a é")

    async def _break(self, call: Call) -> None:
        raise KeyError("a fault of the service")

    async def _big(self, call: Call) -> None:
        self.calls.append(call)
        try:
            for _ in range(8):
                await call.write(bytes(1 << 20))
        except CallError as error:
            self.ends.append(error.status.name)
            raise

    async def _chat(self, call: Call) -> None:
        self.calls.append(call)
        while (message := await call.read()) is not None:
            await call.write(message.upper())


@asynccontextmanager
async def served(runtime: SimulatedRuntime, script: Script, **settings: object) -> AsyncIterator[Broker]:
    extension = partial(attach, make_service=lambda host: script)
    async with Broker(runtime, broker_config(**settings), extensions=[extension]) as broker:
        yield broker


def client(broker: Broker, port: int | None = None, **options: object) -> GrpcClient:
    return GrpcClient(broker.runtime, "127.0.0.1", port or broker.port, **options)  # type: ignore[arg-type]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "orbitmq.gateway"]


@pytest.mark.behaviour("GW-01")
async def test_the_brokers_own_port_and_the_grpc_port_serve_the_same_calls(runtime: SimulatedRuntime) -> None:
    script = Script()
    async with served(runtime, script) as broker:
        assert broker.part(GrpcDoor).port == 8081
        for port in (broker.port, 8081):
            async with client(broker, port) as asker:
                answer = await asker.call(
                    "Echo", b"hello", headers=[("x-mq-client-id", "c-1"), ("grpc-timeout", "3S")]
                )
                assert (answer.status, answer.messages()) == (0, [b"hello"])
                assert answer.headers[":status"] == "200"
                assert answer.headers["content-type"] == "application/grpc"
                call = script.calls[-1]
                assert call.method == "Echo"
                assert call.metadata["x-mq-client-id"] == "c-1"
                assert call.timeout_ms == 3000
        async with BrokerPeer(runtime) as peer:
            await peer.create()
            await peer.sent()


@pytest.mark.behaviour("GW-01")
async def test_with_port_0_the_own_port_serves_alone(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script(), grpc_server_port=0) as broker:
        assert broker.part(GrpcDoor).port == 0
        async with client(broker) as asker:
            assert (await asker.call("Echo", b"x")).status == 0
        with pytest.raises(ConnectionRefusedError):
            await client(broker, 8081).connect()


@pytest.mark.behaviour("GW-01")
async def test_a_port_that_is_taken_costs_one_line(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await runtime.network.listen(asyncio.Protocol, "0.0.0.0", 8081)
    async with served(runtime, Script()) as broker:
        [line] = lines(caplog)
        assert "grpcServerPort 8081 cannot be used" in line
        assert broker.address in line
        async with client(broker) as asker:
            assert (await asker.call("Echo", b"x")).status == 0
    await listener.close()


@pytest.mark.behaviour("GW-02")
async def test_a_call_that_is_not_served_is_unimplemented_and_names_itself(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        answer = await asker.call("PullMessage", b"")
        assert answer.status == GrpcStatus.UNIMPLEMENTED
        assert "PullMessage" in answer.message
        answer = await asker.call("", path="/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        assert answer.status == GrpcStatus.UNIMPLEMENTED
        assert "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" in answer.message


async def test_how_calls_end(runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        answer = await asker.call("Fail", b"")
        assert (answer.status, answer.message) == (GrpcStatus.FAILED_PRECONDITION, "50 % and a é")
        answer = await asker.call("Break", b"")
        assert answer.status == GrpcStatus.INTERNAL
        assert any("Break failed" in line for line in lines(caplog))


async def test_a_stream_in_both_directions(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        stream = asker.open("Chat")
        for word in (b"one", b"two"):
            await asker.send(stream, prefixed(word))
            assert await asker.next(stream) == word.upper()
        await asker.send(stream, b"", end=True)
        await asker.answers[stream].done.wait()
        assert asker.answers[stream].status == 0


async def test_byte_by_byte_and_large_bodies(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker:
        async with client(broker, piece=1) as asker:
            assert (await asker.call("Echo", b"x" * 100)).messages() == [b"x" * 100]
        body = bytes(range(256)) * (4 << 12)
        async with client(broker) as asker:
            answers = await asyncio.gather(*(asker.call("Echo", body) for _ in range(4)))
            assert all(answer.messages() == [body] for answer in answers)


async def gone(call: Call) -> None:
    """Return when the call's client is gone."""
    happened = asyncio.Event()
    call.when_gone(happened.set)
    await happened.wait()


async def test_a_deadline_ends_the_call_and_a_reset_is_seen(runtime: SimulatedRuntime) -> None:
    script = Script()
    async with served(runtime, script) as broker, client(broker) as asker:
        answer = await asker.call("Wait", b"", headers=[("grpc-timeout", "50m")])
        assert answer.status == GrpcStatus.DEADLINE_EXCEEDED
        stream = asker.open("Wait", end=True)
        while len(script.calls) < 2:
            await asyncio.sleep(0.001)
        asker.h2.reset_stream(stream, 8)
        asker.flush()
        await gone(script.calls[1])
        stream = asker.open("Wait", end=True)
        while len(script.calls) < 3:
            await asyncio.sleep(0.001)
        asker.close()
        await gone(script.calls[2])
        script.release.set()
        while len(script.ends) < 3:
            await asyncio.sleep(0.001)
        assert script.ends == ["CANCELLED"] * 3


async def test_gzip_of_requests(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        stream = asker.open("Echo", headers=[("grpc-encoding", "gzip")])
        await asker.send(stream, prefixed(gzip.compress(b"packed"), packed=True), end=True)
        assert await asker.next(stream) == b"packed"
        stream = asker.open("Echo", headers=[("grpc-encoding", "gzip")])
        await asker.send(stream, prefixed(b"no gzip", packed=True), end=True)
        await asker.answers[stream].done.wait()
        assert asker.answers[stream].status == GrpcStatus.INVALID_ARGUMENT
        answer = await asker.call("Echo", b"x", headers=[("grpc-encoding", "snappy")])
        assert answer.status == GrpcStatus.UNIMPLEMENTED
        assert "gzip" in answer.message
        assert answer.headers["grpc-accept-encoding"] == "identity,gzip"


@pytest.mark.behaviour("GW-05")
async def test_a_client_that_reads_nothing_holds_up_nobody(runtime: SimulatedRuntime) -> None:
    script = Script()
    async with served(runtime, script) as broker, client(broker, reads=False) as sleeper:
        streams = [sleeper.open("Big", end=True) for _ in range(20)]
        await asyncio.sleep(1)
        async with client(broker) as asker:
            assert (await asker.call("Echo", b"x")).status == 0
        assert len(script.calls) == len(streams) + 1  # the further call is the echo
        sleeper.close()
        while len(script.ends) < len(streams):
            await asyncio.sleep(0.01)
        assert set(script.ends) == {"CANCELLED"}


@pytest.mark.behaviour("GW-05")
async def test_more_bytes_than_a_connection_may_hold_exhaust_the_call_that_brings_them(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_calls, "MAX_HELD_BYTES", 1 << 20)
    async with served(runtime, Script()) as broker, client(broker) as asker:
        stuck = asker.open("Echo")
        await asker.send(stuck, prefixed(bytes(900_000))[:-1])
        answer = await asker.call("Echo", bytes(300_000))
        assert answer.status == GrpcStatus.RESOURCE_EXHAUSTED
        assert (await asker.call("Echo", bytes(50_000))).status == 0
        await asker.send(stuck, b"\0", end=True)
        assert len(await asker.next(stuck)) == 900_000
        assert (await asker.call("Echo", bytes(900_000))).status == 0


@pytest.mark.behaviour("GW-05")
async def test_more_calls_than_a_connection_may_have_are_refused(runtime: SimulatedRuntime) -> None:
    script = Script()
    async with served(runtime, script) as broker, client(broker) as asker:
        await asyncio.sleep(0.01)
        assert asker.h2.remote_settings.max_concurrent_streams == MAX_STREAMS
        # The client ignores the server's limit.
        asker.h2.remote_settings.max_concurrent_streams = 5000
        asker.h2.remote_settings.acknowledge()
        streams = [asker.open("Wait", end=True) for _ in range(MAX_STREAMS)]
        answer = await asker.call("Wait", b"")
        assert answer.status == GrpcStatus.RESOURCE_EXHAUSTED
        assert str(MAX_STREAMS) in answer.message
        script.release.set()
        for stream in streams:
            await asker.answers[stream].done.wait()
            assert asker.answers[stream].status == 0


@pytest.mark.behaviour("GW-06")
@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(PREFACE[:10], id="half a preface"),
        pytest.param(PREFACE, id="no settings"),
        pytest.param(b"PRI * HTTP/1.1\r\n\r\n" + bytes(20), id="another preface"),
        pytest.param(PREFACE + struct.pack(">ii", 300, 280) + b'{"code":105,"x":1}', id="remoting inside"),
        pytest.param(PREFACE + b"\0\0\5\4\0\0\0\0\0hello", id="broken settings"),
    ],
)
async def test_garbage_costs_a_line_and_the_connection(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture, beginning: bytes
) -> None:
    async with served(runtime, Script()) as broker:
        for _ in range(50):
            visitor = client(broker)
            await visitor.connect()
            visitor.raw(beginning)
            await asyncio.wait_for(visitor.gone.wait(), 30)
        async with client(broker) as asker:
            assert (await asker.call("Echo", b"x")).status == 0
    assert 1 <= len(lines(caplog)) <= 60


@pytest.mark.behaviour("GW-06")
@pytest.mark.parametrize(
    "beginning", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", struct.pack(">ii", 300, 280) + b"{}"]
)
async def test_the_grpc_port_refuses_what_is_not_http2(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture, beginning: bytes
) -> None:
    async with served(runtime, Script()) as broker:
        for _ in range(50):
            visitor = client(broker, 8081)
            await visitor.connect()
            visitor.raw(beginning)
            await asyncio.wait_for(visitor.gone.wait(), 30)
        assert len(lines(caplog)) == 1
        assert "no HTTP/2 preface" in lines(caplog)[0]


@pytest.mark.behaviour("GW-06")
async def test_requests_that_are_no_grpc_are_answered(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        answer = await asker.call("Echo", b"x", content_type="text/html")
        assert answer.headers[":status"] == "415"
        answer = await asker.call("Echo", b"x", verb="PUT")
        assert answer.headers[":status"] == "405"
        for kind in ("application/grpc+proto", "application/grpc;x=y"):
            assert (await asker.call("Echo", b"x", content_type=kind)).status == 0
        answer = await asker.call("Echo", b"x", headers=[("grpc-timeout", "soon")])
        assert answer.status == GrpcStatus.INVALID_ARGUMENT
        assert "grpc-timeout" in answer.message


@pytest.mark.behaviour("GW-06")
async def test_messages_that_are_cut_or_too_long_are_refused(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        for data, status in (
            (struct.pack(">BI", 0, 130 << 20) + bytes(1000), GrpcStatus.RESOURCE_EXHAUSTED),
            (prefixed(b"12345")[:-1], GrpcStatus.INVALID_ARGUMENT),
            (b"\x07\0\0\0\1x", GrpcStatus.INTERNAL),
        ):
            stream = asker.open("Echo")
            await asker.send(stream, data, end=True)
            await asker.answers[stream].done.wait()
            assert asker.answers[stream].status == status
        stream = asker.open("Echo")
        await asker.send(stream, prefixed(bytes(MAX_MESSAGE_BYTES)), end=True)
        assert len(await asker.next(stream)) == MAX_MESSAGE_BYTES


@pytest.mark.behaviour("GW-04")
async def test_a_flood_costs_its_connection_only(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(runtime, Script()) as broker, client(broker) as asker:
        async with client(broker) as flood:
            flood.raw(b"\0\0\0\4\0\0\0\0\0" * (CONTROLS + 1))
            await asyncio.wait_for(flood.gone.wait(), 30)
            assert flood.goaways[-1][1] == 11
        assert (await asker.call("Echo", b"x")).status == 0
        assert [line for line in lines(caplog) if "a flood of SETTINGS frames" in line]


@pytest.mark.behaviour("GW-08")
async def test_a_clean_stop_lets_calls_end(runtime: SimulatedRuntime) -> None:
    script = Script()
    async with served(runtime, script) as broker:
        asker = client(broker)
        await asker.__aenter__()
        stream = asker.open("Wait", end=True)
        while not script.calls:
            await asyncio.sleep(0.001)
        await broker.stop()
        await asker.gone.wait()
    assert script.stopped
    assert asker.answers[stream].messages() == [b"released"]
    assert [(last, code) for last, code, _ in asker.goaways] == [(2**31 - 1, 0), (stream, 0)]


async def test_a_silent_connection_ends(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script()) as broker, client(broker) as silent, client(broker) as alive:
        for _ in range(30):
            await asyncio.sleep(10)
            alive.h2.ping(b"12345678")
            alive.flush()
        assert silent.gone.is_set()
        assert not alive.gone.is_set()


def trusting(*alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


@pytest.mark.behaviour("GW-03")
async def test_tls_on_the_same_ports_with_a_certificate_made_for_it(runtime: SimulatedRuntime) -> None:
    async with served(runtime, Script(), store_path_root_dir="/store") as broker:
        assert not runtime.files.exists("/store/tls/self-signed.pem")
        for port in (broker.port, 8081):
            for piece in (0, 1):
                async with client(broker, port, tls=trusting("h2"), piece=piece) as asker:
                    assert asker.alpn == "h2"
                    body = bytes(200_000 if not piece else 100)
                    assert (await asker.call("Echo", body)).messages() == [body]
            async with client(broker, port) as asker:
                assert (await asker.call("Echo", b"in clear")).status == 0
        kept = runtime.files.read_bytes("/store/tls/self-signed.pem")
    async with served(runtime, Script(), store_path_root_dir="/store") as broker:
        verifying = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        verifying.load_verify_locations(cadata=kept[kept.index(b"-----BEGIN CERT") :].decode())
        async with client(broker, tls=verifying) as asker:
            assert (await asker.call("Echo", b"x")).status == 0


@pytest.mark.behaviour("GW-06")
async def test_tls_with_another_protocol_or_stopped_half_way(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(runtime, Script()) as broker:
        foreign = client(broker, tls=trusting("http/1.1"))
        await foreign.connect()
        foreign.raw(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(foreign.gone.wait(), 30)
        for beginning in (b"\x16\x03\x01\x02\0", b"\x16" * 100, b"\x16\x03\x01\0\x05hello" * 20):
            visitor = client(broker)
            await visitor.connect()
            visitor.raw(beginning)
            await asyncio.wait_for(visitor.gone.wait(), 30)
        async with client(broker, tls=trusting("h2")) as asker:
            assert (await asker.call("Echo", b"x")).status == 0
    kinds = " ".join(lines(caplog))
    assert "no HTTP/2 preface" in kinds
    assert "TLS handshake failed" in kinds
    assert "TLS handshake stopped half-way" in kinds


@pytest.mark.behaviour("GW-03")
async def test_without_test_mode_and_certificate_tls_is_refused(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(runtime, Script(), tls_test_mode=False) as broker:
        visitor = client(broker)
        await visitor.connect()
        visitor.raw(b"\x16\x03\x01\x02\0")
        await asyncio.wait_for(visitor.gone.wait(), 30)
        assert "tlsCertPath" in lines(caplog)[0]
        async with client(broker) as asker:
            assert (await asker.call("Echo", b"x")).status == 0


class WithoutLibrary(ModuleType):
    """A module for which a library is missing."""

    def __getattr__(self, name: str) -> object:
        raise ModuleNotFoundError("No module named 'google'", name="google.protobuf")


@pytest.mark.behaviour("GW-07")
@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            WithoutLibrary("connection"),
            b"gRPC needs google.protobuf, which is not installed here: pip",
        ),
        # Installing the library again would not help: one compiled module is older than the others.
        (None, b"its modules cannot be loaded: import of orbitmq.gateway.connection halted"),
    ],
    ids=["not installed", "broken"],
)
async def test_where_the_library_is_not_installed_clients_are_told(
    runtime: SimulatedRuntime,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType | None,
    said: bytes,
) -> None:
    monkeypatch.setitem(sys.modules, "orbitmq.gateway.connection", module)
    async with served(runtime, Script()) as broker:

        async def told() -> None:
            async with client(broker) as asker:
                await asyncio.wait_for(asker.gone.wait(), 30)
                [(last, code, text)] = asker.goaways
                assert (last, code) == (0, 2)
                assert said in text

        await asyncio.gather(*(told() for _ in range(20)))
        # One line for the first, and one at the end of the second with the count of the others.
        assert len(lines(caplog)) <= 2
        visitor = client(broker)
        await visitor.connect()
        visitor.raw(b"\x16\x03\x01\x02\0")
        await asyncio.wait_for(visitor.gone.wait(), 30)
        assert "Exception in callback" not in caplog.text
        async with BrokerPeer(runtime) as peer:
            await peer.create()
            await peer.sent()


@pytest.mark.behaviour("LM-04")
async def test_a_proxy_tells_the_address_of_a_grpc_client(runtime: SimulatedRuntime) -> None:
    script = Script()
    async with served(runtime, script, proxy_protocol_trusted="127.0.0.0/8") as broker:
        for number, port in enumerate((broker.port, 8081)):
            for pause_s in (0, 1):
                behind = client(broker, port)
                await behind.connect()
                behind.raw(f"PROXY TCP4 192.0.2.{number} 10.0.0.1 56324 {port}\r\n".encode())
                await asyncio.sleep(pause_s)
                behind.h2.initiate_connection()
                behind.flush()
                assert (await behind.call("Echo", b"x")).status == 0
                assert script.calls[-1].peer == f"192.0.2.{number}:56324"
                behind.close()
            without = client(broker, port)
            await without.connect()
            without.raw(PREFACE)
            await asyncio.wait_for(without.gone.wait(), 30)


@pytest.mark.behaviour("LM-01")
async def test_connections_above_the_limit_are_refused(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(runtime, Script(), max_connections=2) as broker:
        async with client(broker) as first, client(broker, 8081):
            for port in (broker.port, 8081):
                third = client(broker, port)
                await third.connect()
                third.raw(PREFACE)
                await asyncio.wait_for(third.gone.wait(), 30)
            assert (await first.call("Echo", b"x")).status == 0
        await asyncio.sleep(1)
        async with client(broker) as asker:
            assert (await asker.call("Echo", b"x")).status == 0
    assert "connection refused: all 2 connections are in use (maxConnections)" in lines(caplog)[0]


# -- calls without a task ------------------------------------------------------------------------------


class Prompt:
    """A handler that needs no task: it keeps the replies until the test sends them."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.tasks = 0

    async def __call__(self, call: Call) -> None:
        self.tasks += 1
        message = await call.read()
        await call.write(b"task: " + (message or b"nothing"))

    def begin(self, call: Call, message: bytes, reply: Reply) -> bool:
        if message == b"no":
            return False
        if message == b"fail":
            raise CallError(GrpcStatus.INVALID_ARGUMENT, "such a message")
        if message == b"break":
            raise KeyError("a fault of the service")
        if message.startswith(b"now"):
            reply(message)
        else:
            self.replies.append(lambda data: reply(data))
        return True


class PromptScript(Script):
    """A service with such a handler."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = Prompt()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {**super().handlers, "Prompt": self.prompt}


async def held(script: PromptScript, count: int) -> None:
    while len(script.prompt.replies) < count:
        await asyncio.sleep(0.001)


async def test_a_call_without_a_task_is_answered_now_or_later(runtime: SimulatedRuntime) -> None:
    script = PromptScript()
    async with served(runtime, script) as broker, client(broker) as asker:
        for _ in range(3):
            answer = await asker.call("Prompt", b"now")
            assert (answer.status, answer.messages()) == (0, [b"now"])
        later = asyncio.create_task(asker.call("Prompt", b"later"))
        await held(script, 1)
        script.prompt.replies[0](b"done")
        answer = await later
        assert (answer.status, answer.messages()) == (0, [b"done"])
        script.prompt.replies[0](b"twice is nothing")
        assert (await asker.call("Prompt", b"fail")).status == GrpcStatus.INVALID_ARGUMENT
        assert (await asker.call("Prompt", b"break")).status == GrpcStatus.INTERNAL
        assert script.prompt.tasks == 0
        assert (await asker.call("Prompt", b"no")).messages() == [b"task: no"]
        assert (await asker.call("Prompt")).messages() == [b"task: nothing"]
        assert script.prompt.tasks == 2


async def test_a_message_that_is_not_the_end_of_its_request_takes_a_task(runtime: SimulatedRuntime) -> None:
    script = PromptScript()
    async with served(runtime, script) as broker, client(broker) as asker:
        stream = asker.open("Prompt")
        await asker.send(stream, prefixed(b"open"))
        assert await asker.next(stream) == b"task: open"
        asker.open("Prompt", end=True)
        stream = asker.open("Prompt", headers=[("grpc-encoding", "gzip")])
        await asker.send(stream, prefixed(gzip.compress(b"packed"), packed=True), end=True)
        assert await asker.next(stream) == b"task: packed"
        answer = await asker.call("Prompt", b"one", b"two")
        assert answer.messages() == [b"task: one"]
        for data in (prefixed(b"12345")[:-1], b"\x07\0\0\0\1x"):
            stream = asker.open("Prompt")
            await asker.send(stream, data, end=True)
            await asker.answers[stream].done.wait()
            assert asker.answers[stream].status in (GrpcStatus.INVALID_ARGUMENT, GrpcStatus.INTERNAL)


async def test_a_call_without_a_task_ends_at_its_deadline_and_with_its_client(
    runtime: SimulatedRuntime,
) -> None:
    script = PromptScript()
    async with served(runtime, script) as broker:
        async with client(broker) as asker:
            answer = await asker.call("Prompt", b"later", headers=[("grpc-timeout", "50m")])
            assert answer.status == GrpcStatus.DEADLINE_EXCEEDED
            unsent = asker.open("Prompt", headers=[("grpc-timeout", "50m")])
            await asker.answers[unsent].done.wait()
            assert asker.answers[unsent].status == GrpcStatus.DEADLINE_EXCEEDED
            stream = asker.open("Prompt")
            await asker.send(stream, prefixed(b"later"), end=True)
            await held(script, 2)
            asker.h2.reset_stream(stream, 8)
            asker.flush()
            assert (await asker.call("Echo", b"x")).status == 0
            script.prompt.replies[1](b"nobody reads this")
            assert (await asker.call("Prompt", b"now")).status == 0
            stream = asker.open("Prompt")
            await asker.send(stream, prefixed(b"later"), end=True)
            await held(script, 3)
        script.prompt.replies[2](b"nobody is there")
        async with client(broker) as asker:
            assert (await asker.call("Prompt", b"now")).status == 0


@pytest.mark.behaviour("GW-05")
async def test_calls_without_a_task_count_among_those_under_way(runtime: SimulatedRuntime) -> None:
    script = PromptScript()
    async with served(runtime, script) as broker, client(broker) as asker:
        await asyncio.sleep(0.01)
        asker.h2.remote_settings.max_concurrent_streams = 5000
        asker.h2.remote_settings.acknowledge()
        streams = [asker.open("Prompt") for _ in range(MAX_STREAMS)]
        for stream in streams[: MAX_STREAMS // 2]:
            await asker.send(stream, prefixed(b"later"), end=True)
        assert (await asker.call("Prompt", b"now")).status == GrpcStatus.RESOURCE_EXHAUSTED
        await held(script, MAX_STREAMS // 2)
        for reply in script.prompt.replies:
            reply(b"done")
        for stream in streams[MAX_STREAMS // 2 :]:
            await asker.send(stream, prefixed(b"now"), end=True)
        for stream in streams:
            await asker.answers[stream].done.wait()
            assert asker.answers[stream].status == 0
        assert (await asker.call("Prompt", b"now")).status == 0


async def test_a_long_answer_without_a_task_waits_for_the_windows(runtime: SimulatedRuntime) -> None:
    async with served(runtime, PromptScript()) as broker, client(broker) as asker:
        body = b"now" + bytes(300_000)
        answers = await asyncio.gather(*(asker.call("Prompt", body) for _ in range(5)))
        assert all(answer.messages() == [body] for answer in answers)
    async with served(runtime, PromptScript()) as broker, client(broker) as asker:
        asker.settings(INITIAL_WINDOW_SIZE=3)
        assert (await asker.call("Prompt", b"now and more")).messages() == [b"now and more"]


@pytest.mark.behaviour("GW-08")
async def test_a_clean_stop_waits_for_calls_without_a_task(runtime: SimulatedRuntime) -> None:
    script = PromptScript()
    async with served(runtime, script) as broker:
        asker = client(broker)
        await asker.__aenter__()
        unsent = asker.open("Prompt")
        stream = asker.open("Prompt")
        await asker.send(stream, prefixed(b"later"), end=True)
        await held(script, 1)
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0.1)
        script.prompt.replies[0](b"in time")
        await stopping
        await asker.gone.wait()
    assert asker.answers[stream].messages() == [b"in time"]
    assert asker.answers[unsent].status == GrpcStatus.UNAVAILABLE
