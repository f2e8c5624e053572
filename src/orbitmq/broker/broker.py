"""One broker: its services, its ports, its background work; start and clean stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from orbitmq.broker.assembly import Services, build, families
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import TopicChanged
from orbitmq.broker.fast_path.driver import FastPath
from orbitmq.broker.handlers.base import Answer
from orbitmq.broker.handlers.router import Router
from orbitmq.broker.metadata.table_files import TableError
from orbitmq.broker.rates import SAMPLE_SECONDS
from orbitmq.broker.statistics import SAMPLE_SECONDS as STATS_SECONDS
from orbitmq.broker.transactions.service import TICK_SECONDS as TRANSACTION_TICK_SECONDS
from orbitmq.errors import StartError
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background, every
from orbitmq.store import StoreError
from orbitmq.transport.server import RemotingServer, ServerConnection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)

VIP_PORT_DISTANCE = 2
LONG_POLLING_TICK_SECONDS = 0.1
CLIENT_SCAN_SECONDS = 10.0
SCHEDULE_RETRY_SECONDS = 10.0  # after an unforeseen error; the service itself never ends
UNREGISTER_LIMIT_SECONDS = 2.0
DRAIN_LIMIT_SECONDS = 2.0


class Broker:
    """A broker in this process. Use it as an async context manager, or call :meth:`start` and :meth:`stop`.

    A broker that was stopped is not started again; make another one. When it has stopped, messages that were
    acknowledged and offsets that were committed are on disk.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self.runtime = runtime
        self.config = config
        self.port = config.listen_port
        self._services: Services | None = None
        self._server: RemotingServer | None = None
        self._vip_server: RemotingServer | None = None
        self._router: Router | None = None
        self._fast_path: FastPath | None = None
        self._background = Background(f"broker {config.broker_name}")

    @property
    def services(self) -> Services:
        """The parts of a broker that was started.

        Raises:
            RuntimeError: it was not.
        """
        if self._services is None:
            raise RuntimeError("the broker is not started")
        return self._services

    @property
    def address(self) -> str:
        """What name servers and clients call this broker: host:port."""
        return f"{self.config.broker_ip1}:{self.port}"

    async def start(self) -> None:
        """Listen, recover the store, read the tables, register. When it returns, the broker serves.

        Raises:
            StartError: the port is in use, the store's folder is locked by another broker or cannot be
                used, or a table of ``config`` and its backup are damaged.
        """
        try:
            await self._start()
        except (StoreError, TableError) as error:
            await self._release()
            raise StartError(str(error)) from error
        except OSError as error:
            await self._release()
            raise StartError(f"cannot use {self.config.store_path_root_dir}: {error}") from error
        except BaseException:
            await self._release()
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        # The address is part of every record, so the port is taken before the store starts.
        self._server = self._make_server()
        self.port = await self._listen(self._server)
        services = build(self.runtime, self.config, self.port)
        services.counters.started_ms = self.runtime.clock.now_ms()
        self._services = services
        await services.store.start()
        services.counters.started_offset = services.store.max_commit_log_offset
        services.persistence.load()
        for topic in services.topics:
            services.follow_topic(TopicChanged(topic.topic_name, topic))
        services.events.subscribe(TopicChanged, services.follow_topic)
        services.transactions.load()
        self._router = Router(families(services))
        fast_path = self._fast_path = FastPath(services)
        services.counters.fast_in = lambda: fast_path.messages_in
        services.counters.fast_out = lambda: fast_path.messages_out
        await self._start_vip()
        self._start_background(services)
        log.info("broker %s serves at %s", self.config.broker_name, self.address)

    async def _listen(self, server: RemotingServer) -> int:
        host, port = self.config.bind_address, self.config.listen_port
        try:
            return await server.start(host, port)
        except OSError as error:
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    def _make_server(self) -> RemotingServer:
        return RemotingServer(self.runtime, self._handle, on_close=self._closed, on_chunk=self._on_chunk)

    def _handle(self, connection: ServerConnection, command: Command) -> Answer:
        if self._router is None:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"broker {self.config.broker_name} is starting or stopping",
            )
        return self._router.handle(connection, command)

    def _on_chunk(self, connection: ServerConnection, buffer: memoryview, start: int, end: int) -> int:
        if self._fast_path is None:
            return start
        return self._fast_path.on_chunk(connection, buffer, start, end)

    def _closed(self, connection: ServerConnection) -> None:
        if self._services is not None:
            self._services.clients.connection_closed(connection)

    async def _start_vip(self) -> None:
        """Listen on the VIP port too, where older clients send; without it they fall back."""
        port = self.port - VIP_PORT_DISTANCE
        if self.config.listen_port == 0 or port <= 0:
            return
        server = self._make_server()
        try:
            await server.start(self.config.bind_address, port)
        except OSError as error:
            log.warning("the VIP port %d cannot be used: %s", port, error)
            return
        self._vip_server = server

    def _start_background(self, services: Services) -> None:
        clock = self.runtime.clock
        spawn = self._background.spawn
        spawn(every(clock, LONG_POLLING_TICK_SECONDS, services.long_polling.tick), "long polling")
        spawn(every(clock, CLIENT_SCAN_SECONDS, services.clients.expire), "client scan")
        spawn(services.persistence.run(self.config.flush_offset_interval_ms / 1000), "table files")
        spawn(every(clock, SAMPLE_SECONDS, lambda: _sample(services), first_s=0.0), "rates")
        spawn(every(clock, STATS_SECONDS, services.stats.sample, first_s=0.0), "statistics")
        spawn(services.registration.run(), "registration")
        if not self.config.is_slave:
            spawn(every(clock, TRANSACTION_TICK_SECONDS, services.transactions.tick), "transactions")
            spawn(every(clock, SCHEDULE_RETRY_SECONDS, services.schedule.run, first_s=0.0), "schedule")

    async def stop(self) -> None:
        """Leave the name servers, answer who waits, close, and save everything."""
        services = self._services
        if services is None:
            return
        await self._background.stop()
        try:
            await asyncio.wait_for(services.registration.unregister(), UNREGISTER_LIMIT_SECONDS)
        except TimeoutError:
            log.info("the name servers do not answer; they will notice that broker %s went", self.address)
        # From here on requests are refused with a code that sends producers to another broker.
        self._router = None
        self._fast_path = None
        services.long_polling.expire_all()
        services.transactions.flush()
        await self._drain(services)
        await self._release()
        log.info("broker %s stopped", self.config.broker_name)

    async def _drain(self, services: Services) -> None:
        """Let the senders of messages that are stored already have their answers."""
        await asyncio.sleep(0)  # the write batch under way ends with this iteration of the event loop
        try:
            await asyncio.wait_for(
                services.durability.stored(services.store.max_commit_log_offset), DRAIN_LIMIT_SECONDS
            )
        except (TimeoutError, StoreError) as error:
            log.warning("some senders get no answer: %s", error or "the disk is too slow")
        await asyncio.sleep(0)

    async def _release(self) -> None:
        """Give everything back that was taken, whatever of it there is."""
        await self._background.stop()
        for server in (self._vip_server, self._server):
            if server is not None:
                await server.stop()
        self._server = self._vip_server = None
        self._router = None
        self._fast_path = None
        services, self._services = self._services, None
        if services is not None:
            await services.registration.close()
            await services.schedule.finish()
            await services.persistence.close()
            await services.store.stop()
            services.durability.close()


def _sample(services: Services) -> None:
    counters = services.counters
    services.rates.sample(services.runtime.clock.monotonic(), counters.messages_in, counters.messages_out)
