"""Requests to one broker or to several, and the list of brokers; all operations use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from orbitmq.admin.answers import Answers, LeftOut, left_out
from orbitmq.admin.model import BrokerInfo, RouteEntry
from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import BrokerError, NameServerError, TopicNotFoundError, ValidationError
from orbitmq.message.errors import MessageFormatError
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, Language
from orbitmq.wire.errors import WireError
from orbitmq.wire.refusals import error_of

T = TypeVar("T")
Item = TypeVar("Item")
# Most requests in flight to one broker while it gets a request for each topic or group.
SIDE_BY_SIDE = 16
NOT_DONE = "not done at all brokers"
# Errors that concern one server; other servers may answer.
FAILURES = (BrokerError, TransportError, WireError, MessageFormatError)


async def side_by_side(items: Iterable[Item], work: Callable[[Item], Awaitable[T]]) -> list[T]:
    """Do ``work`` for each item, a limited number at a time; returns the results in the order of the
    items.
    """
    line = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(item: Item) -> T:
        async with line:
            return await work(item)

    return await asyncio.gather(*map(one, items))


def no_master(name: str) -> str:
    """The reason why nothing can be changed at a broker group."""
    return f"no master of {name} is online"


def _unknown(cluster: str | None, what: str) -> NameServerError:
    where = "no cluster" if cluster is None else f"no cluster {cluster!r}"
    return NameServerError(f"the name server knows {where} {what}")


class ClusterClient:
    """Sends requests to the brokers and name servers of a cluster.

    Args:
        timeout_ms: limit of each request.
    """

    def __init__(self, client: RemotingClient, name_servers: NameServers, timeout_ms: int) -> None:
        self._client = client
        self.name_servers = name_servers
        self.timeout_ms = timeout_ms
        self._of_orbitmq: set[str] = set()

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
        """One broker of each name: the master, or without a master the broker with the lowest id.

        The slave with the lowest id has a copy of the master's data and may act for it.

        Raises:
            NameServerError: no name server answers, or it knows no broker.
        """
        brokers = await self._of_cluster(cluster)
        # In reversed order the lowest id of a name comes last, and overwrites the others.
        first = {(b.cluster, b.name): b for b in reversed(brokers)}
        if not first:
            raise _unknown(cluster, "with a broker")
        return sorted(first.values(), key=lambda b: (b.cluster, b.name))

    async def readers(self, topic: str) -> list[BrokerInfo]:
        """The broker with the lowest id of each broker group that has queues of ``topic``.

        Raises:
            TopicNotFoundError: the name servers do not have the topic.
            NameServerError: no name server answers.
        """
        return [
            BrokerInfo(entry.cluster, entry.broker_name, broker_id, entry.addresses[broker_id])
            for entry in await self.route(topic)
            for broker_id in sorted(entry.addresses)[:1]
        ]

    async def route(self, topic: str) -> list[RouteEntry]:
        """The brokers with queues of ``topic``, sorted by broker name.

        Raises:
            TopicNotFoundError: the name servers do not have the topic.
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
        brokers = await self.brokers()
        found = [b for b in brokers if cluster in (None, b.cluster)]
        if brokers and not found:
            there = ", ".join(sorted({b.cluster for b in brokers}))
            raise NameServerError(f"the name server knows no cluster {cluster!r}; there are: {there}")
        return found

    async def every_master(self, cluster: str | None = None) -> list[BrokerInfo]:
        """The masters, for a change that has to be made at all of them.

        Raises:
            ValidationError: a broker group has slaves online but no master.
            NameServerError: no name server answers, or it knows no broker.
        """
        brokers = await self.leaders(cluster)
        for broker in brokers:
            if not broker.is_master:
                raise ValidationError(no_master(broker.name))
        return brokers

    async def sleep(self, seconds: float) -> None:
        """Sleep on the runtime's clock."""
        await self._client.runtime.clock.sleep(seconds)

    async def ask(self, address: str, command: Command, *, least_ms: int = 0) -> Command:
        """Send one request; returns the answer if its code is SUCCESS.

        Args:
            least_ms: the shortest timeout of this request, if it is longer than the client's.

        Raises:
            BrokerError, TransportError: the server refuses, or cannot be reached.
        """
        answer = await self._client.request(address, command, max(self.timeout_ms, least_ms))
        if answer.language == Language.PYTHON:
            self._of_orbitmq.add(address)
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(command, answer, address)
        return answer

    def is_orbitmq(self, address: str) -> bool:
        """Whether an answer from this address has come from OrbitMQ: a question about a group creates that
        group at other brokers.
        """
        return address in self._of_orbitmq

    async def certificate_end_ms(self, address: str) -> int:
        """The end of validity of a server's TLS certificate, in milliseconds since the epoch.

        Raises:
            TlsError: the certificate is not accepted, or the server does not use TLS.
            TransportError: the server cannot be reached.
            ValidationError: this client does not use TLS.
        """
        return await self._client.certificate_end_ms(address, self.timeout_ms)

    async def ask_unless(self, address: str, command: Command, code: int | None) -> Command | None:
        """As :meth:`ask`; ``None`` if the answer has this code."""
        try:
            return await self.ask(address, command)
        except BrokerError as error:
            if error.code == code:
                return None
            raise

    async def at_each(
        self, brokers: Sequence[BrokerInfo], work: Callable[[BrokerInfo], Awaitable[T]]
    ) -> Answers[T]:
        """Do ``work`` at several brokers concurrently: a broker that does not answer delays no other
        broker.
        """
        results = await asyncio.gather(*map(work, brokers), return_exceptions=True)
        pairs: list[tuple[BrokerInfo, T]] = []
        missing: list[LeftOut] = []
        for broker, result in zip(brokers, results, strict=True):
            if isinstance(result, FAILURES):
                missing.append(left_out(broker.name, broker.address, result, self.timeout_ms))
            elif isinstance(result, BaseException):
                raise result
            else:
                pairs.append((broker, result))
        return Answers(len(brokers), pairs, missing)

    async def ask_all(
        self,
        brokers: Sequence[BrokerInfo],
        command: Command,
        read: Callable[[BrokerInfo, Command], T],
        *,
        without: int | None = None,
    ) -> Answers[T]:
        """Send the same request to several brokers concurrently.

        Args:
            read: decodes an answer; a broker whose answer cannot be decoded is left out.
            without: the response code that means "not here"; a broker with this answer is missing from the
                result.
        """

        async def one(broker: BrokerInfo) -> T | None:
            # Each request needs its own command, since a command carries its number on the connection.
            request = Command(command.code, dict(command.ext), command.body)
            answer = await self.ask_unless(broker.address, request, without)
            return None if answer is None else read(broker, answer)

        answers = await self.at_each(brokers, one)
        pairs = [(broker, answer) for broker, answer in answers.pairs if answer is not None]
        return Answers(answers.asked, pairs, answers.left_out)

    async def tell_all(self, brokers: Sequence[BrokerInfo], command: Command) -> list[str]:
        """Have several brokers make a change, concurrently; returns their names.

        Raises:
            IncompleteError: some brokers have not made the change.
            BrokerError, TransportError: no broker has made the change; the error of the first one.
        """
        answers = await self.ask_all(brokers, command, lambda broker, _: broker.name)
        return answers.partial(answers.names, NOT_DONE).whole()

    async def named_servers(self) -> list[BrokerInfo]:
        """The name servers, each with a name that contains its address.

        Raises:
            NameServerError: the source of the name servers has no address.
        """
        known = await self.name_servers.known(self.timeout_ms)
        return [BrokerInfo("", f"name server {address}", 0, address) for address in known]

    async def ask_name_servers(self, command: Command, read: Callable[[Command], T]) -> Answers[T]:
        """Send the same request to every name server, concurrently. ``read`` decodes an answer."""
        known = await self.name_servers.known(self.timeout_ms)
        servers = [BrokerInfo("", "name server", 0, address) for address in known]
        return await self.ask_all(servers, command, lambda _, answer: read(answer))

    async def tell_name_servers(self, command: Command) -> Sequence[LeftOut]:
        """Send a request to every name server; returns the name servers that refused or did not answer."""
        return (await self.ask_name_servers(command, lambda answer: answer.code)).left_out
