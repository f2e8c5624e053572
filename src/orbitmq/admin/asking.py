"""One request to one broker, and which brokers there are: what all operations share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from orbitmq.admin.answers import Answers, LeftOut, left_out
from orbitmq.admin.model import BrokerInfo, RouteEntry
from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import BrokerError, NameServerError, TopicNotFoundError, ValidationError
from orbitmq.message.errors import MessageFormatError
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

T = TypeVar("T")
NOT_DONE = "not done at all brokers"
# What goes wrong at one server and says nothing of the others.
FAILURES = (BrokerError, TransportError, WireError, MessageFormatError)


def no_master(name: str) -> str:
    """Why something cannot be done at the brokers of a name."""
    return f"no master of {name} is online"


def _unknown(cluster: str | None, what: str) -> NameServerError:
    where = "no cluster" if cluster is None else f"no cluster {cluster!r}"
    return NameServerError(f"the name server knows {where} {what}")


class Asking:
    """The way of operations to the servers.

    Args:
        timeout_ms: limit of each request.
    """

    def __init__(self, client: RemotingClient, name_servers: NameServers, timeout_ms: int) -> None:
        self._client = client
        self.name_servers = name_servers
        self.timeout_ms = timeout_ms

    async def brokers(self) -> list[BrokerInfo]:
        """Every live broker, by cluster, name and id.

        Raises:
            NameServerError: no name server answers.
        """
        table = (await self.name_servers.cluster_info(self.timeout_ms)).broker_addr_table
        brokers = [
            BrokerInfo(data.cluster, name, broker_id, address)
            for name, data in table.items()
            for broker_id, address in data.broker_addrs.items()
        ]
        return sorted(brokers, key=lambda b: (b.cluster, b.name, b.broker_id))

    async def masters(self, cluster: str | None = None) -> list[BrokerInfo]:
        """The masters of ``cluster``, by default of all clusters.

        Raises:
            NameServerError: no name server answers, or it knows no master.
        """
        brokers = [b for b in await self._of_cluster(cluster) if b.is_master]
        if not brokers:
            raise _unknown(cluster, "with a master")
        return brokers

    async def leaders(self, cluster: str | None = None) -> list[BrokerInfo]:
        """One broker of each name: the master, while it is missing the one with the lowest id.

        That one has the master's copy and may act for it. A caller that skips it would report its groups as
        empty.

        Raises:
            NameServerError: no name server answers, or it knows no broker.
        """
        brokers = await self._of_cluster(cluster)
        # Of one name the lowest id comes last, and stays.
        first = {(b.cluster, b.name): b for b in reversed(brokers)}
        if not first:
            raise _unknown(cluster, "with a broker")
        return sorted(first.values(), key=lambda b: (b.cluster, b.name))

    async def readers(self, topic: str) -> list[BrokerInfo]:
        """One broker of each group with queues of ``topic``, the one with the lowest id.

        Raises:
            TopicNotFoundError: the name server does not know the topic.
            NameServerError: no name server answers.
        """
        return [
            BrokerInfo(entry.cluster, entry.broker_name, broker_id, entry.addresses[broker_id])
            for entry in await self.route(topic)
            for broker_id in sorted(entry.addresses)[:1]
        ]

    async def route(self, topic: str) -> list[RouteEntry]:
        """Where the queues of ``topic`` are, by broker name.

        Raises:
            TopicNotFoundError: the name server does not know the topic.
            NameServerError: no name server answers.
        """
        route = await self.name_servers.topic_route(topic, self.timeout_ms)
        if route is None:
            raise TopicNotFoundError(topic, f"no broker has the topic {topic}")
        brokers = {data.broker_name: data for data in route.broker_datas}
        return [
            RouteEntry(
                broker_name=queues.broker_name,
                cluster=brokers[queues.broker_name].cluster,
                read_queues=queues.read_queue_nums,
                write_queues=queues.write_queue_nums,
                perm=queues.perm,
                addresses=dict(sorted(brokers[queues.broker_name].broker_addrs.items())),
            )
            for queues in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if queues.broker_name in brokers
        ]

    async def _of_cluster(self, cluster: str | None) -> list[BrokerInfo]:
        return [b for b in await self.brokers() if cluster in (None, b.cluster)]

    async def every_master(self, cluster: str | None = None) -> list[BrokerInfo]:
        """The masters, for what has to be done at all of them.

        Raises:
            ValidationError: a name has slaves and no master.
            NameServerError: no name server answers, or it knows no broker.
        """
        brokers = await self.leaders(cluster)
        for broker in brokers:
            if not broker.is_master:
                raise ValidationError(no_master(broker.name))
        return brokers

    async def ask(self, address: str, command: Command) -> Command:
        """One request; the answer is a success.

        Raises:
            BrokerError, TransportError: it refuses, or cannot be reached.
        """
        answer = await self._client.request(address, command, self.timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    async def ask_unless(self, address: str, command: Command, code: int | None) -> Command | None:
        """As :meth:`ask`; ``None`` when the answer is ``code``."""
        try:
            return await self.ask(address, command)
        except BrokerError as error:
            if error.code == code:
                return None
            raise

    async def at_each(
        self, brokers: Sequence[BrokerInfo], work: Callable[[BrokerInfo], Awaitable[T]]
    ) -> Answers[T]:
        """Do the same at several brokers, side by side: one that does not answer costs its own time only."""
        results = await asyncio.gather(*map(work, brokers), return_exceptions=True)
        told: list[tuple[BrokerInfo, T]] = []
        missing: list[LeftOut] = []
        for broker, result in zip(brokers, results, strict=True):
            if isinstance(result, FAILURES):
                missing.append(left_out(broker.name, broker.address, result, self.timeout_ms))
            elif isinstance(result, BaseException):
                raise result
            else:
                told.append((broker, result))
        return Answers(len(brokers), told, missing)

    async def ask_all(
        self,
        brokers: Sequence[BrokerInfo],
        command: Command,
        read: Callable[[BrokerInfo, Command], T],
        *,
        without: int | None = None,
    ) -> Answers[T]:
        """The same request to several brokers, side by side.

        Args:
            read: what the answer says; who answers what cannot be read is left out.
            without: what a broker answers that has nothing of it; it is not among the answers.
        """

        async def one(broker: BrokerInfo) -> T | None:
            # Each request needs a command of its own: a command carries its connection's number.
            request = Command(command.code, dict(command.ext), command.body)
            answer = await self.ask_unless(broker.address, request, without)
            return None if answer is None else read(broker, answer)

        answers = await self.at_each(brokers, one)
        told = [(broker, answer) for broker, answer in answers.told if answer is not None]
        return Answers(answers.asked, told, answers.left_out)

    async def tell_all(self, brokers: Sequence[BrokerInfo], command: Command) -> list[str]:
        """The same to several brokers, side by side; names of those that have done it.

        Raises:
            IncompleteError: some have not.
            BrokerError, TransportError: none has; of the first.
        """
        answers = await self.ask_all(brokers, command, lambda broker, _: broker.name)
        return answers.partial(answers.names, NOT_DONE).whole()

    async def tell_name_servers(self, command: Command) -> list[LeftOut]:
        """The same request to every name server; who did not take it."""

        async def one(address: str) -> LeftOut | None:
            try:
                await self.ask(address, Command(command.code, dict(command.ext), command.body))
            except FAILURES as error:
                return left_out("name server", address, error, self.timeout_ms)
            return None

        results = await asyncio.gather(*map(one, await self.name_servers.known(self.timeout_ms)))
        return [result for result in results if result is not None]
