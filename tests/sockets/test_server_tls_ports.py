"""What no client means, as the first bytes of a connection, at every port of servers that enforce TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from tests.certificates import Authority, Made
from tests.sockets.test_server_tls import (
    LIMIT_S,
    _port,
    asked,
    authority,
    broker,
    create_topic,
    loops,
    made,
    name_server,
    settings,
)
from tests.unit.test_wire_proxy_header import of_tcp

from orbitmq import Tls
from orbitmq.errors import TransportError
from orbitmq.gateway import door
from orbitmq.runtime import tls as tls_layer
from orbitmq.transport import entrance
from orbitmq.wire.addresses import split
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame

__all__ = ["authority", "made"]
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)
BEGINNINGS = {
    "nothing": b"",
    "half a ClientHello": HALF_HELLO,
    "a ClientHello that says it has no bytes": b"\x16\x03\x01\x00\x00",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "a plain frame": encode_frame(Command(RequestCode.GET_BROKER_CONFIG)),
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a slave's first report": bytes(8),
    "a PROXY header": b"PROXY TCP4 192.0.2.7 10.0.0.1 56324 10911\r\n" + HALF_HELLO,
    "a PROXY header of version 2": of_tcp("192.0.2.7", 56324) + HALF_HELLO,
    "a PROXY header of 1 MB": b"PROXY " + b"x" * (1 << 20),
}


async def answer_to(address: str, data: bytes) -> bytes:
    """What comes back until the server ends the connection."""
    reader, writer = await asyncio.open_connection(*split(address))
    writer.write(data)
    received = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(LIMIT_S):
            while piece := await reader.read(1 << 16):
                received += piece
    writer.close()
    return received


@pytest.mark.behaviour("TL-10", "TL-14", "LM-05")
def test_every_port_closes_what_is_not_tls(
    authority: Authority,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tls_layer, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(entrance, "FIRST_SECONDS", 0.5)
    monkeypatch.setattr(door, "FIRST_SECONDS", 0.5)
    folders = iter(("one", "two"))

    async def test() -> None:
        given, tls = settings(authority, made), Tls(ca=authority.ca)
        folder = tmp_path / next(folders)
        grpc = _port()
        async with (
            name_server(folder, given) as names,
            broker(folder, names, given, grpcServerPort=str(grpc), haHousekeepingInterval="1000") as served,
        ):
            await create_topic(names, tls)
            ha = served.services.registration.ha_port
            ports = {"broker": served.address, "name server": names, "gRPC": f"127.0.0.1:{grpc}"}
            ports["HA"] = f"127.0.0.1:{ha}"
            if served.doors._vip_server is not None:
                ports["VIP"] = f"127.0.0.1:{served.port - 2}"
            cases = [(port, what) for port in ports for what in BEGINNINGS]
            said = await asyncio.gather(*(answer_to(ports[port], BEGINNINGS[what]) for port, what in cases))
            for case, received in zip(cases, said, strict=True):
                # TLS's own alert, in one or two records, says why.
                assert len(received) < 20, (case, received)
                assert received[:2] in (b"", b"\x15\x03"), (case, received)
            # Clients with TLS are served all the same.
            for address in (served.address, names):
                assert (await asked(address, tls)).remark
            context = ssl.create_default_context(cafile=authority.ca)
            context.set_alpn_protocols(["h2"])
            reader, writer = await asyncio.open_connection("127.0.0.1", grpc, ssl=context)
            writer.write(BEGINNINGS["an HTTP/2 preface"])
            assert await asyncio.wait_for(reader.read(9), LIMIT_S)
            writer.close()
            with pytest.raises(TransportError):
                await asked(f"127.0.0.1:{ha}", None)

    loops(test)
    assert "Traceback" not in caplog.text
