"""Operations on brokers: their list, their state, their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from orbitmq.admin.answers import LeftOut, Partial, left_out
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.brokers import states
from orbitmq.admin.cluster_client import FAILURES, ClusterClient
from orbitmq.admin.model import BrokerInfo, BrokerState, ServerCertificate
from orbitmq.durations import instant
from orbitmq.errors import BrokerError, NameServerError
from orbitmq.settings import properties_text
from orbitmq.transport.errors import TlsError, TransportError
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError


@checks_arguments
class BrokerAdmin:
    """Operations on brokers, as ``Admin.brokers``."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list(self) -> Sequence[BrokerInfo]:
        """Every live broker, by cluster, name and id.

        Raises:
            NameServerError: no name server answers.
        """
        return await self._cluster.brokers()

    async def states(self) -> Sequence[BrokerState]:
        """The role, the log and the lag of every live broker, in the order of :meth:`list`. A broker that
        does not answer is in the list, with the reason.

        Raises:
            NameServerError: no name server answers.
        """

        async def status(broker: BrokerInfo) -> tuple[BrokerInfo, Mapping[str, str] | str]:
            try:
                request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
                answer = await self._cluster.ask(broker.address, request)
                return broker, KVTable.decode(answer.body).table
            except (BrokerError, TransportError, WireError) as error:
                return broker, str(error)

        return states(await asyncio.gather(*map(status, await self._cluster.brokers())))

    async def without_master(self, *, cluster: str | None = None) -> Sequence[str]:
        """Names of broker groups whose slaves are online and whose master is not: changes are not made there.

        Raises:
            NameServerError: no name server answers, or it knows no broker.
        """
        return [broker.name for broker in await self._cluster.leaders(cluster) if not broker.is_master]

    async def settings(self, address: str) -> dict[str, str]:
        """Settings of the broker at ``address`` by RocketMQ's keys.

        Raises:
            BrokerError, TransportError: it refuses, or cannot be reached.
        """
        answer = await self._cluster.ask(address, Command(RequestCode.GET_BROKER_CONFIG))
        return dict(properties_text.parse(answer.body.decode()))

    async def change_settings(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of the running broker at ``address``.

        Raises:
            BrokerError, TransportError: it refuses (the remark names the key), or cannot be reached.
        """
        body = properties_text.render(settings).encode()
        await self._cluster.ask(address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))

    async def certificates(self) -> Partial[Sequence[ServerCertificate]]:
        """The TLS certificates of all name servers and live brokers; each is connected to.

        A certificate that is not accepted is in the list, with the reason. When no name server can be asked
        for that, only the name servers are in it.

        Raises:
            ValidationError: this client does not speak TLS.
            NameServerError: the name servers' certificates are accepted, and none of them answers.
        """
        timeout_ms = self._cluster.timeout_ms
        missing: list[LeftOut] = []

        async def look(name: str, address: str) -> ServerCertificate | None:
            try:
                end_ms = await self._cluster.certificate_end_ms(address)
            except TlsError as error:
                return ServerCertificate(name, address, None, str(error))
            except FAILURES as error:
                missing.append(left_out(name, address, error, timeout_ms))
                return None
            return ServerCertificate(name, address, instant(end_ms))

        known = await self._cluster.name_servers.known(timeout_ms)
        first = await asyncio.gather(*(look("name server", address) for address in known))
        brokers: Sequence[BrokerInfo] = ()
        try:
            brokers = await self._cluster.brokers()
        except NameServerError:
            if any(one is not None and not one.problem for one in first):
                raise
        others = await asyncio.gather(*(look(broker.name, broker.address) for broker in brokers))
        return Partial([one for one in (*first, *others) if one is not None], tuple(missing))
