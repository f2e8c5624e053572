"""The HA port: followers connect here, in every role of the broker, and are sent the log as it is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from orbitmq.auth.rules import address_of
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.come_again import ComeAgain
from orbitmq.replication.link.errors import LinkError, RefusedError, UnprovenError
from orbitmq.replication.link.hello import Hello
from orbitmq.replication.link.identity import BrokerIdentity
from orbitmq.replication.link.masters import ClassicMaster, HaPortParts, MasterEnd, StreamMaster
from orbitmq.replication.link.peers import Peers
from orbitmq.replication.link.proof import Keyring
from orbitmq.replication.link.sending import LogSender, Pace
from orbitmq.replication.link.signs import heartbeat_s
from orbitmq.replication.link.stream import MAGIC
from orbitmq.replication.replicas import Replicas, ReplicaState, ReportError
from orbitmq.runtime.listening import cannot_listen
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Listener, Runtime
from orbitmq.runtime.server_tls import ServerTls
from orbitmq.store.ports import CopiedLog
from orbitmq.transport.entrance import Entrance
from orbitmq.transport.proxies import networks_of
from orbitmq.transport.seats import Seats

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 4096
# The HA port's share of maxConnections is one part in this many. maxConnections leaves the store its
# descriptors; without a share the HA port could use these up.
SHARE = 8
LEAST_CONNECTIONS = 16
# The most connections of one address. A broker of this name has one or two; the limit keeps a stranger from
# taking all connections.
MOST_OF_ONE = 64
CHECKS_PER_INTERVAL = 4
# The same refusal is logged again only after this time.
REFUSED_AGAIN_S = 3600.0
MAX_REFUSALS = 64
_CUT_OFF = "the follower at %s is cut off: %s"


class HaPort(Component):
    """Accepts followers.

    Args:
        listens: called with the port once this broker listens on it.
        on_refused: called when keys or address of a follower are refused, with the user that it names, its
            host and the reason.
        on_follower: called when the log begins to be sent over a connection.
        tls: the broker's TLS; OrbitMQ's followers may use it, RocketMQ's cannot.

    Attributes:
        connections: the open connections.
    """

    name = "HA port"

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        store: CopiedLog,
        replicas: Replicas,
        peers: Peers,
        identity: BrokerIdentity,
        listens: Callable[[int], object],
        on_follower: Callable[[], object],
        tls: ServerTls,
        keys: Keyring,
        on_refused: Callable[[str, str, str], object],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._store = store
        self._listens = listens
        self._listener: Listener | None = None
        self._peers_log = LogLimiter(log)
        pace = Pace(runtime.clock, config)
        self.shared = HaPortParts(runtime.clock, config, store, pace, replicas, peers, identity, keys)
        self.connections: dict[HaConnection, None] = {}
        # Connections over which the log is sent: a thousand other connections must not slow down a batch of
        # messages.
        self._followers: tuple[HaConnection, ...] = ()
        self._come_again = ComeAgain()
        self._refusals: dict[str, float] = {}
        self._allowed = networks_of(config.ha_allowed_peers)
        self._on_follower = on_follower
        self.refused = on_refused
        # A slave of RocketMQ sends nothing before its first heartbeat.
        first_s = config.ha_housekeeping_interval_ms / 1000
        self._seats = Seats()
        self._entrance = Entrance(
            tls, lambda: HaConnection(self), self._peers_log, self._admits, self._seats, first_s
        )

    async def start(self) -> None:
        """Listen.

        Raises:
            StartError: the port is in use.
        """
        host, port = self._config.bind_address, self._config.ha_listen_port
        try:
            self._listener = await self._runtime.network.listen(self._accept, host, port)
        except OSError as error:
            raise cannot_listen(host, port, "bindAddress, haListenPort", error) from error
        self._listens(self._listener.port)
        least_s = min(heartbeat_s(self._config, stream=True), self._config.ha_housekeeping_interval_ms / 1000)
        self._every(self._runtime.clock, least_s / CHECKS_PER_INTERVAL, self._look_after)

    async def stop(self) -> None:
        await self.end_work()
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        self._entrance.close()
        self._store.off_written(self._written)
        for connection in list(self.connections):
            connection.close()

    def _accept(self) -> asyncio.BaseProtocol:
        return self._entrance.protocol() if self._entrance.tls.serves else HaConnection(self)

    def _admits(self, host: str, port: int) -> bool:
        """Whether this client may connect, and there is room for it; asked before a handshake of TLS."""
        return self.allows(host) and not self._full(host)

    def _full(self, host: str) -> str:
        """Why there is no room for another connection from this address; empty: there is room."""
        most = min(MAX_CONNECTIONS, max(LEAST_CONNECTIONS, self._config.max_connections // SHARE))
        if self._seats.taken >= most:
            return f"all {most} connections are in use"
        return f"{host} has {MOST_OF_ONE} connections already" if self._seats.of(host) >= MOST_OF_ONE else ""

    def _written(self) -> None:
        for connection in self._followers:
            connection.pump()

    def _look_after(self) -> None:
        now = self._runtime.clock.monotonic()
        for connection in list(self.connections):
            connection.look_after(now)

    def allows(self, host: str) -> bool:
        """Whether haAllowedPeers lets this address connect; a refusal is logged."""
        if not self._allowed:
            return True
        address = address_of(host)
        if address is not None and any(address in network for network in self._allowed):
            return True
        why = "its address is not in haAllowedPeers"
        self.refused("", host, why)
        if self.refuses(f"{host}: {why}"):
            self._peers_log.write(logging.WARNING, "link closed", _CUT_OFF, host, why)
        return False

    def needs_keys(self) -> str:
        """Why the log is not sent to a follower with RocketMQ's protocol, which has no keys; empty: it is
        sent."""
        if self._allowed or not self.shared.keys.required:
            return ""
        return (
            "it speaks RocketMQ's protocol, which has no keys; a broker of RocketMQ may copy the log when "
            "haAllowedPeers names its address"
        )

    def opened(self, connection: HaConnection) -> str:
        """Add an open connection; returns why there is no room for it, empty: there is."""
        why = "the port is closed" if self._listener is None else self._full(connection.host)
        if not why:
            self._seats.take(connection.host)
            self.connections[connection] = None
        return why

    def follows(self, connection: HaConnection) -> None:
        """Note that the log begins to be sent over this connection."""
        # Registered with the first follower only: a lone broker's writes call no waker. Called before all
        # other wakers, as senders may wait for the followers.
        self._store.on_written(self._written, first=True)
        self._followers = (*self._followers, connection)
        self._end_older(connection)
        self._on_follower()

    def _end_older(self, connection: HaConnection) -> None:
        """Close the older link of a broker that has connected: a network cut may have left this end of it
        open."""
        for older in list(self.connections):
            if older is connection:
                return
            if older.hello and connection.hello and self._come_again.replaces(connection.hello, older.hello):
                older.cut_off("it has come again")

    def lost(self, connection: HaConnection) -> bool:
        """Remove a closed connection; returns whether it was in the list."""
        self._followers = tuple(each for each in self._followers if each is not connection)
        if connection not in self.connections:
            return False
        del self.connections[connection]
        self._seats.leave(connection.host)
        return True

    def refuses(self, why: str) -> bool:
        """Whether to log a refusal: a refused follower connects again every few seconds, for days."""
        now = self._runtime.clock.monotonic()
        known = self._refusals.get(why)
        if known is not None and now - known < REFUSED_AGAIN_S:
            return False
        if len(self._refusals) >= MAX_REFUSALS:
            self._refusals.clear()
        self._refusals[why] = now
        return True

    def complain(self, connection: HaConnection, why: str) -> None:
        """Log why a connection is closed."""
        self._peers_log.write(logging.WARNING, "link closed", _CUT_OFF, connection.who, why)


class HaConnection(asyncio.Protocol):
    """One follower.

    Attributes:
        address: the follower's end of the connection, host:port.
        end: this broker's end of the link, once the follower's protocol is known.
    """

    def __init__(self, port: HaPort) -> None:
        self._port = port
        self._shared = port.shared
        self._transport: asyncio.Transport | None = None
        self._heard = self._shared.clock.monotonic()
        self._first = b""
        self.host = self.address = ""
        self.end: MasterEnd | None = None

    @property
    def sender(self) -> LogSender | None:
        """The sender of the log, ``None`` before the follower has sent the place to begin at."""
        return self.end.sender if self.end is not None else None

    @property
    def hello(self) -> Hello | None:
        """The greeting of a follower of OrbitMQ."""
        return self.end.hello if isinstance(self.end, StreamMaster) else None

    @property
    def who(self) -> str:
        """The follower's name for logs and status: the broker's own address, once it has sent that."""
        return self.hello.address if self.hello is not None else self.address

    @property
    def _heartbeat_s(self) -> float:
        return heartbeat_s(self._shared.config, stream=isinstance(self.end, StreamMaster))

    @property
    def state(self) -> ReplicaState | None:
        """The counters of the connection."""
        return self._shared.replicas.states.get(self.end) if self.end is not None else None

    # -- from the network ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport by shape only.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.host, self.address = str(peer[0]), f"{peer[0]}:{peer[1]}"
        # A sender continues only when its bytes have left this buffer, since bytes in the buffer are a copy,
        # see FileSender.
        self._transport.set_write_buffer_limits(high=0)
        if not self._port.allows(self.host):
            self._transport.abort()
        elif why := self._port.opened(self):
            self._port.complain(self, why)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._heard = self._shared.clock.monotonic()
        if self.end is None:
            self._first += data
            if len(self._first) < len(MAGIC):
                return
            data, self._first = self._first, b""
            if data.startswith(MAGIC):
                self.end, data = StreamMaster(self._shared, self._transport, self.cut_off), data[len(MAGIC) :]
            elif why := self._port.needs_keys():
                self._port.refused("", self.host, why)
                self.cut_off(why, tell=self._port.refuses(f"{self.host}: {why}"))
                return
            else:
                self.end = ClassicMaster(self._shared, self._transport, self.host)
        end = self.end
        followed = end.sender is not None
        try:
            end.receive(data, self._heard)
        except RefusedError as error:
            if isinstance(error, UnprovenError):
                self._port.refused(error.claimed, self.host, str(error))
            self.cut_off(str(error), tell=self._port.refuses(str(error)))
            return
        except (LinkError, ReportError) as error:
            self.cut_off(str(error))
            return
        except Exception as error:
            # A bug: log it and close the connection, because the order of frames is broken.
            log.exception("link from %s", self.address)
            self.cut_off(f"what it sent could not be taken: {error!r}")
            return
        if not followed and end.sender is not None:
            self._port.follows(self)
            log.info("%s follows from %d on", self.who, end.sender.begin)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def pause_writing(self) -> None:
        if self.sender is not None:
            self.sender.pause()

    def resume_writing(self) -> None:
        if self.sender is not None:
            self.sender.resume()

    # -- from the port ---------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send the follower new bytes of the log, if any were written."""
        sender = self.end.sender if self.end is not None else None
        if sender is None:
            return
        if why := sender.broken():
            self.cut_off(why)
        else:
            sender.pump()

    def look_after(self, now: float) -> None:
        """Send heartbeats, and close connections that send none."""
        config = self._shared.config
        if now - self._heard > config.ha_housekeeping_interval_ms / 1000:
            self.cut_off(f"not heard of for {config.ha_housekeeping_interval_ms} ms")
        elif self.sender is not None and (why := self._unproven()):
            self.cut_off(why, tell=self._port.refuses(f"{self.who}: {why}"))
        elif self.sender and now - self.sender.last_sent >= self._heartbeat_s:
            self.sender.heartbeat()
        self.pump()

    def _unproven(self) -> str:
        """Why an open link may not go on: keys, users or authMode have changed; empty: it may."""
        if isinstance(self.end, StreamMaster):
            return "" if self.end.checked.holds else "it has to prove again that it has the keys"
        return self._port.needs_keys()

    def cut_off(self, why: str, *, tell: bool = True) -> None:
        """End the connection and log why; bytes written to it before are still sent."""
        if tell:
            self._port.complain(self, why)
        if self._transport is not None and self.sender is None:
            self._transport.close()
        self.close()

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        self._forget()

    def _forget(self) -> None:
        if self.sender is not None:
            self.sender.stop()
        if self._port.lost(self) and self.end is not None:
            self.end.gone(self._shared.clock.monotonic())
