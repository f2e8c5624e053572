"""Operations on clients: the connections of groups and producers, and what one consumer works on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orbitmq.admin.answers import LeftOut, Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient, side_by_side
from orbitmq.admin.group_settings import GroupSettings
from orbitmq.admin.model import BrokerInfo
from orbitmq.admin.tables import Tables
from orbitmq.durations import Duration, as_seconds
from orbitmq.errors import ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import is_built_in_group
from orbitmq.transport.errors import RequestTimeoutError
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ListedConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

# Behind the begin of a name: all names that begin so.
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client of a group that is connected.

    Attributes:
        role: "producer" or "consumer".
        brokers: names of the brokers that it is connected to.
    """

    role: str
    group: str
    client_id: str
    address: str
    language: str
    version: int
    brokers: Sequence[str]


@dataclass(frozen=True, slots=True)
class QueueAtClient:
    """A queue that a consumer reads. ``cached``: its messages that are fetched and not done yet."""

    queue: MessageQueue
    committed: int
    cached: int


@dataclass(frozen=True, slots=True)
class RunningClient:
    """What a consumer says of itself.

    Attributes:
        properties: its settings and times, by RocketMQ's names.
        stacks: where its threads are; empty: they were not asked for, or it does not say.
    """

    group: str
    client_id: str
    properties: Mapping[str, str]
    queues: Sequence[QueueAtClient]
    stacks: str


@checks_arguments
class ClientAdmin:
    """Operations on clients, as ``Admin.clients``. Nothing of them is changed."""

    def __init__(self, cluster: ClusterClient, tables: Tables[GroupSettings]) -> None:
        self._cluster = cluster
        self._tables = tables

    async def list(
        self, *, group: str | None = None, address: str | None = None, within: Duration | None = None
    ) -> Partial[Sequence[ConnectedClient]]:
        """The connected producers and consumers, of one group or of all but RocketMQ's own.

        Args:
            group: its name, or the begin of several names with ``*`` behind it.
            address: of a live broker; only its connections are listed.
            within: seconds for asking about the consumers of several groups: Apache's brokers are asked about
                each group. Those that were not asked are told as a broker that is left out.

        Raises:
            ValidationError: no broker is registered at ``address``.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        limit_s = None if within is None else as_seconds(within)
        answers = await self._cluster.at_each(
            await self._brokers(address), lambda broker: self._at(broker, group, limit_s)
        )
        found: dict[tuple[str, str, str], ConnectedClient] = {}
        missing: list[LeftOut] = []
        for broker, (clients, unasked) in answers.pairs:
            if unasked:
                late = RequestTimeoutError(f"{unasked} within {limit_s:g} s")
                missing.append(LeftOut(broker.name, broker.address, str(late), late))
            for one in clients:
                key = (one.role, one.group, one.client_id)
                known = found.get(key)
                brokers = [*(known.brokers if known else ()), broker.name]
                found[key] = ConnectedClient(*key, one.address, one.language, one.version, brokers)
        whole = answers.partial([found[key] for key in sorted(found)])
        return Partial(whole.found, (*whole.left_out, *missing), whole.text)

    async def show(self, group: str, client_id: str, *, stacks: bool = False) -> Partial[RunningClient]:
        """What a consumer says of itself, through a broker that it is connected to.

        Args:
            stacks: ask for the stacks of its threads, too.

        Raises:
            ValidationError: no broker that answers has this client in the group.
            BrokerError, TransportError: it does not answer.
            NameServerError: no name server answers.
        """
        answer = await self.list(group=group)
        place = next(
            (one for one in answer.found if (one.role, one.client_id) == ("consumer", client_id)), None
        )
        if place is None:
            there = ", ".join(one.client_id for one in answer.found if one.role == "consumer") or "none"
            raise ValidationError(f"group {group} has no consumer {client_id} online; there are: {there}")
        broker = next(one for one in await self._cluster.leaders() if one.name in place.brokers)
        request = headers.GetConsumerRunningInfoRequest(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        info = ConsumerRunningInfo.decode((await self._cluster.ask(broker.address, request.command())).body)
        queues = [
            QueueAtClient(queue, one.commit_offset, one.cached_msg_count)
            for queue, one in sorted(info.mq_table.items())
        ]
        running = RunningClient(
            group, client_id, dict(sorted(info.properties.items())), queues, info.jstack or ""
        )
        return Partial(running, answer.left_out)

    async def _brokers(self, address: str | None) -> Sequence[BrokerInfo]:
        if address is None:
            return await self._cluster.leaders()
        found = [one for one in await self._cluster.brokers() if one.address == address]
        if not found:
            raise ValidationError(f"address: no broker is registered at {address[:80]}")
        return found

    async def _at(
        self, broker: BrokerInfo, group: str | None, limit_s: float | None
    ) -> tuple[Sequence[ConnectedClient], str]:
        """The clients of a broker, and which groups it was not asked about. An Apache broker is asked for the
        consumers of each group.
        """
        consumers: Mapping[str, Sequence[ListedConnection]] | None
        unasked = ""
        if group is not None and not group.endswith(ANY):
            told, online = await asyncio.gather(self._told(broker), self._online(broker, group))
            consumers = {group: online}
        else:
            told = await self._told(broker, {"consumers": "true"})
            consumers = told.consumers
            if consumers is None:
                consumers, unasked = await self._consumers(broker, group, limit_s)
        found: list[tuple[str, str, ProducerInfo | ListedConnection, str]] = [
            *(("producer", name, one, one.remote_ip) for name, some in told.data.items() for one in some),
            *(("consumer", name, one, one.client_addr) for name, some in consumers.items() for one in some),
        ]
        clients = [
            ConnectedClient(role, name, one.client_id, address, one.language, one.version, ())
            for role, name, one, address in found
            if _is_meant(name, group)
        ]
        return clients, unasked

    async def _told(self, broker: BrokerInfo, fields: Mapping[str, str] | None = None) -> ProducerTableInfo:
        """The producers of a broker; with the field ``consumers`` an OrbitMQ broker adds its consumers. A
        broker before 4.8 does not know the request: then the result is empty.
        """
        request = Command(RequestCode.GET_ALL_PRODUCER_INFO, dict(fields or {}))
        answer = await self._cluster.ask_unless(
            broker.address, request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        )
        return ProducerTableInfo() if answer is None else ProducerTableInfo.decode(answer.body)

    async def _consumers(
        self, broker: BrokerInfo, group: str | None, limit_s: float | None
    ) -> tuple[Mapping[str, Sequence[ListedConnection]], str]:
        """The consumers of each group, and which groups were not asked about in time."""
        found: dict[str, Sequence[ListedConnection]] = {}
        names: Sequence[str] | None = None

        async def look(name: str) -> None:
            found[name] = await self._online(broker, name)

        try:
            async with asyncio.timeout(limit_s):
                names = [name for name in await self._tables.of(broker) if _is_meant(name, group)]
                await side_by_side(names, look)
        except TimeoutError:
            if names is None:
                return {}, "its groups were not listed"
            return dict(found), f"{len(names) - len(found):,} of {len(names):,} groups were not asked about"
        return found, ""

    async def _online(self, broker: BrokerInfo, group: str) -> Sequence[ListedConnection]:
        request = headers.GetConsumerConnectionListRequest(consumer_group=group).command()
        answer = await self._cluster.ask_unless(broker.address, request, ResponseCode.CONSUMER_NOT_ONLINE)
        return [] if answer is None else ConsumerConnection.decode(answer.body).connection_set


def _is_meant(name: str, group: str | None) -> bool:
    """Whether a group is one of those asked for; RocketMQ's own are only if they are named."""
    if group is None or group.endswith(ANY):
        return name.startswith((group or ANY)[:-1]) and not is_built_in_group(name)
    return name == group
