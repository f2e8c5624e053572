"""A scripted slave of Apache RocketMQ: its responses while it acts for its master, and its HA port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from struct import pack, unpack_from
from typing import Any

from orbitmq.message.record import is_blank
from orbitmq.runtime.seam import Listener
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.group import SubscriptionGroupWrapper
from orbitmq.wire.bodies.pop import MessageRequestModeSerializeWrapper
from orbitmq.wire.bodies.stats import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from orbitmq.wire.bodies.topic import (
    DataVersion,
    KVTable,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import ViewMessageByIdRequest
from orbitmq.wire.headers.route import RegisterBrokerRequest

HOST = "10.9.9.9"
FRAME_BYTES = 32 * 1024


@dataclass
class JavaLog:
    """The commit log that the slave copied; ``data`` begins at offset ``first``, the start of a file."""

    data: bytes
    file_bytes: int
    first: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.data)

    def record(self, offset: int) -> bytes | None:
        at = offset - self.first
        if not 0 <= at < len(self.data) or is_blank(self.data, at):
            return None
        return self.data[at : at + unpack_from(">i", self.data, at)[0]]

    def records(self) -> Iterator[bytes]:
        """All messages; the blanks at the ends of files are left out."""
        at = self.first
        while at < self.end:
            record = self.record(at)
            if record is not None:
                yield record
            at += len(record) if record is not None else self.file_bytes - at % self.file_bytes


class _Follower(asyncio.Protocol):
    """A connection to the slave's HA port: the first report names the offset from which the log is sent."""

    def __init__(self, log: JavaLog, reports: list[int]) -> None:
        self._log = log
        self._reports = reports
        self._begun = False
        self._rest = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % 8
        self._rest = data[whole:]
        self._reports += [unpack_from(">q", data, at)[0] for at in range(0, whole, 8)]
        if self._begun or not self._reports:
            return
        self._begun, log = True, self._log
        at = self._reports[-1] or log.end - log.end % log.file_bytes
        while at < log.end:
            size = min(FRAME_BYTES, log.end - at, log.file_bytes - at % log.file_bytes)
            piece = log.data[at - log.first : at - log.first + size]
            self._transport.write(pack(">qi", at, size) + piece)
            at += size


class JavaSlave:
    """A slave that acts until :attr:`active` is false and delivers meanwhile; its tables' version never
    changes.

    Args:
        log: its commit log; ``None`` lets requests for the log fail.

    Attributes:
        refusals: response codes that replace the response to a request code.
        silent: request codes that get no response.
        reports: the offsets reported over its HA port.
    """

    def __init__(self, world: World, log: JavaLog | None = None) -> None:
        self.active = True
        self.delivered = 3
        self.topics: dict[str, TopicConfig] = {}
        self.refusals: dict[int, ResponseCode] = {}
        self.silent: set[int] = set()
        self.reports: list[int] = []
        self.log = log
        self._ha_port: Listener | None = None
        self.runtime = world.runtime.machine(HOST)
        self.server = RemotingServer(self.runtime, self._answer)
        self.client = RemotingClient(self.runtime)
        self.address = f"{HOST}:10911"

    async def start(self) -> None:
        """Serve both ports."""
        await self.server.start(HOST, 10911)
        if (log := self.log) is not None:
            network = self.runtime.network
            self._ha_port = await network.listen(lambda: _Follower(log, self.reports), HOST, 10912)

    async def stop(self) -> None:
        await self.client.close()
        await self.server.stop()
        if self._ha_port is not None:
            await self._ha_port.close()

    def _answer(self, _connection: Any, command: Command) -> Command | None:
        if command.code in self.silent:
            return None
        if command.code in self.refusals:
            return command.reply(self.refusals[command.code])
        if command.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            return command.reply()
        body = self._body(command)
        return command.reply(ResponseCode.SYSTEM_ERROR) if body is None else command.reply(body=body)

    def _body(self, command: Command) -> bytes | None:
        log, version = self.log, DataVersion(0, 1, 1)
        match command.code:
            case RequestCode.GET_BROKER_RUNTIME_INFO:
                table = {"brokerActive": str(self.active).lower()}
                if log is not None:
                    table |= {"commitLogMinOffset": str(log.first), "commitLogMaxOffset": str(log.end)}
                return KVTable(table).encode()
            case RequestCode.GET_BROKER_CONFIG:
                settings = {"brokerIP2": HOST, "haListenPort": "10912", "brokerId": "1"}
                if log is not None:
                    settings["mappedFileSizeCommitLog"] = str(log.file_bytes)
                return "\n".join(f"{key}={value}" for key, value in settings.items()).encode()
            case RequestCode.VIEW_MESSAGE_BY_ID:
                at = ViewMessageByIdRequest.from_ext(command.ext).offset
                return None if log is None else log.record(at)
            case RequestCode.GET_ALL_DELAY_OFFSET:
                progress = DelayOffsetSerializeWrapper(data_version=version, offset_table={1: self.delivered})
                return progress.encode()
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return ConsumerOffsetSerializeWrapper(data_version=version).encode()
            case RequestCode.GET_TIMER_CHECK_POINT:
                return bytes(56)
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                wrapper = TopicConfigAndMappingSerializeWrapper(
                    topic_config_table=self.topics, data_version=version
                )
                return wrapper.encode()
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return SubscriptionGroupWrapper(data_version=version).encode()
            case RequestCode.GET_ALL_MESSAGE_REQUEST_MODE:
                return MessageRequestModeSerializeWrapper().encode()
            case _:
                return None

    async def show(self, name_server: str) -> None:
        """Register at the name server every second."""
        while True:
            header = RegisterBrokerRequest(
                broker_name="broker-a",
                broker_addr=self.address,
                cluster_name="DefaultCluster",
                ha_server_addr=f"{HOST}:10912",
                broker_id=1,
            )
            await self.client.request(name_server, header.command(), 3000)
            await self.runtime.clock.sleep(1)


@asynccontextmanager
async def java_slave(world: World, log: JavaLog | None = None) -> AsyncIterator[JavaSlave]:
    """A registered slave that acts for its master."""
    slave = JavaSlave(world, log)
    await slave.start()
    showing = asyncio.ensure_future(slave.show(world.name_server))
    try:
        yield slave
    finally:
        showing.cancel()
        await slave.stop()
