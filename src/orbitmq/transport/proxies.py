"""Takes connections through proxies, whose PROXY protocol header has the client's address.

Only addresses that the operator trusts may send the header, and they must: if a proxy could leave its header
out, a client behind it could send a forged one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.transport.entrance import client_of
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import joined
from orbitmq.wire.errors import FrameError
from orbitmq.wire.proxy_header import MAX_V2_BYTES, parsed

# How long a proxy may take to send its header, which comes before all other bytes.
HEADER_SECONDS: Final = 10.0

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Taker: TypeAlias = Callable[[asyncio.Transport, bytes], None]


def networks_of(text: str) -> tuple[Network, ...]:
    """The networks in the text of a setting, which was checked when it was read."""
    return tuple(ipaddress.ip_network(one) for one in text.split(";") if one)


class Proxies:
    """Takes new connections, and holds those of proxies until their header is complete.

    Args:
        trusted: the proxies' addresses.
        seats: counts connections whose header is not complete yet, though not by address.
        log: gets a line for each refused connection.
        then: called with the transport, which shows the client's address, and the bytes that followed the
            header. For connections of other addresses it is called at once.
    """

    def __init__(self, trusted: Iterable[Network], seats: Seats, log: LogLimiter, then: Taker) -> None:
        networks = tuple(trusted)
        self.trusts = lru_cache(maxsize=4096)(lambda host: _is_in(host, networks))
        self.seats = seats
        self.then = then
        self._log = log
        self.waiting: dict[asyncio.Transport, None] = {}

    def protocol(self) -> asyncio.BufferedProtocol:
        """The protocol of a new connection, which waits for the header if a proxy has to send it."""
        return _Header(self)

    def refuse(self, transport: asyncio.Transport, kind: str, text: str) -> None:
        """Close a connection, with a log line."""
        client = joined(*client_of(transport))
        self._log.write(logging.WARNING, kind, "disconnecting %s: %s: %s", client, kind, text)
        transport.abort()

    def close(self) -> None:
        """Close the connections that wait for their header."""
        for transport in list(self.waiting):
            transport.abort()


def _is_in(host: str, networks: tuple[Network, ...]) -> bool:
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return any((mapped or address) in network for network in networks)


class _Header(asyncio.BufferedProtocol):
    """A connection that waits for its header to be complete, if its address has to send one."""

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room = bytearray()
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        stream = cast("asyncio.Transport", transport)
        proxies = self._proxies
        host, _ = client_of(stream)
        if not proxies.trusts(host):
            proxies.then(stream, b"")
        elif why := proxies.seats.why_not(""):
            proxies.refuse(stream, "connection refused", why)
        else:
            self._transport = stream
            proxies.seats.take("")
            proxies.waiting[stream] = None
            self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> bytearray:
        self._room = bytearray(MAX_V2_BYTES)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        transport = self._transport
        if transport is None:
            return
        self._received += self._room[:nbytes]
        try:
            header = parsed(self._received)
        except FrameError as error:
            self._end()
            self._proxies.refuse(transport, "a proxy's header cannot be read", str(error))
            return
        if header is not None:
            self._end()
            client = transport if header.client is None else ProxiedTransport(transport, header.client)
            self._proxies.then(client, self._received[header.length :])

    def _too_slow(self) -> None:
        transport = self._transport
        if transport is not None:
            self._end()
            text = f"its PROXY protocol header did not come within {HEADER_SECONDS:g} s"
            self._proxies.refuse(transport, "a proxy sends no header", text)

    def _end(self) -> None:
        if self._transport is not None:
            del self._proxies.waiting[self._transport]
            self._proxies.seats.leave("")
            self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ProxiedTransport(asyncio.Transport):
    """The transport of a client behind a proxy: its peer name is the client's address."""

    def __init__(self, below: asyncio.Transport, client: tuple[str, int]) -> None:
        super().__init__()
        self._below = below
        self._client = client
        # The methods of the transport below, without a call in between: every message uses them.
        self.write = below.write  # type: ignore[method-assign]
        self.get_write_buffer_size = below.get_write_buffer_size  # type: ignore[method-assign]
        self.is_closing = below.is_closing  # type: ignore[method-assign]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._client if name == "peername" else self._below.get_extra_info(name, default)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self._below.writelines(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._below.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._below.get_protocol()

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()
