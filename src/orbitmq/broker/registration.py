"""Telling the name servers who we are and which topics we have (BrokerOuterAPI.registerBrokerAll)."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import dataclass

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.topics import TopicConfigs
from orbitmq.runtime.seam import Runtime
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
from orbitmq.wire.headers import RegisterBrokerRequest, UnregisterBrokerRequest

log = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS = 1000
# A name server that was down is tried again soon, not only with the next period: it may start with us.
FIRST_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 2.0


@dataclass(slots=True)
class _NameServer:
    address: str
    reached: bool | None = None


class Registration:
    """Registers this broker with every name server: at once when a topic changed, and every period."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, topics: TopicConfigs, address: str) -> None:
        self._clock = runtime.clock
        self._config = config
        self._topics = topics
        self._address = address
        # A name server that was restarted has forgotten us: RocketMQ's brokers let it wait for up to 30 s.
        self._client = RemotingClient(runtime, on_lost=lambda _address: self.soon())
        self._servers = [_NameServer(a) for a in config.namesrv_addr.split(";") if a]
        self._wanted = asyncio.Event()
        self._started = 0
        self._done = 0
        self._finished = asyncio.Condition()

    @property
    def name_servers(self) -> list[str]:
        return [server.address for server in self._servers]

    def soon(self) -> None:
        """Register again as soon as the event loop is free."""
        self._wanted.set()

    async def announced(self, timeout_ms: int) -> None:
        """Return when a registration begun from now on has ended, or after ``timeout_ms``."""
        if not self._servers:
            return
        target = self._started + 1
        self.soon()
        try:
            async with self._finished:
                await asyncio.wait_for(
                    self._finished.wait_for(lambda: self._done >= target), timeout_ms / 1000
                )
        except TimeoutError:
            log.warning("registration of a new topic takes more than %d ms; it goes on", timeout_ms)

    async def run(self) -> None:
        """Register for ever."""
        retry = FIRST_RETRY_SECONDS
        while self._servers:
            self._wanted.clear()
            self._started += 1
            number = self._started
            all_reached = await self.register()
            async with self._finished:
                self._done = number
                self._finished.notify_all()
            period = self._config.register_period_ms / 1000
            pause = period if all_reached else retry
            retry = FIRST_RETRY_SECONDS if all_reached else min(2 * retry, MAX_RETRY_SECONDS)
            try:
                await asyncio.wait_for(self._wanted.wait(), pause)
            except TimeoutError:
                continue

    async def register(self) -> bool:
        """Register with every name server, all at the same time; whether all took it."""
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
        command = header.command(body)
        results = await asyncio.gather(*(self._register_one(server, command) for server in self._servers))
        return all(results)

    async def unregister(self) -> None:
        """Tell every name server that we go; those that do not answer within a second are left."""
        command = UnregisterBrokerRequest(
            broker_name=self._config.broker_name,
            broker_addr=self._address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._config.broker_id,
        ).command()

        async def one(server: _NameServer) -> None:
            try:
                await self._client.request(server.address, _copy(command), UNREGISTER_TIMEOUT_MS)
            except TransportError as error:
                log.info("name server %s does not hear that we go: %s", server.address, error)

        await asyncio.gather(*(one(server) for server in self._servers if server.reached))

    async def close(self) -> None:
        await self._client.close()

    async def _register_one(self, server: _NameServer, command: Command) -> bool:
        try:
            response = await self._client.request(
                server.address, _copy(command), self._config.register_timeout_ms
            )
        except TransportError as error:
            self._note(server, f"{error}")
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


def _copy(command: Command) -> Command:
    """A request of its own for each address, because sending numbers it."""
    return Command(command.code, dict(command.ext), command.body)
