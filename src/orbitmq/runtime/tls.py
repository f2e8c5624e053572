"""TLS of connections: the contexts of servers, and a layer between a transport and its protocol.

The layer is a filter over :class:`ssl.MemoryBIO`, not the event loop's own TLS, which takes a socket before
anything is read: a listener that serves clients with and without TLS on one port has read the first bytes
already. The layer works over every transport, also one in memory. It does not expose the socket, to which
bytes could be written without encryption.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from orbitmq.runtime.client_tls import Tls, client_context, handshake_failure
from orbitmq.runtime.tls_records import TlsRecords, buffer_of_thread
from orbitmq.runtime.turns import Turns

HANDSHAKE_SECONDS: Final = 10.0

Inner: TypeAlias = asyncio.BufferedProtocol | asyncio.Protocol
OnFailure: TypeAlias = Callable[[str, str], None]


class UnusableError(ssl.SSLError):
    """A certificate or key cannot be used; ``reason`` is a sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def server_context(
    certificate: bytes,
    key: bytes,
    protocols: Sequence[str],
    *,
    password: str = "",
    authorities: bytes = b"",
    required: bool = False,
) -> ssl.SSLContext:
    """The TLS context of a server.

    Args:
        certificate, key: PEM; the certificate may be a chain.
        protocols: for ALPN, the preferred one first.
        password: of the key.
        authorities: PEM; clients are asked for a certificate of one of them.
        required: whether a client without a certificate is refused.

    Raises:
        ssl.SSLError: certificate and key cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Forward secrecy (ECDHE): a stolen private key does not decrypt earlier connections.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    # OpenSSL makes two session tickets for each handshake by default. One is enough: a resumed session gets
    # a new one.
    context.num_tickets = 1
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if authorities:
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if b"BEGIN CERTIFICATE" not in authorities:
            raise UnusableError("there is no certificate of an authority in PEM form")
        context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
    asked = []

    def given_password() -> str:
        # An empty password is given, too: without one OpenSSL asks for it on the terminal.
        asked.append(True)
        return password

    # OpenSSL takes names of files only; these two are in memory, and gone when they are closed.
    files = [os.memfd_create("orbitmq-tls") for _ in range(2)]
    try:
        for file, content in zip(files, (certificate, key), strict=True):
            os.write(file, content)
        names = [f"/proc/self/fd/{file}" for file in files]
        context.load_cert_chain(names[0], names[1], password=given_password)
    except ssl.SSLError as error:
        if not asked:
            raise
        raise UnusableError("the key has another password than the one given, or needs one") from error
    finally:
        for file in files:
            os.close(file)
    return context


class TlsLayer(asyncio.BufferedProtocol):
    """Decrypts for ``inner``, which gets a transport when the handshake is done.

    Args:
        on_failure: called with a kind of failure and its text; the connection is gone then.
        server_host: for the client's side, the host that was connected to.
        on_end: called when the handshake ends, in whatever way.
        turns: the queue of a server's handshake steps; None: a handshake goes on as soon as bytes for it
            arrive.

    Attributes:
        error: the error of TLS that ended the connection, if there was one.
        records: the bytes of the connection.
    """

    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]  # called by position only
    buffer_updated: Callable[[int], None]  # type: ignore[assignment]

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: Inner,
        on_failure: OnFailure,
        *,
        server_host: str | None = None,
        on_end: Callable[[], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        encrypted, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(
            encrypted, to_send, server_side=server_host is None, server_hostname=server_host
        )
        self.records = TlsRecords(self, self._session, encrypted, to_send)
        # The event loop calls these for every read: the records' methods save a call in between.
        self.get_buffer = self.records.room
        self.buffer_updated = self.records.received
        self.error: ssl.SSLError | None = None
        self.set_inner(inner)
        self._on_failure = on_failure
        self._on_end = on_end
        self._turns = turns
        self._waits = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport, received: bytes) -> None:
        """Take over a transport on which the bytes ``received`` have arrived already."""
        transport.set_protocol(self)
        self._transport = transport
        self.records.begin(transport)
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, self._too_slow)
        self.records.take(received)

    # -- from the transport ------------------------------------------------------------------------------

    def eof_received(self) -> bool:
        return self._inner.eof_received() or False if self.records.open else False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end_timer()
        was_open = self.records.open
        self.records.end()
        if was_open:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self.records.open:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self.records.open:
            self._inner.resume_writing()

    # -- the handshake, and the end ----------------------------------------------------------------------

    def shake_hands(self) -> bool:
        """Continue the handshake with the received bytes. Returns whether it is complete."""
        if self._turns is None:
            return self._step()
        if not self._waits and self._transport is not None:
            self._waits = True
            # Bytes that arrive before the handshake's turn wait in the socket's buffer.
            self._transport.pause_reading()
            self._turns.wait(self._go_on)
        return False

    def _go_on(self) -> None:
        """Continue the handshake in its turn."""
        self._waits = False
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()
            if self._step():
                self.records.go_on()

    def _step(self) -> bool:
        """Take a step of the handshake. Returns whether it is done."""
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            self.records.flush()
            return False
        except ssl.SSLError as error:
            self.error = error
            self._failed("TLS handshake failed", error.reason or str(error))
            return False
        self._end_timer()
        self.records.open = True
        self.handshake_done()
        return True

    def handshake_done(self) -> None:
        """Give the inner protocol its transport."""
        self._inner.connection_made(TlsTransport(self))

    def ended(self) -> None:
        """Handle close_notify of the other side."""
        if not self._inner.eof_received():
            self.close()

    def broken(self, error: ssl.SSLError) -> None:
        """Close the connection because received bytes cannot be decrypted."""
        self.error = error
        self._failed("TLS that cannot be read", error.reason or str(error))

    def _too_slow(self) -> None:
        self._timer = None
        self._failed("TLS handshake stopped half-way", f"not done within {HANDSHAKE_SECONDS:g} s")

    def _failed(self, kind: str, text: str) -> None:
        self._end_timer()
        if self._transport is not None and not self._transport.is_closing():
            self._on_failure(kind, text)
            # The transport is closed, not aborted, so that the alert still reaches the other side.
            self.records.flush()
            self._transport.close()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    # -- for the inner protocol's transport --------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport below this layer; None when it has ended."""
        return self._transport

    def close(self) -> None:
        """Send close_notify, and close when everything is written."""
        if self._transport is None or self._transport.is_closing():
            return
        # An error means that the client's close_notify is missing, or the session is broken: this side's is
        # sent all the same.
        with contextlib.suppress(ssl.SSLError):
            self._session.unwrap()
        self.records.flush()
        self._transport.close()

    def set_inner(self, inner: Inner) -> None:
        """Give later data to another protocol."""
        self._inner = inner
        taker = _Bytes(inner) if isinstance(inner, asyncio.Protocol) else inner
        self.records.give_to(taker.get_buffer, taker.buffer_updated)

    @property
    def session(self) -> ssl.SSLObject:
        """The TLS session that the handshake has set up."""
        return self._session

    @property
    def inner(self) -> Inner:
        """The protocol that gets the decrypted data."""
        return self._inner


class _Bytes:
    """A buffer in front of a protocol that takes bytes (``data_received``)."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._buffer = buffer_of_thread("decrypted")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(self._buffer[:nbytes]))


class ClientTlsLayer(TlsLayer):
    """The client's side of a TLS connection.

    Args:
        address: the server's address, for errors.
        host: the host in it, which the certificate must be for.

    Attributes:
        opened: a future that is done with the handshake; its error is a ConnectionError with one sentence.
    """

    def __init__(self, tls: Tls, inner: Inner, address: str, host: str) -> None:
        super().__init__(client_context(tls), inner, lambda kind, text: None, server_host=host)
        self._shows_certificate = tls.cert is not None
        self._address = address
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self.begin(cast("asyncio.Transport", transport), b"")

    def handshake_done(self) -> None:
        super().handshake_done()
        if not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.error is not None or not self.opened.done():
            cause = self.error or exc or EOFError()
            text = handshake_failure(cause, self._address, shows_certificate=self._shows_certificate)
            exc = ConnectionAbortedError(text)
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionAbortedError())
        super().connection_lost(exc)


class TlsTransport(asyncio.Transport):
    """The transport of the inner protocol."""

    def __init__(self, layer: TlsLayer) -> None:
        super().__init__()
        self._layer = layer
        # The records' methods save a call in between: both are on the path of every message.
        self.write = layer.records.write  # type: ignore[method-assign]
        self.writelines = layer.records.writelines  # type: ignore[method-assign,assignment]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._layer.session
        # Bytes written to the socket itself would not be encrypted.
        if name == "socket" or self._layer.transport is None:
            return default
        return self._layer.transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return 0 if self._layer.transport is None else self._layer.transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._layer.transport is not None:
            self._layer.transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        if self._layer.transport is not None:
            self._layer.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._layer.transport is not None:
            self._layer.transport.resume_reading()

    def is_closing(self) -> bool:
        return self._layer.transport is None or self._layer.transport.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if not isinstance(protocol, (asyncio.BufferedProtocol, asyncio.Protocol)):
            raise TypeError(f"{type(protocol).__name__} takes no bytes of a stream")
        self._layer.set_inner(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._layer.inner

    def close(self) -> None:
        self._layer.close()

    def abort(self) -> None:
        if self._layer.transport is not None:
            self._layer.transport.abort()
