"""A follower's end of one link: appends the bytes that arrive, and reports the end of its log."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import cast

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.classic import REPORT, FrameReader
from orbitmq.replication.link.cursor import Flow
from orbitmq.replication.link.errors import LinkError
from orbitmq.runtime.seam import Clock
from orbitmq.store import StoreError
from orbitmq.store.ports import CopiedLog

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
DURABLE_LOOK_S = 0.05


class FollowerLink(asyncio.BufferedProtocol, ABC):
    """One connection to a master.

    Attributes:
        address: the master's HA port.
        transferring: whether the master has been sent the place from which to send its log.
        last_read, last_write: monotonic seconds.
        tells_durable: whether reports also contain the end on the device, besides the end received.
        copied_to: the end of the master's log when this link began; up to there the log is flushed as it
            arrives. One flush of half a second's bytes would block a processor for 10 ms.
    """

    tells_durable = False

    def __init__(self, clock: Clock, config: BrokerConfig, store: CopiedLog, address: str) -> None:
        self._clock = clock
        self._monotonic = clock.monotonic
        self._config = config
        self._store = store
        self._sync = store.config.sync_flush
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written = asyncio.Event()
        self._flow = Flow(clock.monotonic())
        self._pieces: list[memoryview] = []
        self._pieces_at = 0
        self.address = address
        self.transferring = False
        self.copied_to = 0
        self.last_read = self.last_write = clock.monotonic()

    @property
    def rate(self) -> int:
        """Bytes received in the last whole second."""
        return self._flow.rate(self._clock.monotonic())

    # -- what differs between the protocols ------------------------------------------------------------

    @abstractmethod
    async def _begin(self) -> None:
        """Send the master the place from which to send its log."""

    @abstractmethod
    def _take(self, data: memoryview) -> None:
        """Handle received bytes. Pieces of the log are collected, and stored before the frames after them.

        Raises:
            LinkError, StoreError: the bytes are not valid, or they cannot be stored.
        """

    @abstractmethod
    def _report(self, received: int, durable: int) -> None:
        """Report the end of this log, if it changed."""

    @abstractmethod
    def _repeat(self) -> None:
        """Report again, as a heartbeat."""

    # -- from the network ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended.done():
            return
        self.last_read = now = self._monotonic()
        self._flow.sent(now, nbytes)
        try:
            try:
                self._take(self._buffer[:nbytes])
            finally:
                if self._pieces:
                    self._append()
        except (LinkError, StoreError) as error:
            self.end(error)
        except Exception as error:
            self._mistake(error)
        else:
            if self._sync:
                self._store.flush_soon(self._store.max_commit_log_offset)
            else:
                if self.transferring:
                    self._report(self._store.received_offset, self._store.flushed_offset)
                self._written.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(exc if isinstance(exc, OSError) else ConnectionResetError("the master closed the link"))

    def _write(self, data: bytes) -> None:
        self.last_write = self._monotonic()
        if self._transport is not None and not self._ended.done():
            self._transport.write(data)

    def _collect(self, offset: int, piece: memoryview) -> None:
        """Collect a piece of the log; it is stored together with the pieces that continue it."""
        if not self._pieces:
            self._pieces_at = offset
        if len(piece):
            self._pieces.append(piece)

    def _append(self) -> None:
        """Store the collected pieces: one write and one dispatch for all pieces of one read from the
        network."""
        pieces = self._pieces
        if pieces:
            self._pieces = []
            self._store.append_raw(self._pieces_at, pieces[0] if len(pieces) == 1 else b"".join(pieces))

    @property
    def sealed(self) -> bool:
        """Whether users and rules come over the link: both sides have proved themselves, and seal tables."""
        return False

    # -- life ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Return when this broker has ended the link.

        Raises:
            OSError: the connection broke.
            LinkError, StoreError: the master's bytes are not valid, or the disk refused.
        """
        tasks = [asyncio.ensure_future(self._look_after()), asyncio.ensure_future(self._copy())]
        self._store.on_flushed(self._flushed)
        try:
            await self._ended
        finally:
            self._store.off_flushed(self._flushed)
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

    async def _copy(self) -> None:
        """Start the link; with ASYNC_FLUSH then report the durable end whenever the store's periodic flush
        has moved it."""
        try:
            await self._begin()
            log.info("following %s from %d on", self.address, self._store.received_offset)
            while self.tells_durable and not self._sync:
                await self._written.wait()
                self._written.clear()
                await self._until_durable()
        except (OSError, LinkError, StoreError) as error:
            self.end(error)
        except Exception as error:
            self._mistake(error)

    def _mistake(self, error: Exception) -> None:
        """Handle a bug in the handling of frames: log it and end the link, because the order of frames is
        broken."""
        log.exception("link to %s", self.address)
        self.end(LinkError(f"what it sent could not be taken: {error!r}"))

    async def _until_durable(self) -> None:
        store = self._store
        while store.flushed_offset < store.max_commit_log_offset and store.flush_error is None:
            await self._clock.sleep(DURABLE_LOOK_S)
            if store.flushed_offset < self.copied_to:
                await store.flush()
            self._report(store.received_offset, store.flushed_offset)

    def _flushed(self) -> None:
        """A flush has ended: report it. With SYNC_FLUSH the master waits for this report."""
        store = self._store
        if store.flush_error is not None:
            self.end(OSError(f"the disk refused: {store.flush_error}"))
        elif self._sync and self.transferring:
            self._report(store.received_offset, store.flushed_offset)

    async def _look_after(self) -> None:
        """Send heartbeats, and close the link when the master sends none."""
        heartbeat_s = self._config.ha_send_heartbeat_interval_ms / 1000
        silence_s = self._config.ha_housekeeping_interval_ms / 1000
        while True:
            await self._clock.sleep(min(heartbeat_s, silence_s) / 4)
            now = self._clock.monotonic()
            if now - self.last_read > silence_s:
                self.end(TimeoutError(f"nothing came from the master for {silence_s:g} s"))
            elif self.transferring and now - self.last_write >= heartbeat_s:
                self._repeat()


class ClassicFollowerLink(FollowerLink):
    """A link to a master that speaks RocketMQ's protocol."""

    def __init__(self, clock: Clock, config: BrokerConfig, store: CopiedLog, address: str) -> None:
        super().__init__(clock, config, store, address)
        self._reported = store.received_offset
        self._frames = FrameReader(self._reported, store.config.commit_log_file_bytes)

    async def _begin(self) -> None:
        # The master sends its log from the first report's offset on: the exact end of this log, all of it
        # durable.
        self._repeat()
        self.transferring = True

    def _take(self, data: memoryview) -> None:
        for offset, piece in self._frames.feed(data):
            self._collect(offset, piece)

    def _report(self, received: int, durable: int) -> None:
        end = durable if self._sync else received
        if end > self._reported:
            self._reported = end
            self._repeat()

    def _repeat(self) -> None:
        self._write(REPORT.pack(self._reported))
