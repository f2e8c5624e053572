"""Operations on clients: the connections of groups and producers, and what one consumer works on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orbitmq.admin.answers import Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import SYSTEM_GROUPS, is_system_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerConnection, ConsumerRunningInfo, ProducerTableInfo
from orbitmq.wire.bodies.group import SubscriptionGroupWrapper
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

# Most groups of a broker that are asked about at the same time.
SIDE_BY_SIDE = 16


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

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list(
        self, *, group: str | None = None, address: str | None = None
    ) -> Partial[Sequence[ConnectedClient]]:
        """The connected producers and consumers, of one group or of all but RocketMQ's own.

        Args:
            address: of a live broker; only its connections are listed.

        Raises:
            ValidationError: no broker is registered at ``address``.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answers = await self._cluster.at_each(
            await self._brokers(address), lambda broker: self._at(broker, group)
        )
        found: dict[tuple[str, str, str], ConnectedClient] = {}
        for broker, clients in answers.pairs:
            for one in clients:
                key = (one.role, one.group, one.client_id)
                known = found.get(key)
                brokers = [*(known.brokers if known else ()), broker.name]
                found[key] = ConnectedClient(*key, one.address, one.language, one.version, brokers)
        return answers.partial([found[key] for key in sorted(found)])

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

    async def _at(self, broker: BrokerInfo, group: str | None) -> Sequence[ConnectedClient]:
        producers, names = await asyncio.gather(self._producers(broker), self._groups(broker, group))
        line = asyncio.Semaphore(SIDE_BY_SIDE)

        async def consumers(name: str) -> Sequence[ConnectedClient]:
            request = headers.GetConsumerConnectionListRequest(consumer_group=name)
            async with line:
                answer = await self._cluster.ask_unless(
                    broker.address, request.command(), ResponseCode.CONSUMER_NOT_ONLINE
                )
            online = [] if answer is None else ConsumerConnection.decode(answer.body).connection_set
            return [
                ConnectedClient(
                    "consumer", name, one.client_id, one.client_addr, one.language, one.version, ()
                )
                for one in online
            ]

        each = await asyncio.gather(*map(consumers, names))
        return [
            *(one for one in producers if group in (None, one.group)),
            *(one for some in each for one in some),
        ]

    async def _groups(self, broker: BrokerInfo, group: str | None) -> Sequence[str]:
        if group is not None:
            return [group]
        answer = await self._cluster.ask(
            broker.address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        )
        table = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
        return [name for name in table if not (is_system_group(name) or name in SYSTEM_GROUPS)]

    async def _producers(self, broker: BrokerInfo) -> Sequence[ConnectedClient]:
        """Brokers before 4.8 do not list their producers."""
        try:
            answer = await self._cluster.ask(broker.address, Command(RequestCode.GET_ALL_PRODUCER_INFO))
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return []
        return [
            ConnectedClient("producer", name, one.client_id, one.remote_ip, one.language, one.version, ())
            for name, some in ProducerTableInfo.decode(answer.body).data.items()
            if not is_system_group(name) and name not in SYSTEM_GROUPS
            for one in some
        ]
