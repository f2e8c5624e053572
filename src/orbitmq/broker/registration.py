"""Registers this broker's address and topics with the name servers (BrokerOuterAPI.registerBrokerAll)."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, MasterNamed
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.own_requests import client_of
from orbitmq.broker.role import EVERY_ROLE, Role
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Runtime
from orbitmq.settings import properties_text
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire import fastjson
from orbitmq.wire.addresses import joined
from orbitmq.wire.bodies.route import RegisterBrokerBody
from orbitmq.wire.bodies.topic import DataVersion, KVTable, TopicConfig, TopicConfigAndMappingSerializeWrapper
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers.route import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)

log = logging.getLogger(__name__)

# How long an answer to a client may wait for the name servers: the client itself waits 3 s.
ANNOUNCE_TIMEOUT_MS = 1000
UNREGISTER_TIMEOUT_MS = 1000
UNREGISTER_LIMIT_SECONDS = 2.0
# A name server that was down is tried again soon, not only with the next period: it may just be starting.
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 2.0
# Topics of one request, and of one slice of encoding in one turn of the event loop (0.3 ms).
REQUEST_TOPICS = 1000
SLICE_TOPICS = 32
_REMOVES_MISSING = "deleteTopicWithBrokerRegistration"
_ACTING = "supportActingMaster"
_EMPTY_TABLE = b'"topicConfigTable":{}'


class _RefusedError(Exception):
    """A name server answered with an error code."""


@dataclass(slots=True)
class _NameServer:
    """One name server.

    Attributes:
        done: the number of the last change of topics that it has.
        changed: topics with changes that it does not have, oldest change first.
        whole: whether it must get all topics, because it may have none, or others.
        lacks_acting: whether it does not show a slave in its master's place (supportActingMaster).
        removes_missing: whether it forgets the topics that a registration does not name.
    """

    address: str
    reached: bool | None = None
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    done: int = 0
    changed: dict[str, None] = field(default_factory=dict)
    whole: bool = True
    removes_missing: bool = False
    lacks_acting: bool = False


class Registration(Component):
    """Registers this broker with every name server: changed topics at once, and every period.

    A name server gets the whole table at first contact, after its connection was lost, and when it lacks this
    table's version. Otherwise a registration names only the topics that changed, with the new version: name
    servers of 4.9 and 5.x keep the topics that a registration does not name (RouteInfoManager), unless 5.x's
    ``deleteTopicWithBrokerRegistration`` is on; such a name server always gets the whole table.

    The name servers do not wait for each other: one that hangs does not delay the others.
    """

    name = "registration"
    runs_as = EVERY_ROLE - {Role.PRE_ONLINE}

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, topics: TopicConfigs, address: str, events: Events
    ) -> None:
        self._clock = runtime.clock
        self._config = config
        self._topics = topics
        self._address = address
        self._runtime = runtime
        self._client = self._connect()
        self._servers = [_NameServer(address) for address in config.name_servers]
        self._servers_changed = asyncio.Event()
        # The port for slaves; replication sets the one on which it listens.
        self.ha_port = config.ha_listen_port
        self._events = events
        self._backoff = Backoff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, runtime.random)
        self._changes = 0
        # For each topic that not all name servers have, the number of its last change; the oldest first.
        self._unsent: dict[str, int] = {}
        self._limiter = LogLimiter(log)
        self._progress = asyncio.Condition()

    @property
    def ha_address(self) -> str:
        """The address for slaves."""
        return joined(self._config.broker_ip2 or self._config.broker_ip1, self.ha_port)

    @property
    def name_servers(self) -> list[str]:
        return [server.address for server in self._servers]

    @property
    def registered(self) -> bool:
        """Whether a name server accepted the last registration that was sent to it."""
        return any(server.reached for server in self._servers)

    def name_servers_changed(self) -> None:
        """Register with the name servers that the settings have now. A name server that was removed from them
        drops this broker after its own timeout."""
        known = {server.address: server for server in self._servers}
        addresses = self._config.name_servers
        self._servers = [known.get(address) or _NameServer(address) for address in addresses]
        self._servers_changed.set()

    def topic_changed(self, topic: str) -> None:
        """Send a topic to the name servers as soon as the event loop is free, with all changes until then."""
        self._changes += 1
        if self._servers:
            self._unsent.pop(topic, None)
            self._unsent[topic] = self._changes
        for server in self._servers:
            if not server.whole:
                server.changed[topic] = None
            server.wanted.set()

    def all_changed(self) -> None:
        """Send all topics to the name servers as soon as the event loop is free."""
        self._changes += 1
        for server in self._servers:
            self._forget(server)
            server.wanted.set()

    def _forget(self, server: _NameServer) -> None:
        """Note that the name server may lack this broker's table."""
        server.whole = True
        server.changed.clear()

    def _lost(self, address: str) -> None:
        for server in self._servers:
            if server.address == address:
                self._forget(server)
                server.wanted.set()

    def is_announced(self, topics: Iterable[str]) -> bool:
        """Whether clients find these topics at the name servers.

        True when every name server, except those known to be down, has the last change of each topic; also
        for a broker that registers nowhere, or not in its role.
        """
        return self._background is None or self._sent_to_all() >= self._last_change(topics)

    async def announced(self, topics: Iterable[str]) -> None:
        """Return when :meth:`is_announced`, so that a client finds each topic that an answer mentions.

        After :data:`ANNOUNCE_TIMEOUT_MS` it returns anyway; a slower name server gets the topics later.
        """
        topics = list(topics)
        if self.is_announced(topics):
            return
        wanted = self._last_change(topics)
        try:
            async with self._progress:
                await asyncio.wait_for(
                    self._progress.wait_for(lambda: self._sent_to_all() >= wanted), ANNOUNCE_TIMEOUT_MS / 1000
                )
        except TimeoutError:
            text = "registration of a new topic takes more than %d ms; it goes on"
            self._limiter.write(logging.WARNING, "slow", text, ANNOUNCE_TIMEOUT_MS)

    def _last_change(self, topics: Iterable[str]) -> int:
        return max((self._unsent.get(topic, 0) for topic in topics), default=0)

    def _sent_to_all(self) -> int:
        """The number of the last change that every name server has, except those known to be down."""
        sent = (server.done for server in self._servers if server.reached is not False)
        return min(sent, default=self._changes)

    def _connect(self) -> RemotingClient:
        # After a lost connection the broker registers again at once: the name server may have restarted, and
        # then has no registrations. RocketMQ's brokers wait for the next period, up to 30 s.
        return client_of(self._runtime, self._config, on_lost=self._lost)

    async def start(self) -> None:
        for server in self._servers:
            self._forget(server)
        self._spawn(self._run(), "registration")

    async def stop(self) -> None:
        """Unregister. A name server that does not answer in time drops this broker after its own timeout."""
        await self.end_work()
        try:
            await asyncio.wait_for(self._unregister(), UNREGISTER_LIMIT_SECONDS)
        except TimeoutError:
            log.info("the name servers do not answer; they will notice that broker %s left", self._address)
        await self._client.close()
        self._client = self._connect()

    async def _run(self) -> None:
        """Register until cancelled."""
        while True:
            self._servers_changed.clear()
            tasks = {asyncio.ensure_future(self._keep_registered(server)) for server in self._servers}
            changed = asyncio.ensure_future(self._servers_changed.wait())
            try:
                done, _ = await asyncio.wait({*tasks, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*tasks, changed):
                    task.cancel()
                await asyncio.gather(*tasks, changed, return_exceptions=True)
            for task in done & tasks:
                task.result()  # these tasks never end by themselves, so this raises their error

    def _version_query(self) -> Command:
        header = QueryDataVersionRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._config.broker_id,
        )
        return header.command(self._topics.version.encode())

    async def _keep_registered(self, server: _NameServer) -> None:
        period = self._config.register_period_ms / 1000
        failures = 0
        periodic = True
        while True:
            server.wanted.clear()
            covered = self._changes
            reached = await self._send_lacking(server, periodic)
            async with self._progress:
                server.done = covered
                self._forget_sent()
                self._progress.notify_all()
            failures = 0 if reached else failures + 1
            pause = period if reached else min(self._backoff.pause_s(failures), period)
            periodic = False
            try:
                # wait_for() would lose a cancellation that comes with the event, before Python 3.12.
                async with asyncio.timeout(pause):
                    await server.wanted.wait()
            except TimeoutError:
                periodic = True

    def _forget_sent(self) -> None:
        sent = self._sent_to_all()
        while self._unsent and next(iter(self._unsent.values())) <= sent:
            del self._unsent[next(iter(self._unsent))]

    async def _send_lacking(self, server: _NameServer, periodic: bool) -> bool:
        """Send one name server the changes that it lacks; False: that failed."""
        try:
            if periodic or server.whole:
                await self._query_state(server)
            if server.whole or server.removes_missing:
                await self._register_all(server)
            else:
                await self._register_changed(server)
        except (TransportError, _RefusedError) as error:
            self._forget(server)
            self._note(server, str(error))
            return False
        self._note(server, None)
        return True

    # -- requests --------------------------------------------------------------------------------------

    async def _query_state(self, server: _NameServer) -> None:
        """Find out whether the name server has this broker's table, and what it does with partial tables."""
        if not server.whole:
            response = await self._request(server, self._version_query())
            # A name server that does not support the request gets the whole table.
            same = response.code == ResponseCode.SUCCESS and not _is_changed(response)
            if not same:
                self._forget(server)
        response = await self._request(server, Command(RequestCode.GET_NAMESRV_CONFIG))
        settings = {}
        if response.code == ResponseCode.SUCCESS:
            settings = properties_text.parse(response.body.decode("utf-8", "replace"))
        server.removes_missing = settings.get(_REMOVES_MISSING, "false").lower() == "true"
        lacks = response.code == ResponseCode.SUCCESS and settings.get(_ACTING, "false").lower() != "true"
        if lacks and not server.lacks_acting and self._config.enable_slave_acting_master:
            log.warning(
                "name server %s has not %s=true: clients do not see a slave that acts for its master there",
                server.address,
                _ACTING,
            )
        server.lacks_acting = lacks

    async def _register_all(self, server: _NameServer) -> None:
        """Register the whole table, in parts if the name server keeps topics that a part leaves out.

        Only the last part has the table's version. The other parts have versions of their own, because a name
        server ignores a registration whose version it already has.
        """
        server.whole = False
        server.changed.clear()
        version = self._topics.version
        names = [topic.topic_name for topic in self._topics]
        size = len(names) if server.removes_missing else REQUEST_TOPICS
        parts = [names[at : at + size] for at in range(0, len(names), size)]
        for number, part in enumerate(parts, 1 - len(parts)):
            marked = DataVersion(version.state_version, version.timestamp + number, version.counter)
            await self._register(server, part, marked)

    async def _register_changed(self, server: _NameServer) -> None:
        changed = list(server.changed)
        server.changed.clear()
        await self._register(server, changed, self._topics.version)

    async def _request(self, server: _NameServer, command: Command) -> Command:
        return await self._client.request(server.address, command, self._config.register_timeout_ms)

    async def _register(self, server: _NameServer, topics: list[str], version: DataVersion) -> None:
        body = await self._body(topics, version)
        header = RegisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=self._config.broker_id,
            # Only a broker that also sends light heartbeats may request the short timeout (NR-01).
            heartbeat_timeout_millis=(
                self._config.broker_not_active_timeout_ms if self._config.enable_slave_acting_master else None
            ),
            enable_acting_master=self._config.enable_slave_acting_master,
            compressed=False,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        response = await self._request(server, header.command(body))
        if response.code != ResponseCode.SUCCESS:
            raise _RefusedError(f"code {response.code}: {response.remark}")
        self._read_master(response)
        if response.body:
            try:
                self._topics.mark_order_topics(KVTable.decode(response.body).table)
            except WireError as error:
                log.warning("name server %s sent an unreadable order table: %s", server.address, error)

    def _read_master(self, response: Command) -> None:
        try:
            master = RegisterBrokerResponse.from_ext(response.ext)
        except WireError:
            return
        if master.ha_server_addr and master.master_addr:
            self._events.publish(MasterNamed(master.ha_server_addr, master.master_addr))

    async def _body(self, topics: list[str], version: DataVersion) -> bytes:
        """A RegisterBrokerBody with those of ``topics`` that exist."""
        empty = RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(data_version=version)).encode()
        head, table, tail = empty.partition(_EMPTY_TABLE)
        permission = self._config.broker_permission
        entries = []
        for number, name in enumerate(topics, 1):
            config = self._topics.get(name)
            if config is not None:
                entries.append(b"%b:%b" % (fastjson.dumps(name), _limited(config, permission).encode()))
            if number % SLICE_TOPICS == 0:
                await asyncio.sleep(0)
        return b"".join((head, table[:-1], b",".join(entries), b"}", tail))

    async def _unregister(self) -> None:
        """Unregister at every name server, without waiting more than a second for answers."""
        header = UnregisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._config.broker_id,
        )

        async def one(server: _NameServer) -> None:
            try:
                await self._client.request(server.address, header.command(), UNREGISTER_TIMEOUT_MS)
            except TransportError as error:
                log.info("name server %s did not get this broker's unregistration: %s", server.address, error)

        await asyncio.gather(*(one(server) for server in self._servers if server.reached))

    def _note(self, server: _NameServer, problem: str | None) -> None:
        """Log changes of the outcome, not every attempt."""
        reached = problem is None
        if reached == server.reached:
            return
        server.reached = reached
        if reached:
            log.info("registered with name server %s as %s", server.address, self._address)
        else:
            log.warning(
                "name server %s does not take this broker's registration: %s", server.address, problem
            )


def _is_changed(response: Command) -> bool:
    try:
        return QueryDataVersionResponse.from_ext(response.ext).changed
    except WireError:
        return True


def _limited(topic: TopicConfig, permission: int) -> TopicConfig:
    """The topic with the permissions that both the topic and the broker give, without its creation time."""
    allowed = topic.perm if permission & 6 == 6 else topic.perm & permission
    if allowed == topic.perm and topic.made_at is None:
        return topic
    return replace(topic, perm=allowed, made_at=None)
