"""The HA port: followers connect here, in every role of the broker, and are sent the log as it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StartError
from orbitmq.replication.link.classic import ReportReader, data_frame_header
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.sending import HIGH_WATER_BYTES, LogSender, Pace
from orbitmq.replication.replicas import Replicas, ReplicaState, ReportError
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Listener, Runtime
from orbitmq.store import MessageStore

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 4096
CHECKS_PER_INTERVAL = 4


class HaPort(Component):
    """Accepts followers.

    Args:
        listens: told the port, when it is listened on.

    Attributes:
        port: the one it listens on, once it does.
        connections: those open now.
    """

    name = "HA port"

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        store: MessageStore,
        replicas: Replicas,
        listens: Callable[[int], object],
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.store = store
        self.replicas = replicas
        self.pace = Pace(runtime.clock, config)
        self.port = config.ha_listen_port
        self.connections: dict[HaConnection, None] = {}
        self.peers_log = LogLimiter(log)
        self._listens = listens
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            StartError: the port is in use.
        """
        host = self.config.bind_address
        try:
            self._listener = await self.runtime.network.listen(self._accept, host, self.port)
        except OSError as error:
            raise StartError(
                f"cannot listen on {host}:{self.port} (haListenPort): {error.strerror or error}"
            ) from error
        self.port = self._listener.port
        self._listens(self.port)
        self.store.log.wakers.append(self._written)
        least_ms = min(self.config.ha_send_heartbeat_interval_ms, self.config.ha_housekeeping_interval_ms)
        self._every(self.runtime.clock, least_ms / 1000 / CHECKS_PER_INTERVAL, self._look_after)

    async def stop(self) -> None:
        await self.end_work()
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
            self.store.log.wakers.remove(self._written)
        for connection in list(self.connections):
            connection.close()

    def _accept(self) -> HaConnection:
        return HaConnection(self)

    def _written(self) -> None:
        for connection in self.connections:
            connection.pump()

    def _look_after(self) -> None:
        now = self.runtime.clock.monotonic()
        for connection in list(self.connections):
            connection.look_after(now)


class HaConnection(asyncio.Protocol):
    """One follower.

    Attributes:
        address: the follower's end of the connection, host:port.
        sender: what it is sent, ``None`` before its first report.
        reports: what it has said.
    """

    def __init__(self, port: HaPort) -> None:
        self._port = port
        self._clock = port.runtime.clock
        self._transport: asyncio.Transport | None = None
        self._heard = self._clock.monotonic()
        self.address = ""
        self.host = ""
        self.sender: LogSender | None = None
        self.reports = ReportReader()

    # -- from the network ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.host, self.address = str(peer[0]), f"{peer[0]}:{peer[1]}"
        if len(self._port.connections) >= MAX_CONNECTIONS:
            self._end(f"all {MAX_CONNECTIONS} connections are in use")
            return
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._port.connections[self] = None

    def data_received(self, data: bytes) -> None:
        self._heard = self._clock.monotonic()
        try:
            limit = self.sender.cursor.position if self.sender else self._port.store.max_commit_log_offset
            for reported in self.reports.feed(data, limit):
                self._reported(reported)
        except (LinkError, ReportError) as error:
            self._end(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def pause_writing(self) -> None:
        if self.sender is not None:
            self.sender.pause()

    def resume_writing(self) -> None:
        if self.sender is not None:
            self.sender.resume()

    # -- what it says ----------------------------------------------------------------------------------

    def _reported(self, end: int) -> None:
        now = self._heard
        if self.sender is None:
            self.sender = self._begin(end)
            # Nobody says who he is: one address has one vote.
            self._port.replicas.connected(self, self.host, now)
            log.info("%s follows from %d on", self.address, self.sender.cursor.position)
        self._port.replicas.reported(self, end, end, now)
        self.sender.pump()

    def _begin(self, end: int) -> LogSender:
        port, store = self._port, self._port.store
        first = store.min_commit_log_offset
        if 0 < end < first:
            raise LinkError(
                f"its log ends at {end}, ours begins at {first}: what is between is gone. "
                "Stop it, empty its store folder, start it again"
            )
        # A follower without a log gets the newest file only (DefaultHAConnection).
        position = end or store.last_file_start
        assert self._transport is not None
        return LogSender(
            self._clock, port.config, store, port.pace, self._transport, position, data_frame_header
        )

    @property
    def state(self) -> ReplicaState | None:
        """What is counted of it."""
        return self._port.replicas.states.get(self)

    # -- from the port ---------------------------------------------------------------------------------

    def pump(self) -> None:
        """Something may have been written."""
        if self.sender is not None:
            if self.sender.cursor.behind < 0:
                self._end("our log became shorter")
            else:
                self.sender.pump()

    def look_after(self, now: float) -> None:
        """Show that we live, and close what shows no life."""
        config = self._port.config
        if now - self._heard > config.ha_housekeeping_interval_ms / 1000:
            self._end(f"not heard of for {config.ha_housekeeping_interval_ms} ms")
        elif self.sender and now - self.sender.last_sent >= config.ha_send_heartbeat_interval_ms / 1000:
            self.sender.heartbeat()

    def close(self) -> None:
        """End the connection without a word."""
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _end(self, why: str) -> None:
        self._port.peers_log.write(
            logging.WARNING, "link closed", "the follower at %s is cut off: %s", self.address, why
        )
        self.close()

    def _forget(self) -> None:
        if self.sender is not None:
            self.sender.stop()
        if self in self._port.connections:
            del self._port.connections[self]
            self._port.replicas.gone(self, self._clock.monotonic())
