"""Whether a process is behind an address at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.replication.members.view import Port, Sightings
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import ConnectError, TransportError
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest

TIMEOUT_MS = 1000
PERIOD_S = 1.0


async def refuses(client: RemotingClient, address: str) -> bool:
    """Whether the port refuses connections: then no process is there. Silence proves nothing."""
    try:
        await client.request(address, ExchangeBrokerHaInfoRequest().command(), TIMEOUT_MS)
    except ConnectError as error:
        return isinstance(error.__cause__, ConnectionRefusedError)
    except TransportError:
        return False
    return False


async def refusing(client: RemotingClient, addresses: Sequence[str]) -> list[str]:
    """Those of some addresses whose ports refuse connections; all are asked at once."""
    answers = await asyncio.gather(*(refuses(client, address) for address in addresses))
    return [address for address, refused in zip(addresses, answers, strict=True) if refused]


class Probe:
    """Looks at the ports of a lost master, and of who stood in for it.

    Attributes:
        port: what the master's showed last.
    """

    def __init__(self, clock: Clock, client: RemotingClient, seen: Sightings) -> None:
        self._clock = clock
        self._client = client
        self._seen = seen
        self._probed_s = 0.0
        self.port = Port.UNKNOWN

    async def look(self, master: str | None) -> None:
        """Look at them, unless that was a moment ago."""
        now = self._clock.monotonic()
        if now - self._probed_s < PERIOD_S:
            return
        self._probed_s = now
        asked = [*self._seen.stand_ins(now), *([] if master is None else [master])]
        gone = await refusing(self._client, asked)
        for address in gone:
            self._seen.is_gone(address)
        self.port = Port.REFUSES if master in gone else Port.SILENT
