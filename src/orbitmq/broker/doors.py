"""The ports of a broker. They are taken before anything else: the port is a part of every stored record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from orbitmq.auth.changes import CHANGES
from orbitmq.auth.gate import AuthGate
from orbitmq.auth.protected import DANGEROUS, protected_mode
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import Durability
from orbitmq.broker.events import ConnectionClosed, Events
from orbitmq.broker.fast_path.driver import FastPath
from orbitmq.broker.handlers.base import Answer
from orbitmq.broker.handlers.router import Router
from orbitmq.broker.quotas.meter import Meter
from orbitmq.broker.rpc_times import RpcTimes
from orbitmq.broker.slow_requests import SlowRequests
from orbitmq.runtime.listening import cannot_listen
from orbitmq.runtime.seam import Runtime
from orbitmq.settings.access import OBSERVE
from orbitmq.store import MessageStore, StoreError
from orbitmq.transport.audit import Audit
from orbitmq.transport.guard import Guard
from orbitmq.transport.memory_return import MemoryReturn
from orbitmq.transport.proxies import networks_of
from orbitmq.transport.seats import Seats
from orbitmq.transport.server import RemotingServer, ServerConnection, Taker
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

VIP_PORT_DISTANCE = 2
DRAIN_LIMIT_SECONDS = 2.0

# The mask that keeps all of a pull's system flags.
ALL_FLAGS: Final = -1


class Doors:
    """Where requests come in: to the fast path first, then to the router.

    Attributes:
        server: the broker's port, once it listens.
        takers: doors of extensions, each for connections that begin with its bytes instead of a frame.
        tls: the TLS of all ports of the broker.
        guard: checks each request before the router. The fast path takes only requests of a kind that the
            guard has let pass before.
        meter: counts what clients send and receive, while there are quotas; else ``None``. All requests of a
            metered connection go to the router.
        times: how long requests take; ``None`` without metrics.
        seats: counts the connections of all ports for clients, and limits them.
        fast_path, router: ``None`` while the broker starts or stops; every request is then refused at once
            with SERVICE_NOT_AVAILABLE, which sends producers to another broker.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._on_closed: Callable[[ServerConnection], None] | None = None
        self._vip_server: RemotingServer | None = None
        self._slow = SlowRequests(runtime.clock)
        self.takers: dict[bytes, Taker] = {}
        self.tls = config.tls.server(
            runtime, (config.broker_ip1, runtime.host.name, "localhost", "127.0.0.1")
        )
        protected = protected_mode(
            config.protected_mode, config.admin_addresses, config.proxy_protocol_trusted
        )
        self.guard = Guard(None, protected, log, runtime.clock)
        self.meter: Meter | None = None
        self.times = RpcTimes(runtime.clock) if config.metrics_exporter != "DISABLE" else None
        self.seats = Seats(
            config.max_connections, config.max_connections_per_address, MemoryReturn(runtime).plan
        )
        self.server: RemotingServer | None = None
        self.fast_path: FastPath | None = None
        self.router: Router | None = None
        # True from the beginning of a stop on; requests are still served during the hand-overs.
        self.stopping = False

    def audit_with(self, audit: Audit) -> None:
        """Write changes and refusals to this audit log."""
        self.guard.audit = audit

    def close_with(self, gate: AuthGate) -> None:
        """Serve only requests that this gate lets pass."""
        self.guard.gate = gate

    @property
    def servers(self) -> Sequence[RemotingServer]:
        """The listening servers: of the broker's port and of the VIP port."""
        return [server for server in (self.server, self._vip_server) if server is not None]

    async def listen(self) -> int:
        """Take the port; returns its number.

        Raises:
            StartError: the port is in use, or the certificate cannot be used.
        """
        self.tls.check()
        host, port = self._config.bind_address, self._config.listen_port
        self.server = self._make_server()
        try:
            return await self.server.start(host, port)
        except OSError as error:
            raise cannot_listen(host, port, "bindAddress, listenPort", error) from error

    def _make_server(self) -> RemotingServer:
        return RemotingServer(
            self._runtime,
            self._handle,
            on_open=self._opened,
            on_close=self._closed,
            on_send=self._sending,
            on_chunk=self._on_chunk,
            takers=self.takers,
            seats=self.seats,
            proxies=networks_of(self._config.proxy_protocol_trusted),
            watch=self.guard,
            tls=self.tls,
        )

    async def listen_vip(self, port: int) -> None:
        """Listen on the VIP port, too: older clients try it first, and fall back to the main port."""
        port -= VIP_PORT_DISTANCE
        if self._vip_server is not None or self._config.listen_port == 0 or port <= 0:
            return
        server = self._make_server()
        try:
            await server.start(self._config.bind_address, port)
        except OSError as error:
            log.warning("the VIP port %d cannot be used: %s", port, error)
            return
        self._vip_server = server

    def open(
        self, router: Router, fast_path: FastPath, on_closed: Callable[[ServerConnection], None]
    ) -> None:
        """Serve from now on; ``on_closed`` is called for each connection that closes."""
        self.router, self.fast_path, self._on_closed = router, fast_path, on_closed

    def refuse(self) -> None:
        """Serve no more. Connections stay open for answers that are still outstanding."""
        self.router = self.fast_path = None

    async def close(self) -> None:
        """Close all connections and give the ports back."""
        self.refuse()
        servers = (self._vip_server, self.server)
        self.server = self._vip_server = None
        for server in servers:
            if server is not None:
                await server.stop()

    def resume(self, connection: ServerConnection, command: Command, kept_flags: int) -> None:
        """Handle a pull that waited on the fast path, with its system flags masked by ``kept_flags``."""
        connection.handle_with(partial(self._handle, kept_flags=kept_flags), command)

    def _handle(self, connection: ServerConnection, command: Command, kept_flags: int = ALL_FLAGS) -> Answer:
        if self.router is None:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"broker {self._config.broker_name} is starting or stopping",
            )
        sender = None
        if self.guard.gate is not None or command.code in DANGEROUS:
            sender = self.guard.check(connection, command)
            if sender is not None and self.fast_path is not None:
                self.fast_path.permit(connection, sender, command)
        if kept_flags != ALL_FLAGS:
            # Only after the guard's check: the client's signature covers the flags as they were sent.
            command.ext["sysFlag"] = str(int(command.ext["sysFlag"]) & kept_flags)
        if self.meter is not None:
            self.meter.count(
                connection, command, signed=self.guard.gate is not None and self._config.auth_mode != OBSERVE
            )
        audit = self.guard.audit
        if audit is not None and command.code in CHANGES:
            make = partial(self._route, self.router, connection, command)
            return audit.change(command, sender, connection.remote_address, make)
        return self._route(self.router, connection, command)

    def _route(self, router: Router, connection: ServerConnection, command: Command) -> Answer:
        handle = router.handle
        if self.times is not None:
            handle = partial(self.times.watch, handle)
        limit_ms = self._config.slow_request_ms
        if limit_ms:
            return self._slow.watch(handle, connection, command, limit_ms)
        return handle(connection, command)

    def _on_chunk(self, connection: ServerConnection, buffer: memoryview, start: int, end: int) -> int:
        if self.fast_path is None or connection.metered:
            return start
        return self.fast_path.on_chunk(connection, buffer, start, end)

    def measure_with(self, meter: Meter) -> None:
        """Count what clients send and receive with this meter, if there are quotas."""
        self.meter = meter if meter.quotas else None
        for server in self.servers:
            for connection in server.connections:
                meter.mark_limited(connection)

    def _sending(self, connection: ServerConnection, command: Command) -> None:
        if self.meter is not None:
            self.meter.sent(connection, command)

    def _opened(self, connection: ServerConnection) -> None:
        if self.meter is not None:
            self.meter.mark_limited(connection)

    def _closed(self, connection: ServerConnection) -> None:
        if self._on_closed is not None:
            self._on_closed(connection)


class Connections(Component):
    """Keeps connections open until the parts stopped before it have answered; then drains and closes them."""

    name = "connections"

    def __init__(self, doors: Doors, durability: Durability, store: MessageStore) -> None:
        self._doors = doors
        self._durability = durability
        self._store = store

    async def stop(self) -> None:
        await self._drain()
        await self._doors.close()

    async def _drain(self) -> None:
        """Wait until the senders of messages that are already stored have their answers."""
        await asyncio.sleep(0)  # the write batch under way ends with this iteration of the event loop
        try:
            await asyncio.wait_for(
                self._durability.stored(self._store.max_commit_log_offset), DRAIN_LIMIT_SECONDS
            )
        except (TimeoutError, StoreError) as error:
            log.warning("some senders get no answer: %s", error or "the disk is too slow")
        await asyncio.sleep(0)


class Serving(Component):
    """Opens the doors when all else works, and refuses requests before anything stops."""

    name = "serving"

    def __init__(
        self,
        doors: Doors,
        router: Router,
        fast_path: FastPath,
        events: Events,
        port: int,
    ) -> None:
        self._doors = doors
        self.router = router
        self._fast_path = fast_path
        self._events = events
        self._port = port

    async def start(self) -> None:
        self._fast_path.begin()
        self._doors.open(self.router, self._fast_path, self._closed)
        await self._doors.listen_vip(self._port)

    def _closed(self, connection: ServerConnection) -> None:
        self._events.publish(ConnectionClosed(connection))

    async def stop(self) -> None:
        self._doors.refuse()
