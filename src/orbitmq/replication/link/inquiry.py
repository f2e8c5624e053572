"""Questions of a follower to a master's port for clients, before it connects to the HA port."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.replication.link.errors import LinkError
from orbitmq.settings import properties_text
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.addresses import AddressError, joined, normal
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest, ExchangeBrokerHaInfoResponse
from orbitmq.wire.headers.pull import ViewMessageByIdRequest

TIMEOUT_MS = 3000
_NOT_NOW = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)


class Inquiry:
    """Questions to one master.

    Raises:
        TransportError: the master does not answer.
    """

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def ha_info(self) -> ExchangeBrokerHaInfoResponse:
        """The master's HA port and protocols (906); all empty when it does not support the request (4.x).

        Raises:
            LinkError: the master is starting or stopping. That is an error, because an empty answer would
                make this broker follow it over a classic link.
        """
        answer = await self._client.request(self.address, ExchangeBrokerHaInfoRequest().command(), TIMEOUT_MS)
        if answer.code in _NOT_NOW:
            raise LinkError(f"it does not tell its HA address yet: code {answer.code}, {answer.remark}")
        if answer.code != ResponseCode.SUCCESS:
            return ExchangeBrokerHaInfoResponse()
        try:
            return ExchangeBrokerHaInfoResponse.from_ext(answer.ext)
        except WireError as error:
            raise LinkError(f"its answer to {RequestCode.EXCHANGE_BROKER_HA_INFO.name}: {error}") from error

    async def settings(self) -> dict[str, str]:
        """The master's settings; empty when it refuses to send them."""
        answer = await self._ask(Command(RequestCode.GET_BROKER_CONFIG))
        return {} if answer is None else properties_text.parse(answer.body.decode("utf-8", "replace"))

    async def log_range(self) -> tuple[int, int] | None:
        """Where the master's log begins and ends, ``None`` when the master refuses to send its runtime
        info."""
        answer = await self._ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        if answer is None:
            return None
        try:
            table = KVTable.decode(answer.body).table
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (WireError, KeyError, ValueError):
            return None

    async def record(self, offset: int) -> bytes | None:
        """The record at a place of the master's log, ``None`` when the master answers that there is none.

        Raises:
            LinkError: the master gave neither answer, for example because it is busy. That does not mean that
                its log differs.
        """
        command = ViewMessageByIdRequest(offset=offset).command()
        answer = await self._client.request(self.address, command, TIMEOUT_MS)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR):
            raise LinkError(f"it does not show its record at {offset}: code {answer.code}, {answer.remark}")
        return answer.body if answer.code == ResponseCode.SUCCESS else None

    async def _ask(self, command: Command) -> Command | None:
        answer = await self._client.request(self.address, command, TIMEOUT_MS)
        return answer if answer.code == ResponseCode.SUCCESS else None


def ha_address(settings: Mapping[str, str]) -> str:
    """The HA address in these settings, as the broker registers it; empty: they have none.

    A RocketMQ slave listens there too, but answers 906 without it.
    """
    host, port = settings.get("brokerIP2"), settings.get("haListenPort")
    try:
        return normal(joined(host.strip("[]"), port)) if host and port else ""
    except AddressError:
        return ""
