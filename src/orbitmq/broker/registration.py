"""Telling the name servers who we are and which topics we have (BrokerOuterAPI.registerBrokerAll)."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import dataclass, field

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import EVERY_ROLE, Role
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import every
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies import (
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers import QueryDataVersionRequest, RegisterBrokerRequest, UnregisterBrokerRequest

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS = 1000
UNREGISTER_LIMIT_SECONDS = 2.0
# A name server that was down is tried again soon, not only with the next period: it may start with us.
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 2.0
LIGHT_HEARTBEAT_SECONDS = 1.0
LIGHT_HEARTBEAT_TIMEOUT_MS = 1000


@dataclass(slots=True)
class _NameServer:
    """One name server. ``done`` counts the calls of ``soon`` that a registration here covers."""

    address: str
    reached: bool | None = None
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    done: int = 0


class Registration(Component):
    """Registers this broker with every name server: at once when a topic changed, and every period.

    The name servers do not wait for each other: one that hangs delays nobody.
    """

    name = "registration"
    runs_as = EVERY_ROLE - {Role.PRE_ONLINE}

    def __init__(self, runtime: Runtime, config: BrokerConfig, topics: TopicConfigs, address: str) -> None:
        self._clock = runtime.clock
        self._config = config
        self._topics = topics
        self._address = address
        self._runtime = runtime
        self._client = self._connect()
        self._servers = [_NameServer(a) for a in config.namesrv_addr.split(";") if a]
        self._backoff = Backoff(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, runtime.random)
        self._asked = 0
        self._progress = asyncio.Condition()

    @property
    def name_servers(self) -> list[str]:
        return [server.address for server in self._servers]

    def soon(self) -> None:
        """Register again as soon as the event loop is free."""
        self._asked += 1
        for server in self._servers:
            server.wanted.set()

    def _lost(self, address: str) -> None:
        for server in self._servers:
            if server.address == address:
                server.wanted.set()

    async def announced(self, timeout_ms: int) -> None:
        """Return when every name server that is not known to be down has the present topics.

        A name server that takes longer than ``timeout_ms`` is told all the same, only later.
        """
        self.soon()
        target = self._asked

        def all_told() -> bool:
            return all(server.done >= target for server in self._servers if server.reached is not False)

        try:
            async with self._progress:
                await asyncio.wait_for(self._progress.wait_for(all_told), timeout_ms / 1000)
        except TimeoutError:
            log.warning("registration of a new topic takes more than %d ms; it goes on", timeout_ms)

    def _connect(self) -> RemotingClient:
        # A name server that was restarted has forgotten us: RocketMQ's brokers let it wait for up to 30 s.
        return RemotingClient(self._runtime, on_lost=self._lost)

    async def start(self) -> None:
        self._spawn(self._run(), "registration")

    async def stop(self) -> None:
        """Leave the name servers; those that do not answer in time will notice that the broker went."""
        await self.end_work()
        try:
            await asyncio.wait_for(self._unregister(), UNREGISTER_LIMIT_SECONDS)
        except TimeoutError:
            log.info("the name servers do not answer; they will notice that broker %s went", self._address)
        await self._client.close()
        self._client = self._connect()

    async def _run(self) -> None:
        """Register for ever, and in acting mode show every second that we live (HB-02)."""
        work = [self._keep_registered(server) for server in self._servers]
        if self._config.enable_slave_acting_master:
            work.append(every(self._clock, LIGHT_HEARTBEAT_SECONDS, self._light_heartbeats))
        await asyncio.gather(*work)

    async def _light_heartbeats(self) -> None:
        """The version of our topics as a sign of life: name servers of any version read it (HB-03)."""
        header = QueryDataVersionRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._config.broker_id,
        )
        body = self._topics.version.encode()

        async def one(server: _NameServer) -> None:
            try:
                await self._client.oneway(server.address, header.command(body), LIGHT_HEARTBEAT_TIMEOUT_MS)
            except TransportError as error:
                log.debug("no light heartbeat to %s: %s", server.address, error)

        await asyncio.gather(*(one(server) for server in self._servers if server.reached))

    async def _keep_registered(self, server: _NameServer) -> None:
        period = self._config.register_period_ms / 1000
        failures = 0
        while True:
            server.wanted.clear()
            covered = self._asked
            reached = await self._register(server)
            async with self._progress:
                server.done = covered
                self._progress.notify_all()
            failures = 0 if reached else failures + 1
            pause = period if reached else min(self._backoff.pause_s(failures), period)
            try:
                # Not wait_for(): before Python 3.12 it loses a cancellation that comes with the event.
                async with asyncio.timeout(pause):
                    await server.wanted.wait()
            except TimeoutError:
                continue

    def _command(self) -> Command:
        body = self._body()
        ha_host = self._config.broker_ip2 or self._config.broker_ip1
        header = RegisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            ha_server_addr=f"{ha_host}:{self._config.ha_listen_port}",
            broker_id=self._config.broker_id,
            # Only a broker that also sends light heartbeats may ask for the short timeout (NR-01).
            heartbeat_timeout_millis=(
                self._config.broker_not_active_timeout_ms if self._config.enable_slave_acting_master else None
            ),
            enable_acting_master=self._config.enable_slave_acting_master,
            compressed=False,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return header.command(body)

    async def _unregister(self) -> None:
        """Tell every name server that we go; those that do not answer within a second are left."""
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
                log.info("name server %s does not hear that we go: %s", server.address, error)

        await asyncio.gather(*(one(server) for server in self._servers if server.reached))

    async def _register(self, server: _NameServer) -> bool:
        try:
            response = await self._client.request(
                server.address, self._command(), self._config.register_timeout_ms
            )
        except TransportError as error:
            self._note(server, str(error))
            return False
        if response.code != ResponseCode.SUCCESS:
            self._note(server, f"code {response.code}: {response.remark}")
            return False
        self._note(server, None)
        if response.body:
            try:
                self._topics.mark_order_topics(KVTable.decode(response.body).table)
            except WireError as error:
                log.warning("name server %s sent an unreadable order table: %s", server.address, error)
        return True

    def _note(self, server: _NameServer, problem: str | None) -> None:
        """Log what changed, not every attempt."""
        reached = problem is None
        if reached == server.reached:
            return
        server.reached = reached
        if reached:
            log.info("registered with name server %s as %s", server.address, self._address)
        else:
            log.warning("name server %s does not take our registration: %s", server.address, problem)

    def _body(self) -> bytes:
        permission = self._config.broker_permission
        table = {topic.topic_name: _limited(topic, permission) for topic in self._topics}
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=self._topics.version, topic_config_table=table
        )
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()


def _limited(topic: TopicConfig, permission: int) -> TopicConfig:
    """The topic as clients may use it: never more than the broker allows."""
    if permission & 6 == 6:
        return topic
    limited = TopicConfig.decode(topic.encode())
    limited.perm &= permission
    return limited
