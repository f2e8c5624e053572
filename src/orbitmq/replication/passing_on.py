"""Passes requests from a slave to its master, see :mod:`orbitmq.broker.to_master`."""

from __future__ import annotations

from collections.abc import Awaitable

from orbitmq.auth.gate import FOR_HOST, FOR_USER, AuthGate
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.own_requests import client_of
from orbitmq.broker.role import Role, RoleState
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.runtime.seam import Runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

# The field of a request that a slave has passed on: no other slave passes it on again, so it never
# circulates.
PASSED_ON = "orbitmqPassedOn"
TIMEOUT_MS = 1000
# A returning master leads a moment after its slave has made way.
LEADS_WITHIN_S = 1.0
ASK_AGAIN_S = 0.05
# Fields that a client must not set for another user; they are removed before the request is passed on.
_NAMES = frozenset({FOR_USER, FOR_HOST, ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})


class PassingOn(Component):
    """Asks the master whose log is copied now. The client's limit of open requests bounds their number.

    Args:
        gate: the gate of this broker; None: it requires no keys.
    """

    name = "passing on"

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        role: RoleState,
        ha_client: HaClient,
        gate: AuthGate | None,
    ) -> None:
        self._clock = runtime.clock
        self._gate = gate
        self._role = role
        self._ha_client = ha_client
        self._signing = client_of(runtime, config, for_clients=True)
        self._plain = client_of(runtime, config, signed=False)

    async def stop(self) -> None:
        await self._signing.close()
        await self._plain.close()

    def ask(self, request: Command, host: str) -> Awaitable[Command] | None:
        """The master's answer to a request; ``None`` unless this broker is a slave that is linked with one.

        Args:
            host: the client's address.

        Raises:
            RemotingError: raised by the awaited answer: the master does not answer (SLAVE_NOT_AVAILABLE).
        """
        master = self._ha_client.master_address
        if self._role.role is not Role.SLAVE or not self._ha_client.transferring or master is None:
            return None
        return None if PASSED_ON in request.ext else self._ask(master, request, host)

    def keeps_users(self) -> bool:
        """Whether this broker is a slave whose master does not send it users and rules."""
        link = self._ha_client.link
        return self._role.role is Role.SLAVE and link is not None and link.transferring and not link.sealed

    async def _ask(self, master: str, request: Command, host: str) -> Command:
        client, ext = self._for(request, host)
        deadline = self._clock.monotonic() + LEADS_WITHIN_S
        while True:
            passed = Command(request.code, {**ext, PASSED_ON: "true"}, request.body)
            try:
                answer = await client.request(master, passed, TIMEOUT_MS)
            except TransportError as error:
                raise RemotingError(
                    ResponseCode.SLAVE_NOT_AVAILABLE,
                    f"this broker is a slave, and its master does not answer: {error}",
                ) from error
            leads = answer.code != ResponseCode.SLAVE_NOT_AVAILABLE
            if leads or self._clock.monotonic() >= deadline:
                return request.reply(answer.code, answer.remark, answer.ext, answer.body)
            await self._clock.sleep(ASK_AGAIN_S)

    def _for(self, request: Command, host: str) -> tuple[RemotingClient, dict[str, str]]:
        """The client for a request, and its fields. Only a request that a user signed gets this broker's
        keys."""
        ext = {name: value for name, value in request.ext.items() if name not in _NAMES}
        if self._gate is None:
            return self._signing, ext
        try:
            user = self._gate.identity(request)
        except RemotingError:
            # The request passed because the gate only observes. The master treats it as an unsigned request.
            return self._plain, ext
        return self._signing, {**ext, FOR_USER: user.name, FOR_HOST: host}
