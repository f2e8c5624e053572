"""Whether a process is behind an address at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import ConnectError, TransportError
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest

TIMEOUT_MS = 1000


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
