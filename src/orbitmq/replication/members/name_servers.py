"""The heartbeat and the request for members that a broker sends to a name server each second
(BrokerOuterAPI)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import OrbitError
from orbitmq.message.numbers import whole_number
from orbitmq.message.reserved import MEMBERS_SILENT_MS, SYNC_MEMBER_TOPIC_PREFIX
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import ConnectError, TransportError
from orbitmq.wire.bodies.route import GetBrokerMemberGroupResponseBody, TopicRouteData
from orbitmq.wire.bodies.topic import DataVersion
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers.route import (
    BrokerHeartbeatRequest,
    GetBrokerMemberGroupRequest,
    GetRouteinfoByTopicRequest,
    QueryDataVersionRequest,
)


class NotAnsweredError(OrbitError):
    """The name server gave no usable answer."""


class NotRunningError(NotAnsweredError):
    """No process listens at the name server's address."""


class Shown(NamedTuple):
    """The living brokers of one name, as a name server shows them.

    Attributes:
        addresses: by real id; empty when there are none.
        silent_s: seconds since the last heartbeat of any broker of the name that is not shown, if the name
            server has noted it; ``None`` from RocketMQ's name servers, which do not send it.
    """

    addresses: dict[int, str]
    silent_s: float | None = None


class NameServerQueries:
    """One broker's requests.

    Args:
        address: where clients reach the broker, which identifies it at the name servers.
        version: gives the version of its topics.
    """

    def __init__(
        self,
        client: RemotingClient,
        config: BrokerConfig,
        address: str,
        version: Callable[[], DataVersion],
    ) -> None:
        self._client = client
        self._config = config
        self._address = address
        self._version = version

    async def heartbeat(self, server: str) -> bool:
        """Send a heartbeat; returns whether this broker is registered there (behaviours HB-02..04).

        Raises:
            NotAnsweredError: the name server does not answer in time.
        """
        config = self._config
        if not config.compatible_with_old_name_server:
            header = BrokerHeartbeatRequest(
                cluster_name=config.broker_cluster_name,
                broker_addr=self._address,
                broker_name=config.broker_name,
                broker_id=config.broker_id,
            )
            await self._ask(server, header.command())
            # The answer does not show whether this broker is registered; the members of the same round do.
            return True
        query = QueryDataVersionRequest(
            broker_name=config.broker_name,
            broker_addr=self._address,
            cluster_name=config.broker_cluster_name,
            broker_id=config.broker_id,
        )
        return bool((await self._ask(server, query.command(self._version().encode()))).body)

    async def members(self, server: str) -> Shown:
        """The living brokers of this broker's name (MB-05, MB-06).

        Raises:
            NotRunningError: no process listens there.
            NotAnsweredError: the name server gives no usable answer.
        """
        config = self._config
        try:
            if not config.compatible_with_old_name_server:
                header = GetBrokerMemberGroupRequest(
                    cluster_name=config.broker_cluster_name, broker_name=config.broker_name
                )
                answer = await self._ask(server, header.command())
                group = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
                return Shown({} if group is None else dict(group.broker_addrs), _silent_s(answer))
            topic = SYNC_MEMBER_TOPIC_PREFIX + config.broker_name
            question = GetRouteinfoByTopicRequest(topic=topic, accept_standard_json_only=True)
            answer = await self._ask(server, question.command(), ResponseCode.TOPIC_NOT_EXIST)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return Shown({})
            route = TopicRouteData.decode(answer.body)
        except WireError as error:
            raise NotAnsweredError(f"{server}: {error}") from error
        addresses = {
            broker_id: address
            for data in route.broker_datas
            if data.broker_name == config.broker_name and data.cluster == config.broker_cluster_name
            for broker_id, address in data.broker_addrs.items()
        }
        return Shown(addresses, _silent_s(answer))

    async def _ask(self, server: str, command: Command, also: int = ResponseCode.SUCCESS) -> Command:
        try:
            answer = await self._client.request(server, command, self._config.heartbeat_timeout_ms)
        except ConnectError as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                raise NotRunningError(str(error)) from error
            raise NotAnsweredError(str(error)) from error
        except TransportError as error:
            raise NotAnsweredError(str(error)) from error
        if answer.code not in (ResponseCode.SUCCESS, also):
            raise NotAnsweredError(f"{server}: code {answer.code}, {answer.remark}")
        return answer


def _silent_s(answer: Command) -> float | None:
    silent_ms = whole_number(answer.ext.get(MEMBERS_SILENT_MS, ""))
    return None if silent_ms is None else silent_ms / 1000
