"""A running name server: the route table behind a port, and the task that removes dead brokers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from functools import partial

from orbitmq.auth.changes import CHANGES
from orbitmq.auth.protected import DANGEROUS, protected_mode
from orbitmq.errors import StartError
from orbitmq.nameserver.access import NameServerAccess
from orbitmq.nameserver.auditing import sights_of
from orbitmq.nameserver.brokers import MinBrokerIdChange
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.grpc_hint import GrpcHint
from orbitmq.nameserver.handlers import Answer, Handlers
from orbitmq.nameserver.kv import KvConfig, KvError
from orbitmq.nameserver.monitoring import NameServerMonitoring
from orbitmq.nameserver.routes import RouteTable
from orbitmq.runtime import Runtime
from orbitmq.runtime.listening import cannot_listen
from orbitmq.runtime.tasks import Background
from orbitmq.settings.typed import levels_of
from orbitmq.transport.audit import Audit
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.transport.guard import Guard
from orbitmq.transport.identity import Identity
from orbitmq.transport.memory_return import MemoryReturn
from orbitmq.transport.proxies import networks_of
from orbitmq.transport.seats import Seats
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.connection import HTTP2, TLS
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.headers.route import NotifyMinBrokerIdChangeRequest
from orbitmq.wire.signing import Credentials

log = logging.getLogger("orbitmq.nameserver")

NOTIFY_TIMEOUT_MS = 300
# A check for dead brokers that is late by this much shows that the process stood still. The check then waits
# for LISTEN_S, so that signs of life that have arrived meanwhile are read first.
STOOD_STILL_MS = 500
LISTEN_S = 0.1
SWEEP_TOPICS = 1000  # topics looked at before the event loop gets time for other work: about 0.3 ms


class NameServer:
    """One name server. Use it as an async context manager, or call :meth:`start` and :meth:`stop`."""

    def __init__(self, runtime: Runtime, config: NameServerConfig | None = None) -> None:
        self._runtime = runtime
        self._config = config or NameServerConfig()
        self._kv = KvConfig(runtime, self._config.kv_config_path)
        self.routes = RouteTable()
        self._registered = asyncio.Event()
        self._access: NameServerAccess | None = None
        if self._config.authentication_enabled:
            self._access = NameServerAccess(
                runtime, self._config, self.routes, lambda: self.handlers.config.auth_mode
            )
        self.handlers = Handlers(
            runtime,
            self._config,
            self.routes,
            self._kv,
            access=self._access,
            on_min_change=self._notify_members,
            on_work=self._start_sweeping,
            on_register=self._registered.set,
        )
        config = self._config
        protected = protected_mode(
            config.protected_mode, config.admin_addresses, config.proxy_protocol_trusted
        )
        gate = None if self._access is None else self._access.gate
        self._guard = Guard(gate, protected, log, runtime.clock)
        place = self._config.audit_place
        if place is not None:
            sights = sights_of(self._access, self.routes, self._kv, lambda: self.handlers.config)
            self._guard.audit = Audit(runtime, place, sights)
        self._sweeping = False
        hint = GrpcHint(runtime, self.routes)
        self._tls = self._config.tls.server(runtime, (runtime.host.name, "localhost", "127.0.0.1"))
        self._server = RemotingServer(
            runtime,
            self._handle,
            on_close=self._closed,
            takers={HTTP2: hint.take_plain, TLS: hint.take_tls},
            seats=Seats(
                self._config.max_connections,
                self._config.max_connections_per_address,
                MemoryReturn(runtime).plan,
            ),
            proxies=networks_of(self._config.proxy_protocol_trusted),
            watch=self._guard,
            tls=self._tls,
        )
        self.monitoring = NameServerMonitoring(runtime, self._config, self.handlers, self.routes, self._tls)
        # Brokers that require keys accept the notice of their group's lowest id only from super users.
        keys = self._config.inner_client_credentials
        identity = Identity(keys if isinstance(keys, Credentials) else None, self._config.tls.client())
        self._client = RemotingClient(runtime, identity=identity)
        self._background = Background("nameserver")
        self._port = 0
        self._stopping = False

    async def __aenter__(self) -> NameServer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port it listens on; 0 before :meth:`start`."""
        return self._port

    async def start(self) -> None:
        """Load the key-value table and serve.

        Raises:
            StartError: a port is taken, a file of the name server is broken, the certificate cannot be used,
                or keys are required and there is no super user.
        """
        self._tls.check()
        host, port = self._config.bind_address, self._config.listen_port
        try:
            self._kv.load()
            if self._access is not None:
                self._access.open()
            if self._guard.audit is not None:
                self._guard.audit.start()
            self._port = await self._server.start(host, port)
            await self.monitoring.start()
        except BaseException as error:
            await self._server.stop()
            if self._access is not None:
                self._access.close()
            if isinstance(error, KvError):
                raise StartError(str(error)) from error
            if isinstance(error, OSError):
                raise cannot_listen(host, port, "bindAddress, listenPort", error) from error
            raise
        self.handlers.log_levels.apply(levels_of(self._config.logger_levels))
        self._background.spawn(self._watch(), "look for dead brokers")
        log.debug("name server serves on %s:%d", host, self._port)

    async def stop(self) -> None:
        """Stop serving. Brokers register with the other name servers and with this one when it is back."""
        self._stopping = True
        await self._background.stop()
        await self._server.stop()
        if self._guard.audit is not None:
            await self._guard.audit.stop()
        await self._client.close()
        await self.monitoring.stop()
        if self._access is not None:
            self._access.close()
        self.handlers.log_levels.apply({})

    def _handle(self, connection: ServerConnection, command: Command) -> Answer | Awaitable[Command | None]:
        """Answer a request if its sender may make it."""
        sender = None
        if self._guard.gate is not None or command.code in DANGEROUS:
            try:
                sender = self._guard.check(connection, command)
            except WireError as error:
                raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}") from error
        audit = self._guard.audit
        if audit is not None and command.code in CHANGES:
            make = partial(self.handlers.handle, connection, command)
            return audit.change(command, sender, connection.remote_address, make)
        return self.handlers.handle(connection, command)

    async def _watch(self) -> None:
        """Look for dead brokers when the first one is due, and every ``scanNotActiveBrokerInterval``."""
        while True:
            self._registered.clear()
            wait_ms = self._config.scan_interval_ms
            due_ms = self.routes.next_expiry_ms()
            if due_ms is not None:
                wait_ms = min(wait_ms, max(1, due_ms - self._now_ms()))
            look_ms = self._now_ms() + wait_ms
            with contextlib.suppress(TimeoutError):
                # A broker that registers may expire before all others.
                async with asyncio.timeout(wait_ms / 1000):
                    await self._registered.wait()
            if self._now_ms() - look_ms > STOOD_STILL_MS:
                # The sockets may hold signs of life that were not read yet.
                await self._runtime.clock.sleep(LISTEN_S)
            try:
                self.expire()
            except Exception:
                log.exception("looking for dead brokers failed")

    def _now_ms(self) -> int:
        return int(self._runtime.clock.monotonic() * 1000)

    def expire(self) -> None:
        """Forget the brokers without a sign of life in time, and close their connections."""
        gone, changes = self.routes.expire(self._now_ms())
        for member in gone:
            log.warning(
                "broker expired: %s id %d at %s, silent for more than %d ms",
                member.group,
                member.broker_id,
                member.address,
                member.timeout_ms,
            )
            if isinstance(member.connection, ServerConnection):
                member.connection.close()
        self._announce(changes)

    def _closed(self, connection: ServerConnection) -> None:
        if self._stopping:
            return
        lost, changes = self.routes.connection_closed(connection)
        for member in lost:
            log.warning(
                "broker gone: %s id %d at %s closed its connection",
                member.group,
                member.broker_id,
                member.address,
            )
        self._announce(changes)

    def _start_sweeping(self) -> None:
        if not self._sweeping and not self._stopping:
            self._sweeping = True
            self._background.spawn(self._sweep(), "topics of lost brokers")

    async def _sweep(self) -> None:
        try:
            while self.routes.has_work:
                self.routes.sweep(SWEEP_TOPICS)
                await asyncio.sleep(0)
        finally:
            self._sweeping = False

    def _announce(self, changes: list[MinBrokerIdChange]) -> None:
        if self.routes.has_work:
            self._start_sweeping()
        if self.handlers.config.notify_min_broker_id_changed:
            for change in changes:
                self._notify_members(change)

    def _notify_members(self, change: MinBrokerIdChange) -> None:
        for address in change.notify:
            self._background.spawn(self._notify(address, change), f"tell {address} of the lowest broker id")

    async def _notify(self, address: str, change: MinBrokerIdChange) -> None:
        header = NotifyMinBrokerIdChangeRequest(
            min_broker_id=change.min_id,
            broker_name=change.group,
            min_broker_addr=change.min_address,
            offline_broker_addr=change.offline_address,
            ha_broker_addr=change.ha_address,
        )
        try:
            await self._client.oneway(address, header.command(), NOTIFY_TIMEOUT_MS)
        except TransportError as error:
            log.warning("cannot tell %s that the lowest broker id is %d: %s", address, change.min_id, error)
