"""One request to one broker, and which brokers there are: what all operations share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.admin.model import BrokerInfo
from orbitmq.client.core.name_servers import NameServers
from orbitmq.errors import BrokerError, NameServerError, ValidationError
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command


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

        That one has the master's copy and may act for it: what is left out here is told to be nothing.

        Raises:
            NameServerError: no name server answers, or it knows no broker.
        """
        brokers = await self._of_cluster(cluster)
        # Of one name the lowest id comes last, and stays.
        first = {(b.cluster, b.name): b for b in reversed(brokers)}
        if not first:
            raise _unknown(cluster, "with a broker")
        return sorted(first.values(), key=lambda b: (b.cluster, b.name))

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

    async def ask_all(
        self, brokers: Sequence[BrokerInfo], command: Command, *, without: int | None = None
    ) -> list[tuple[BrokerInfo, Command]]:
        """The same request to several brokers, side by side.

        Args:
            without: brokers that answer with this code are left out of the result.

        Raises:
            BrokerError, TransportError: of the first that refuses for another reason, or cannot be reached.
        """

        async def one(broker: BrokerInfo) -> tuple[BrokerInfo, Command] | None:
            try:
                # Each request needs a command of its own: a command carries its connection's number.
                return broker, await self.ask(
                    broker.address, Command(command.code, dict(command.ext), command.body)
                )
            except BrokerError as error:
                if error.code == without:
                    return None
                raise

        answers = await asyncio.gather(*map(one, brokers))
        return [answer for answer in answers if answer is not None]
