"""A slave's end of the link: copies its master's log from the end of its own on, and reconnects for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from orbitmq.auth.rules import address_of
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.own_requests import client_of
from orbitmq.broker.role import EVERY_ROLE, TAKES_MESSAGES
from orbitmq.errors import ValidationError
from orbitmq.replication.link.comparing import Comparing
from orbitmq.replication.link.errors import LinkError, OwnEndCountsError
from orbitmq.replication.link.follower_link import ClassicFollowerLink, FollowerLink
from orbitmq.replication.link.inquiry import Inquiry, ha_address
from orbitmq.replication.link.stream import STREAM_VERSION
from orbitmq.replication.link.stream_follower import Ours, StreamFollowerLink
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.seam import Clock, Runtime
from orbitmq.store import StoreError
from orbitmq.store.ports import CopiedLog
from orbitmq.transport.address import parse_address
from orbitmq.transport.errors import TransportError
from orbitmq.transport.proxies import networks_of

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 5.0
CONNECT_SECONDS = 3.0
# An HA port does not name its broker: wait this long for a name server to name the master.
NAMED_SECONDS = 5.0

_MakeLink: TypeAlias = Callable[[Clock, BrokerConfig, CopiedLog, str], FollowerLink]


class HaClient(Component):
    """Follows one master at a time, whichever :meth:`follow` names.

    Args:
        prepare: returns when everything that an older link brought is on the disk; an OSError from it is
            retried.

    Attributes:
        connected: whether a connection to the master's HA port is open.
        transferring: whether the master has been sent the place from which to send its log.
        own_end_counts: whether the followed broker's log differs from this one, which is kept; it is not
            copied.
        master_flushed: the flushed end of the master's log at this broker's first request, with
            syncMasterFlushOffsetWhenStartup; else 0.
    """

    name = "following"
    runs_as = EVERY_ROLE - TAKES_MESSAGES

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        store: CopiedLog,
        address: str,
        ours: Ours,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._store = store
        self._own_address = address
        self.ours = ours
        self._client = client_of(runtime, config)
        self._backoff = Backoff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, runtime.random)
        self._changed = asyncio.Event()
        self._link: FollowerLink | None = None
        self._said = ""
        self._unnamed: str | None = None  # the HA port that is followed although its broker is unknown
        # Whether "no master" was logged, or need not be: a master in pre-online follows slaves for a while.
        self._alone = config.broker_role != "SLAVE"
        self._failures = 0
        self.master_flushed = 0
        self.own_end_counts = False
        self._prepare = prepare
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
        """The end of this broker's log, with the bytes that were copied so far."""
        return self._store.received_offset

    @property
    def link(self) -> FollowerLink | None:
        """The connection that is open."""
        return self._link

    @property
    def classic_master(self) -> str | None:
        """The address of the followed master, if it is known to speak RocketMQ's protocol."""
        return self.master_address if isinstance(self._link, ClassicFollowerLink) else None

    def broken(self, error: Exception) -> None:
        """Reconnect: this broker could not store what came over the link."""
        if self._link is not None:
            self._link.end(error)

    def follow(self, ha_address: str | None, master_address: str | None) -> None:
        """Follow this master from now on; no master when both are ``None``.

        Args:
            ha_address: its HA port; when it is ``None`` the master is asked for it.
            master_address: where its clients reach it.
        """
        if (ha_address, master_address) == (self.ha_address, self.master_address):
            return
        self.own_end_counts, self._alone = False, True
        same_master = master_address is not None and master_address == self.master_address
        self.ha_address, self.master_address = ha_address, master_address
        if same_master and self._link is not None and ha_address in (None, self._link.address):
            return  # the link already goes to that port
        self._changed.set()
        if self._link is not None:
            self._link.end(None)

    async def start(self) -> None:
        self._spawn(self._run(), "link")

    async def stop(self) -> None:
        await self.end_work()
        await self._client.close()
        self._client = client_of(self._runtime, self._config)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if self.ha_address is None and self.master_address is None:
                await self._until_named()
                continue
            # The address that a log line names below: :meth:`follow` may change it during the link.
            whom = self.ha_address or self.master_address
            try:
                await self._follow_once()
            except OwnEndCountsError as error:
                self.own_end_counts = True
                self._say("nothing is copied back: %s", error)
            except (OSError, TransportError, LinkError, StoreError) as error:
                self._failures += 1
                self._say("cannot follow %s: %s", whom, error)
            except Exception:
                # A bug: log it, and go on copying.
                self._failures += 1
                log.exception("following %s failed", whom)
            try:
                async with asyncio.timeout(self._backoff.pause_s(self._failures)):
                    await self._changed.wait()
                self._failures = 0
            except TimeoutError:
                pass

    async def _until_named(self) -> None:
        """Wait for a master to follow; warn if there never was one, because the slave's name may be wrong."""
        if not self._alone:
            with suppress(TimeoutError):
                async with asyncio.timeout(NAMED_SECONDS):
                    await self._changed.wait()
                    return
            self._alone = True
            log.warning(
                "no name server shows a master of %s of cluster %s yet: nothing is copied",
                self._config.broker_name,
                self._config.broker_cluster_name,
            )
        await self._changed.wait()

    def _say(self, text: str, *values: object) -> None:
        """Log a repeated failure once."""
        said = text % values
        if said != self._said:
            self._said = said
            log.warning(text, *values)

    async def _follow_once(self) -> None:
        """Copy the master's log until this broker ends the link.

        Raises:
            OSError, TransportError: the link broke, or could not be made.
            LinkError, StoreError: as ``FollowerLink.run``.
        """
        # Checked before the greeting: after it this follower counts as a replica, and senders wait for it.
        self._store.refuse_raw()
        self._store.drop_partial()
        await self._store.flush()
        if self._prepare is not None:
            await self._prepare()
        if self._changed.is_set():
            return  # another master was named, or none, while the flush ran
        if not await self._is_named():
            return
        make, address = await self._ask()
        host, port = parse_address(address)
        if self._changed.is_set():
            return
        link = make(self._runtime.clock, self._config, self._store, address)
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._connect(link, host, port)
        self._link, begin = link, self._runtime.clock.monotonic()
        try:
            await link.run()
        finally:
            self._link = None
            if self._runtime.clock.monotonic() - begin > MAX_RETRY_SECONDS:
                # The link worked for a while: log what ended it, and retry soon.
                self._failures, self._said = 0, ""

    async def _is_named(self) -> bool:
        """Whether to follow the HA port: its broker is known, or cannot become known. ``False``: follow
        another port.

        A name server names the master within one look. A link before that would copy from whatever broker is
        at haMasterAddress, and only from its last file on.
        """
        port = self.ha_address
        if self.master_address is not None or port == self._unnamed or not self._config.name_servers:
            return True
        try:
            async with asyncio.timeout(NAMED_SECONDS):
                await self._changed.wait()
            return False
        except TimeoutError:
            self._unnamed = port
            log.warning(
                "no name server shows a master of %s: the log of the broker at haMasterAddress=%s is copied "
                "unchecked, in RocketMQ's protocol",
                self._config.broker_name,
                port,
            )
            return True

    async def _connect(self, link: FollowerLink, host: str, port: int) -> None:
        """Connect from brokerIP1: a returning master of RocketMQ finds its slave by that address."""
        try:
            await self._connect_from(link, host, port, self._store.config.store_host[0])
        except (ConnectionRefusedError, ConnectionAbortedError):
            raise
        except OSError:
            # brokerIP1 is not an address of this machine, as behind a NAT, or has no route to the master.
            await self._connect_from(link, host, port, "")

    async def _connect_from(self, link: FollowerLink, host: str, port: int, own_host: str) -> None:
        """Connect, with a handshake if brokers speak TLS; RocketMQ's HA port has none.

        Raises:
            OSError: nothing listens at the port, or TLS failed.
        """
        network, tls = self._runtime.network, self._config.tls.client()
        if tls is None or isinstance(link, ClassicFollowerLink):
            await network.connect(lambda: link, host, port, local_host=own_host)
            return
        # Imported only if the brokers speak TLS.
        from orbitmq.runtime.tls import ClientTlsLayer

        try:
            layer = ClientTlsLayer(tls, link, link.address, host)
        except ValidationError as error:
            # A certificate file is half written, or gone.
            raise LinkError(f"no TLS: {error}") from error
        transport, _ = await network.connect(lambda: layer, host, port, local_host=own_host)
        try:
            await layer.opened
        except asyncio.CancelledError:
            transport.abort()
            raise

    async def _ask(self) -> tuple[_MakeLink, str]:
        """How to follow: the kind of link, and the master's HA port.

        Raises:
            LinkError: the master must not be followed.
            TransportError: the master does not answer.
            OSError, StoreError: the disk refused.
        """
        if self.master_address is None:
            assert self.ha_address is not None
            self._check_classic(self.ha_address)
            return ClassicFollowerLink, self.ha_address
        if self.master_address == self._own_address:
            raise LinkError("it is this broker itself")
        master = Inquiry(self._client, self.master_address)
        info = await master.ha_info()
        if self._config.sync_master_flush_offset and not self.master_flushed:
            self.master_flushed = info.master_flush_offset or 0
        known = self.ha_address or info.master_ha_address
        if known and info.orbitmq_stream == STREAM_VERSION:
            return partial(StreamFollowerLink, ours=self.ours), known
        settings = await master.settings()
        known = known or ha_address(settings)
        if not known:
            raise LinkError("it does not tell its HA address")
        self._check_classic(known)
        await Comparing(self._config, self._store, self.ours.truncation).agree(master, settings)
        return ClassicFollowerLink, known

    def _check_classic(self, address: str) -> None:
        """Refuse a master that can prove nothing, unless the operator has named its address.

        Raises:
            LinkError: keys are required.
        """
        allowed = networks_of(self._config.ha_allowed_peers)
        host = address_of(parse_address(address)[0])
        named = host is not None and any(host in network for network in allowed)
        if self.ours.keys.required and not named:
            raise LinkError(
                f"{address} speaks RocketMQ's protocol, which has no keys: a broker of RocketMQ is followed "
                "when haAllowedPeers names its IP address"
            )
