"""Whether any process listens at an address."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from orbitmq.replication.members.view import MemberViews, ProbeResult
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import ConnectError, TransportError
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest

TIMEOUT_MS = 1000
PERIOD_S = 1.0


async def refuses(client: RemotingClient, address: str) -> bool:
    """Whether the port refuses connections: then no process listens there. Silence proves nothing."""
    try:
        await client.request(address, ExchangeBrokerHaInfoRequest().command(), TIMEOUT_MS)
    except ConnectError as error:
        return isinstance(error.__cause__, ConnectionRefusedError)
    except TransportError:
        return False
    return False


async def refusing(client: RemotingClient, addresses: Sequence[str]) -> list[str]:
    """The addresses whose ports refuse connections; all are tried at the same time."""
    answers = await asyncio.gather(*(refuses(client, address) for address in addresses))
    return [address for address, refused in zip(addresses, answers, strict=True) if refused]


class Probe:
    """Checks the ports of a lost master and of the slaves that acted for it.

    A result counts for ``PERIOD_S``, and not after a sign of a leader: a master that refused connections may
    have come back since (behaviour MB-13).
    """

    def __init__(self, clock: Clock, client: RemotingClient, seen: MemberViews) -> None:
        self._clock = clock
        self._client = client
        self._seen = seen
        self._looked_s = -math.inf
        self._port = ProbeResult.UNKNOWN

    @property
    def port(self) -> ProbeResult:
        """Whether the master's port refused a moment ago."""
        return self._port if self._has_just_looked() else ProbeResult.UNKNOWN

    def forget(self) -> None:
        """Forget the results after a sign of a leader: these, and tries under way, prove nothing about its
        next loss."""
        self._looked_s = -math.inf

    async def look(self, master: str | None) -> None:
        """Try the ports, unless they were tried a moment ago."""
        if self._has_just_looked():
            return
        self._looked_s = now = self._clock.monotonic()
        self._port = ProbeResult.UNKNOWN
        asked = [*self._seen.stand_ins(now), *([] if master is None else [master])]
        gone = await refusing(self._client, asked)
        for address in gone:
            self._seen.is_gone(address)
        self._port = ProbeResult.REFUSES if master in gone else ProbeResult.SILENT

    def _has_just_looked(self) -> bool:
        return self._clock.monotonic() - self._looked_s < PERIOD_S
