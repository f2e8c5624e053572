"""One HTTP/2 connection of a gRPC client on the event loop: its reading, writing, timers and end.

Its streams are calls (:mod:`orbitmq.gateway.calls`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from orbitmq.gateway.calls import Calls
from orbitmq.gateway.events import Event
from orbitmq.gateway.frames import ENHANCE_YOUR_CALM, Http2Error
from orbitmq.gateway.http2 import MAX_STREAMS, Http2Connection
from orbitmq.gateway.sends import host_of
from orbitmq.gateway.shared import MAX_CALLS, Shared
from orbitmq.runtime.client_names import NO_NAME, name_in
from orbitmq.store.log.append import pack_host
from orbitmq.transport.entrance import client_of
from orbitmq.wire.addresses import joined

HIGH_WATER_BYTES: Final = 256 * 1024
# The time in which a client has to send its preface and its settings.
PREFACE_SECONDS: Final = 10.0
# A connection that is silent for this time, as in Apache's proxy, is closed. Heartbeats come every 10 s.
IDLE_SECONDS: Final = 120.0


class GrpcConnection(asyncio.BufferedProtocol):
    """The connection of one gRPC client.

    Attributes:
        peer: the address of the client, host:port.
        certificate: the user that the client's certificate names.
        paused: whether the transport's write buffer is full, as the client reads too slowly.
        active: whether bytes came since the last look of :meth:`close_idle`.
        gone: done when the transport has ended.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._engine = Http2Connection()
        self._transport: asyncio.Transport | None = None
        self._calls = Calls(self, self._engine, shared)
        self._born = self._address = b""
        self.paused = False
        self._rest: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._closing = False
        self._preface_timer: asyncio.TimerHandle | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.active = True
        self.peer = self._client = ""
        self.certificate = NO_NAME

    # -- bytes -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.peer = _address(transport.get_extra_info("peername"))
        self.certificate = name_in(transport.get_extra_info("ssl_object"), self._shared.names)
        if self._shared.stopping:
            self.abort()
        self._shared.connections[self] = None
        self._client, _ = client_of(transport)
        self._born, self._address = pack_host(host_of(self.peer)), self.peer.encode()
        self._shared.seats.take(self._client)
        self._preface_timer = self._loop.call_later(PREFACE_SECONDS, self._check_settled)
        if self._shared.quotas is not None:
            self.rest(self._shared.quotas.pause_of(self._client))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.receiving

    def buffer_updated(self, nbytes: int) -> None:
        self.received(bytes(self._shared.receiving[:nbytes]))

    def received(self, data: bytes) -> None:
        """Process received bytes."""
        if self._closing:
            return
        self.active = True
        try:
            for event in self._events(data):
                self._calls.on(event)
        except Http2Error as error:
            flood = error.code == ENHANCE_YOUR_CALM
            self._refuse("a flood of frames" if flood else "damaged HTTP/2", error.kind, str(error))
            return
        self.flush()
        self._close_if_left()

    def _events(self, data: bytes) -> list[Event]:
        """The events in received bytes. A plain call makes no event: its work is done here."""
        shared = self._shared
        limited = shared.quotas is not None and shared.quotas.limits(self._client)
        if shared.plain is None or shared.stopping or limited:
            self._engine.plain = None
            return self._engine.receive(data, self._loop.time())
        room = min(MAX_STREAMS - self._calls.running, MAX_CALLS - shared.running)
        self._engine.plain = shared.plain.open(self._born, self._address, room)
        try:
            return self._engine.receive(data, self._loop.time())
        finally:
            for calls in shared.plain.close(self._calls.answer_plain):
                self._calls.wait_for_plain(calls)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        if self in self._shared.connections:
            del self._shared.connections[self]
            self._shared.seats.leave(self._client)
        self._calls.lose()
        for timer in (self._preface_timer, self._rest):
            if timer is not None:
                timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    def pause_writing(self) -> None:
        self.paused = True
        # The client reads nothing, so answers to further requests would pile up.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.paused = False
        self._read_on()
        self._calls.push_all()

    def rest(self, seconds: float) -> None:
        """Read nothing for this time, or until a later end set before; received calls go on."""
        if not seconds or self._transport is None or self._transport.is_closing():
            return
        until = self._loop.time() + seconds
        if self._rest is not None:
            if self._rest.when() >= until:
                return
            self._rest.cancel()
        self._transport.pause_reading()
        self._rest = self._loop.call_at(until, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self.active = True  # nothing was read meanwhile, so the client does not count as idle
        self._read_on()

    def _read_on(self) -> None:
        """Read from the client again, unless writing is paused or the connection rests."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self.paused and self._rest is None:
            transport.resume_reading()

    def flush_soon(self) -> None:
        """Write the engine's frames once at the end of this turn of the event loop."""
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all frames that the engine holds."""
        self._flush_planned = False
        data = self._engine.take()
        if data and self._transport is not None:
            self._transport.write(data)

    # -- end ---------------------------------------------------------------------------------------------

    def note(self, kind: str, text: str, *args: object) -> None:
        """Write a log line, at most one a second of each kind."""
        self._shared.log.write(logging.WARNING, kind, text, *args)

    def _refuse(self, kind: str, cause: str, text: str) -> None:
        """Close the connection, with a log line. Causes share the line's kind, which limits their rate."""
        self.note(kind, "disconnecting the gRPC client %s: %s: %s", self.peer, cause, text)
        self._close()

    def _check_settled(self) -> None:
        self._preface_timer = None
        if self._rest is not None:
            self._preface_timer = self._loop.call_later(PREFACE_SECONDS, self._check_settled)
        elif not self._engine.settled and not self._closing:
            text = f"no whole HTTP/2 preface within {PREFACE_SECONDS:g} s"
            self._refuse("HTTP/2 stopped half-way", "HTTP/2 stopped half-way", text)

    def _close_if_left(self) -> None:
        if self._engine.leaving and not (self._calls.any or self._closing):
            self._close()

    def idle(self) -> None:
        """Close the connection after its last call, if the client has sent a GOAWAY."""
        if self._engine.leaving:
            self._loop.call_soon(self._close_if_left)

    def refuse_waiting(self) -> None:
        """End the calls that wait for a message of their client."""
        self._calls.refuse_waiting()

    def close_idle(self) -> None:
        """Close the connection if no bytes came since the last call of this method."""
        if not self.active:
            self.close()
        self.active = False

    def announce_end(self) -> None:
        """Send the first GOAWAY, after which clients make new calls elsewhere; calls under way go on."""
        if not self._closing:
            self._engine.announce_end()
            self.flush()

    def close(self) -> None:
        """Send the last GOAWAY, and close the connection when all bytes are written."""
        if not self._closing:
            self._engine.close()
            self._close()

    def _close(self) -> None:
        self.flush()
        self._closing = True
        self._calls.lose()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


def _address(name: tuple[str, int] | None) -> str:
    return joined(str(name[0]).partition("%")[0], int(name[1])) if name else ""
