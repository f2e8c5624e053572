"""A slave's end of the link: asks its master for the log behind what it has, for ever."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import EVERY_ROLE, TAKES_MESSAGES
from orbitmq.replication.link.classic import REPORT, FrameReader
from orbitmq.replication.link.cursor import Flow
from orbitmq.replication.link.errors import LinkError
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore, StoreError
from orbitmq.transport.address import parse_address
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers import ExchangeBrokerHaInfoRequest, ExchangeBrokerHaInfoResponse

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
ASK_TIMEOUT_MS = 3000
CONNECT_SECONDS = 3.0


class Following(Component):
    """Follows one master at a time, whichever :meth:`follow` names.

    Attributes:
        connected: a connection to the master's HA port is open.
        transferring: the master has been told where to go on.
    """

    name = "following"
    runs_as = EVERY_ROLE - TAKES_MESSAGES

    def __init__(self, runtime: Runtime, config: BrokerConfig, store: MessageStore, address: str) -> None:
        self._runtime = runtime
        self._config = config
        self._store = store
        self._own_address = address
        self._client = RemotingClient(runtime)
        self._backoff = Backoff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, runtime.random)
        self._changed = asyncio.Event()
        self._link: FollowerLink | None = None
        self._said = ""
        self.ha_address: str | None = config.ha_master_address or None
        self.master_address: str | None = None

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def transferring(self) -> bool:
        return self._link is not None and self._link.transferring

    @property
    def received(self) -> int:
        """Behind the last byte that came from the master, or was here before."""
        return self._store.received_offset

    @property
    def link(self) -> FollowerLink | None:
        """The connection that is open."""
        return self._link

    def follow(self, ha_address: str | None, master_address: str | None) -> None:
        """Follow this master from now on, at once; none when both are ``None``.

        Args:
            ha_address: its HA port; when it is ``None`` the master is asked for it.
            master_address: where its clients reach it.
        """
        if (ha_address, master_address) == (self.ha_address, self.master_address):
            return
        self.ha_address, self.master_address = ha_address, master_address
        self._changed.set()
        if self._link is not None:
            self._link.end(None)

    async def start(self) -> None:
        self._spawn(self._run(), "link")

    async def stop(self) -> None:
        await self.end_work()
        await self._client.close()
        self._client = RemotingClient(self._runtime)

    async def _run(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            if self.ha_address is None and self.master_address is None:
                await self._changed.wait()
                continue
            try:
                failures = 0 if await self._follow_once() else failures + 1
            except (OSError, TransportError, LinkError, StoreError) as error:
                failures += 1
                self._say(logging.WARNING, f"cannot follow {self.ha_address or self.master_address}: {error}")
            try:
                async with asyncio.timeout(self._backoff.pause_s(failures) if failures else 0):
                    await self._changed.wait()
                failures = 0
            except TimeoutError:
                pass

    def _say(self, level: int, text: str) -> None:
        """One line for what repeats."""
        if text != self._said:
            self._said = text
            log.log(level, "%s", text)

    async def _follow_once(self) -> bool:
        """Copy the master's log until the link ends; whether there was one."""
        ha_address = await self._ask()
        host, port = parse_address(ha_address)
        self._store.drop_partial()
        await self._store.flush()
        if self._changed.is_set():
            return True
        link = FollowerLink(self._runtime, self._config, self._store, ha_address)
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._runtime.network.connect(lambda: link, host, port)
        self._link = link
        self._say(logging.INFO, f"following {ha_address} from {link.begin} on")
        try:
            await link.run()
        finally:
            self._link = None
        return link.heard_something

    async def _ask(self) -> str:
        """The master's HA port, which it is asked for when nobody else told it."""
        if self.ha_address is not None:
            return self.ha_address
        assert self.master_address is not None
        answer = await self._client.request(
            self.master_address, ExchangeBrokerHaInfoRequest().command(), ASK_TIMEOUT_MS
        )
        if answer.code != ResponseCode.SUCCESS:
            raise LinkError(f"it does not tell its HA address: code {answer.code}, {answer.remark}")
        try:
            said = ExchangeBrokerHaInfoResponse.from_ext(answer.ext).master_ha_address
        except WireError as error:
            raise LinkError(f"its answer to {RequestCode.EXCHANGE_BROKER_HA_INFO.name}: {error}") from error
        if not said:
            raise LinkError("it has no HA address")
        return said


class FollowerLink(asyncio.BufferedProtocol):
    """One connection to a master that speaks RocketMQ's protocol.

    Attributes:
        begin: where this log ended when the link was made.
        transferring: see ``Following``.
        heard_something: the master has sent something.
        last_read, last_write: monotonic seconds.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig, store: MessageStore, address: str) -> None:
        self._clock = runtime.clock
        self._config = config
        self._store = store
        self._sync = store.flusher.sync
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written = asyncio.Event()
        self._reported = 0
        self.address = address
        self.begin = store.received_offset
        self._frames = FrameReader(self.begin, store.config.commit_log_file_bytes)
        self._flow = Flow(self._clock.monotonic())
        self.transferring = False
        self.heard_something = False
        self.last_read = self.last_write = self._clock.monotonic()

    # -- from the network ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self._transport = cast("asyncio.Transport", transport)
        self._report(self.begin)
        self.transferring = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended.done():
            return
        self.last_read = self._clock.monotonic()
        self._flow.sent(self.last_read, nbytes)
        self.heard_something = True
        try:
            for offset, piece in self._frames.feed(self._buffer[:nbytes]):
                if len(piece):
                    self._store.append_raw(offset, piece)
        except (LinkError, StoreError) as error:
            self.end(error)
            return
        if self._sync:
            self._written.set()
        else:
            self._report_more(self._store.received_offset)

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(exc if isinstance(exc, OSError) else ConnectionResetError("closed by the master"))

    @property
    def rate(self) -> int:
        """Bytes received in the last whole second."""
        return self._flow.rate(self._clock.monotonic())

    # -- reports ---------------------------------------------------------------------------------------

    def _report_more(self, end: int) -> None:
        if end > self._reported:
            self._report(end)

    def _report(self, end: int) -> None:
        self._reported = end
        self.last_write = self._clock.monotonic()
        if self._transport is not None:
            self._transport.write(REPORT.pack(end))

    async def _report_what_is_durable(self) -> None:
        store = self._store
        while True:
            await self._written.wait()
            self._written.clear()
            await store.flush()
            if store.flusher.error is not None:
                self.end(OSError(f"the disk refused: {store.flusher.error}"))
                return
            self._report_more(store.flushed_offset)

    async def _look_after(self) -> None:
        """Show that we live, and notice when the master does not."""
        heartbeat_s = self._config.ha_send_heartbeat_interval_ms / 1000
        silence_s = self._config.ha_housekeeping_interval_ms / 1000
        while True:
            await self._clock.sleep(min(heartbeat_s, silence_s) / 4)
            now = self._clock.monotonic()
            if now - self.last_read > silence_s:
                self.end(TimeoutError(f"nothing came from the master for {silence_s:g} s"))
            elif now - self.last_write >= heartbeat_s:
                self._report(self._reported)

    # -- life ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Return when the link was ended on purpose.

        Raises:
            OSError: the connection broke.
            LinkError, StoreError: the master sent what cannot be taken, or the disk refused.
        """
        tasks = [asyncio.ensure_future(self._look_after())]
        if self._sync:
            tasks.append(asyncio.ensure_future(self._report_what_is_durable()))
        try:
            await self._ended
        finally:
            self.end(None)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end(self, error: Exception | None) -> None:
        """Close the connection; :meth:`run` returns, or raises ``error``."""
        if not self._ended.done():
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
        self.transferring = False
        if self._transport is not None:
            self._transport.abort()
