"""Operations on brokers: their list, their state, their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from orbitmq.admin.answers import LeftOut, Partial, left_out
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.brokers import FOLLOWERS, followers_text, states
from orbitmq.admin.cluster_client import FAILURES, ClusterClient
from orbitmq.admin.draining import Reader, readers_of
from orbitmq.admin.model import BrokerInfo, BrokerSetting, BrokerState, ServerCertificate
from orbitmq.durations import instant
from orbitmq.errors import BrokerError, NameServerError, OrbitError
from orbitmq.settings import properties_text
from orbitmq.transport.errors import TlsError, TransportError
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.ha import HARuntimeInfo
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
        does not answer is included, with the reason.

        Raises:
            NameServerError: no name server answers.
        """

        async def status(broker: BrokerInfo) -> tuple[BrokerInfo, Mapping[str, str] | OrbitError]:
            try:
                return broker, await self.runtime(broker.address)
            except (BrokerError, TransportError, WireError) as error:
                return broker, error

        return states(await asyncio.gather(*map(status, await self._cluster.brokers())))

    async def replicas(self, name: str) -> Sequence[BrokerState]:
        """The state of a master and its slaves, which share a broker name.

        A RocketMQ master gets a second request, for the lag of its slaves and whether they are in sync, since
        its own state does not contain them.

        Raises:
            NameServerError: no name server answers.
        """

        async def status(broker: BrokerInfo) -> tuple[BrokerInfo, Mapping[str, str] | OrbitError]:
            try:
                told = await self.runtime(broker.address)
            except FAILURES as error:
                return broker, error
            if broker.is_master and FOLLOWERS not in told:
                with suppress(*FAILURES):  # brokers before 5.0 have no such request
                    answer = await self._cluster.ask(
                        broker.address, Command(RequestCode.GET_BROKER_HA_STATUS)
                    )
                    told[FOLLOWERS] = followers_text(HARuntimeInfo.decode(answer.body))
            return broker, told

        own = [one for one in await self._cluster.brokers() if one.name == name]
        return states(await asyncio.gather(*map(status, own)))

    async def without_master(self, *, cluster: str | None = None) -> Sequence[str]:
        """Names of the broker groups with slaves but without a master online: changes cannot be made there.

        Raises:
            NameServerError: no name server answers, or it knows no broker.
        """
        return [broker.name for broker in await self._cluster.leaders(cluster) if not broker.is_master]

    async def runtime(self, address: str) -> dict[str, str]:
        """The runtime information that the broker at ``address`` reports (``brokerStatus``), by RocketMQ's
        names.

        Raises:
            BrokerError, TransportError, WireError: the broker refuses, cannot be reached, or sends an invalid
                answer.
        """
        answer = await self._cluster.ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        return KVTable.decode(answer.body).table

    async def readers(self, address: str) -> Sequence[Reader]:
        """The groups with members or unread messages at the broker at ``address``.

        Raises:
            BrokerError, TransportError, WireError: the broker refuses, cannot be reached, or sends an invalid
                answer.
        """
        return await readers_of(self._cluster, address)

    async def take_writes(self, name: str) -> Partial[int]:
        """Remove the write permission of the broker group ``name`` at every name server: clients then send to
        other brokers.

        Returns:
            The number of topics concerned.

        Raises:
            NameServerError, BrokerError, TransportError: no name server has made the change.
        """
        request = headers.WipeWritePermOfBrokerRequest(broker_name=name)
        read = headers.WipeWritePermOfBrokerResponse.from_ext
        answers = await self._cluster.ask_name_servers(
            request.command(), lambda answer: read(answer.ext).wipe_topic_count
        )
        return answers.partial(max((count for _, count in answers.pairs), default=0))

    async def give_writes(self, name: str) -> Partial[int]:
        """Restore the read and write permission of all topics of the broker group ``name``, at every name
        server.

        Returns:
            The number of topics concerned.

        Raises:
            NameServerError, BrokerError, TransportError: no name server has made the change.
        """
        request = headers.AddWritePermOfBrokerRequest(broker_name=name)
        read = headers.AddWritePermOfBrokerResponse.from_ext
        answers = await self._cluster.ask_name_servers(
            request.command(), lambda answer: read(answer.ext).add_topic_count
        )
        return answers.partial(max((count for _, count in answers.pairs), default=0))

    async def settings(self, address: str) -> dict[str, str]:
        """Settings of the broker at ``address`` by RocketMQ's keys.

        Raises:
            BrokerError, TransportError: the broker refuses, or cannot be reached.
        """
        answer = await self._cluster.ask(address, Command(RequestCode.GET_BROKER_CONFIG))
        return dict(properties_text.parse(answer.body.decode()))

    async def setting_details(self, address: str) -> Mapping[str, BrokerSetting]:
        """Settings of the broker at ``address`` by RocketMQ's keys, each with whether it may change while the
        broker runs.

        Raises:
            BrokerError, TransportError: the broker refuses, or cannot be reached.
        """
        answer = await self._cluster.ask(
            address, Command(RequestCode.GET_BROKER_CONFIG, {"liveKeys": "true"})
        )
        told = headers.GetBrokerConfigResponse.from_ext(answer.ext).live_keys
        live = None if told is None else frozenset(told.split(";"))
        return {
            key: BrokerSetting(value, None if live is None else key in live)
            for key, value in properties_text.parse(answer.body.decode()).items()
        }

    async def settings_of(
        self, brokers: Sequence[BrokerInfo]
    ) -> Partial[Mapping[BrokerInfo, Mapping[str, str]]]:
        """Settings of several brokers.

        Raises:
            BrokerError, TransportError: no broker answers; the error of the first one.
        """
        answers = await self._cluster.at_each(brokers, lambda broker: self.settings(broker.address))
        return answers.partial(dict(answers.pairs))

    async def change_all(
        self, brokers: Sequence[BrokerInfo], settings: Mapping[str, str]
    ) -> Partial[Sequence[str]]:
        """Change settings of several running brokers; returns the addresses of the brokers that have changed
        them.

        Raises:
            BrokerError, TransportError: no broker has changed them; the error of the first one.
        """
        answers = await self._cluster.at_each(
            brokers, lambda broker: self.change_settings(broker.address, settings)
        )
        return answers.partial([broker.address for broker, _ in answers.pairs])

    async def change_settings(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of the running broker at ``address``.

        Raises:
            BrokerError, TransportError: the broker refuses (the remark names the key), or cannot be reached.
        """
        body = properties_text.render(settings).encode()
        await self._cluster.ask(address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))

    async def certificates(self) -> Partial[Sequence[ServerCertificate]]:
        """The TLS certificates of all name servers and live brokers, from a connection to each.

        A certificate that is not accepted is included, with the reason. If no name server has an accepted
        certificate, the brokers are unknown and the list holds only the name servers.

        Raises:
            ValidationError: this client does not use TLS.
            NameServerError: a name server's certificate is accepted, but no name server answers.
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
