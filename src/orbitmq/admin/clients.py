"""Operations on clients: the connections of producers and consumers, and the queues of one consumer."""

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

# At the end of a group's name: matches all names with this prefix.
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A connected client of a group.

    Attributes:
        role: "producer" or "consumer".
        brokers: names of the brokers with a connection of this client.
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
    """A queue that a consumer reads. ``cached``: number of its messages that are fetched and not done."""

    queue: MessageQueue
    committed: int
    cached: int


@dataclass(frozen=True, slots=True)
class RunningClient:
    """The running information that a consumer reports.

    Attributes:
        properties: the consumer's settings and times, by RocketMQ's names.
        stacks: the stacks of its threads; empty if they were not requested, or the consumer does not report
            them.
    """

    group: str
    client_id: str
    properties: Mapping[str, str]
    queues: Sequence[QueueAtClient]
    stacks: str


@checks_arguments
class ClientAdmin:
    """Operations on clients, as ``Admin.clients``. They change nothing."""

    def __init__(self, cluster: ClusterClient, tables: Tables[GroupSettings]) -> None:
        self._cluster = cluster
        self._tables = tables

    async def list(
        self, *, group: str | None = None, address: str | None = None, within: Duration | None = None
    ) -> Partial[Sequence[ConnectedClient]]:
        """The connected producers and consumers of one group, or of all groups except RocketMQ's own.

        Args:
            group: the group's name, or a prefix of names followed by ``*``.
            address: the address of a live broker; only its connections are listed.
            within: time limit in seconds for the requests about consumers of several groups: Apache's brokers
                need one request per group. Groups that were not reached in time are reported as a broker that
                is left out.

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
        """The running information of a consumer, requested through a broker that it is connected to.

        Args:
            stacks: request the stacks of its threads, too.

        Raises:
            ValidationError: no broker that answers has this client in the group.
            BrokerError, TransportError: the consumer does not answer.
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
        """The clients of a broker, and the groups that the requests did not reach in time: an Apache broker
        needs one request per group.
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
        broker before 4.8 does not support the request; the result is then empty.
        """
        request = Command(RequestCode.GET_ALL_PRODUCER_INFO, dict(fields or {}))
        answer = await self._cluster.ask_unless(
            broker.address, request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        )
        return ProducerTableInfo() if answer is None else ProducerTableInfo.decode(answer.body)

    async def _consumers(
        self, broker: BrokerInfo, group: str | None, limit_s: float | None
    ) -> tuple[Mapping[str, Sequence[ListedConnection]], str]:
        """The consumers of each group, and the groups that the requests did not reach in time."""
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
    """Whether a group matches the requested one; RocketMQ's own groups match only by their full name."""
    if group is None or group.endswith(ANY):
        return name.startswith((group or ANY)[:-1]) and not is_built_in_group(name)
    return name == group
