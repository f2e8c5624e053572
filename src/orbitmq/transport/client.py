"""The client's side of the remoting protocol: one shared connection per address, opened when first used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.errors import ClientStateError, ValidationError
from orbitmq.runtime.line import Line
from orbitmq.transport.address import parse_address
from orbitmq.transport.connection import Connection, close_all
from orbitmq.transport.endpoint import Endpoint, Handler, Limits
from orbitmq.transport.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TlsError,
    TooManyRequestsError,
    TransportError,
    connect_error,
)
from orbitmq.transport.identity import NOBODY, Identity, sign
from orbitmq.wire.connection import TLS_ALERT
from orbitmq.wire.frame import MAX_FRAME_BYTES

if TYPE_CHECKING:
    import ssl

    from orbitmq.runtime import Runtime
    from orbitmq.wire.command import Command
    from orbitmq.wire.signing import Signer

log = logging.getLogger("orbitmq.transport")

CONNECT_TIMEOUT_MS = 3000  # NettyClientConfig.connectTimeoutMillis
MAX_IN_FLIGHT = 65535  # NettySystemConfig.CLIENT_ASYNC_SEMAPHORE_VALUE and CLIENT_ONEWAY_SEMAPHORE_VALUE


class ClientConnection(Connection):
    """A connection to one server. ``address`` is the text by which the caller named the server."""

    __slots__ = ("_client", "address")

    def __init__(self, client: RemotingClient, endpoint: Endpoint, address: str) -> None:
        super().__init__(endpoint)
        self._client = client
        self.address = address

    @property
    def session(self) -> ssl.SSLObject | None:
        """The connection's TLS session; ``None`` if the connection has ended or does not speak TLS."""
        if self._transport is None:
            return None
        session: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return session

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed and not self._protocol.framed and not isinstance(exc, ConnectionAbortedError):
            self._why = (f": {exc}" if exc else "") + self._client.identity.hint
        super().connection_lost(exc)
        self._client.lost(self)

    def hand_over(self, first: bytes, received: bytes) -> bool:
        if first != TLS_ALERT:
            return False
        self._why = "; it asks for TLS: give tls=Tls(ca=...)"
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        return True


class SignedConnection(ClientConnection):
    """A connection that signs its requests, as the last step before encoding them."""

    __slots__ = ("_signer",)

    def __init__(self, client: RemotingClient, endpoint: Endpoint, address: str, signer: Signer) -> None:
        super().__init__(client, endpoint, address)
        self._signer = signer

    def begin(self, command: Command, deadline: float) -> asyncio.Future[Command]:
        sign(self._signer, command, self.address)
        return super().begin(command, deadline)

    def oneway(self, command: Command) -> None:
        sign(self._signer, command, self.address)
        super().oneway(command)


class RemotingClient:
    """Sends requests to any number of servers.

    Args:
        identity: the client's keys and TLS.
        handle: called with (connection, command) for requests that servers send, like a server's handler.
            Without it such requests are answered REQUEST_CODE_NOT_SUPPORTED.
        max_async: the most requests that wait for an answer at a time (AS-01).
        max_oneway: the most one-way requests that are being written at a time (AS-02).
        on_lost: called with the address when a connection ends that this client did not close.

    Attributes:
        runtime: the client's clock, network and machine.
        identity: the client's keys and TLS.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        identity: Identity = NOBODY,
        handle: Handler | None = None,
        max_async: int = MAX_IN_FLIGHT,
        max_oneway: int = MAX_IN_FLIGHT,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        self.runtime = runtime
        self.identity = identity
        self._signer = identity.signer()
        self._tls = identity.tls
        self._endpoint = Endpoint(runtime, handle, None, Limits(max_frame_bytes=max_frame_bytes))
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._connections: dict[str, ClientConnection] = {}
        self._connecting: dict[str, asyncio.Task[ClientConnection]] = {}
        self._requests = Line(max_async)
        self._oneways = Line(max_oneway)
        self._on_lost = on_lost
        self._closed = False
        # The event loop of all connections: that of use_here() or of the first request.
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request to ``address`` ("host:port") and return its answer, whatever its code.

        ``command`` gets its opaque here. The time covers connecting and all waiting.

        Raises:
            ConnectError: no connection could be made; nothing was sent.
            ConnectionLostError: the connection ended before the answer came.
            RequestTimeoutError: no answer within ``timeout_ms``.
            TooManyRequestsError: ``max_async`` requests wait already, and there is no time to wait.
            ClientStateError: an earlier request was made in another event loop.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.use_here()
        deadline = loop.time() + timeout_ms / 1000
        line = self._requests
        if not line.take():
            await _admitted(line, deadline, address)
        try:
            connection = self._connections.get(address)
            if connection is None or connection.closed or connection.write_paused:
                connection = await self._ready(address, deadline)
            future = connection.begin(command, deadline)
            # The opaque is kept: a caller that sends the command again meanwhile gives it another one.
            opaque = command.opaque
            try:
                return await future
            finally:
                connection.forget(opaque)
        finally:
            line.leave()

    async def oneway(self, address: str, command: Command, timeout_ms: int) -> None:
        """Send a request that gets no answer. Returns when the connection has taken the request.

        Raises:
            ConnectError, ConnectionLostError, RequestTimeoutError, TooManyRequestsError: nothing was sent.
            ClientStateError: an earlier request was made in another event loop.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.use_here()
        deadline = loop.time() + timeout_ms / 1000
        line = self._oneways
        if not line.take():
            await _admitted(line, deadline, address)
        try:
            connection = self._connections.get(address)
            if connection is None or connection.closed or connection.write_paused:
                connection = await self._ready(address, deadline)
            connection.oneway(command)
        finally:
            line.leave()

    async def certificate_end_ms(self, address: str, timeout_ms: int) -> int:
        """When the TLS certificate of a server expires, in milliseconds since the epoch, by a new connection.

        Raises:
            TlsError: the server's certificate is not accepted, or the server does not speak TLS.
            TransportError: the server cannot be reached.
            ValidationError: this client does not speak TLS, or the text is not an address.
        """
        if self._tls is None:
            raise ValidationError("TLS is off: give tls=Tls(ca=...)")
        from orbitmq.runtime.client_tls import valid_until_ms

        self.use_here()
        # A new connection, since an open one may be older than the server's certificate.
        connection = await self._dialled(address, min(self._connect_timeout_s, timeout_ms / 1000))
        try:
            session = connection.session
            if session is None:
                raise ConnectionLostError(f"{address} closed the connection", address)
            return valid_until_ms(session)
        finally:
            connection.abort()

    def use_here(self) -> None:
        """Bind the client to this event loop.

        Raises:
            ClientStateError: the client is bound to another event loop.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise ClientStateError(
                "this client was used in another event loop, to which its connections belong: make one "
                "in each loop (every asyncio.run() has a loop of its own)"
            )
        self._loop = loop

    def connected(self, address: str) -> bool:
        """Whether there is an open connection to this address."""
        return address in self._connections

    async def ip_of(self, address: str) -> str:
        """The IP address of a server whose host may be a name; the name itself if it cannot be resolved."""
        host, _ = parse_address(address)
        try:
            return await self.runtime.network.resolve(host)
        except OSError:
            return host

    def drop_connection(self, address: str) -> None:
        """End the connection to one address, if there is one; requests that wait for its answers fail.

        The next request opens a new connection.
        """
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.abort()

    async def close(self) -> None:
        """Close all connections; requests that wait for an answer fail with ConnectionLostError."""
        self._closed = True
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await close_all(self._connections.values())
        self._connections.clear()

    def lost(self, connection: ClientConnection) -> None:
        """Forget a connection that has ended."""
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
            if self._on_lost is not None and not self._closed:
                self._on_lost(connection.address)

    # -- opening ---------------------------------------------------------------------------------------

    async def _ready(self, address: str, deadline: float) -> ClientConnection:
        """An open connection whose peer reads: the path of requests that have to connect or to wait."""
        loop = asyncio.get_running_loop()
        while True:
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                connection = await self._opened(address, deadline - loop.time())
            if not connection.write_paused:
                return connection
            try:
                await asyncio.wait_for(connection.drain(), deadline - loop.time())
            except TimeoutError:
                raise RequestTimeoutError(f"{address} does not read; not sent in time", address) from None

    async def _opened(self, address: str, timeout_s: float) -> ClientConnection:
        if self._closed:
            raise ConnectionLostError("this client is closed", address)
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.ensure_future(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connect_ended(address, done))
        try:
            return await asyncio.wait_for(asyncio.shield(task), timeout_s)
        except TimeoutError:
            raise ConnectError(f"connecting to {address} took too long", address) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller is not None and caller.cancelling()):
                raise ConnectionLostError("this client was closed", address) from None
            raise
        except TransportError as error:
            # Every caller gets a new exception: a shared object would collect the tracebacks of all callers.
            raise type(error)(str(error), address) from error.__cause__

    def _connect_ended(self, address: str, task: asyncio.Task[ClientConnection]) -> None:
        del self._connecting[address]
        if not task.cancelled() and task.exception() is not None:
            log.debug("connect to %s failed: %s", address, task.exception())

    async def _open(self, address: str) -> ClientConnection:
        connection = await self._dialled(address, self._connect_timeout_s)
        self._connections[address] = connection
        return connection

    async def _dialled(self, address: str, timeout_s: float) -> ClientConnection:
        """A new connection, which the client does not keep yet."""
        host, port = parse_address(address)

        def factory() -> ClientConnection:
            if self._signer is None:
                return ClientConnection(self, self._endpoint, address)
            return SignedConnection(self, self._endpoint, address, self._signer)

        try:
            connection = await asyncio.wait_for(self._connected(factory, address, host, port), timeout_s)
        except TimeoutError as error:
            text = f"connecting to {address} took longer than {timeout_s:g} s"
            raise ConnectError(text, address) from error
        except OSError as error:
            raise connect_error(address, error) from error
        if connection.closed:
            raise ConnectError(f"{address} closed the connection at once{connection.why}", address)
        return connection

    async def _connected(
        self, factory: Callable[[], ClientConnection], address: str, host: str, port: int
    ) -> ClientConnection:
        network, tls = self.runtime.network, self._tls
        if tls is None:
            _, connection = await network.connect(factory, host, port)
            assert isinstance(connection, ClientConnection)
            return connection
        # Imported for the first connection with TLS: most clients and servers never need this module.
        from orbitmq.runtime.tls import ClientTlsLayer

        connection = factory()
        try:
            layer = ClientTlsLayer(tls, connection, address, host)
        except ValidationError as error:
            # A file is missing, or only one of a new certificate and its key has been written.
            raise TlsError(f"no TLS with {address}: {error}", address) from error
        transport, _ = await network.connect(lambda: layer, host, port)
        try:
            await layer.opened
        except ConnectionError as error:
            raise TlsError(str(error), address) from error.__cause__
        except asyncio.CancelledError:
            transport.abort()
            raise
        return connection


async def _admitted(line: Line, deadline: float, address: str) -> None:
    """Wait in ``line`` until ``deadline`` (time of the event loop).

    Raises:
        TooManyRequestsError: there is no time left to wait (AS-01).
        RequestTimeoutError: none of the requests in flight ended in time (AS-01).
    """
    if deadline <= asyncio.get_running_loop().time():
        raise TooManyRequestsError(f"too many requests in flight, none sent to {address}", address)
    try:
        await line.enter(deadline=deadline)
    except TimeoutError:
        text = f"too many requests in flight, waited in vain to send to {address}"
        raise RequestTimeoutError(text, address) from None
