"""The addresses of the name servers, from a fixed list or a source that is fetched repeatedly (web, DNS)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.transport.web_get import WebError, get_text
from orbitmq.wire.addresses import AddressError, AddressServer, DnsName, Source, joined, several, shown

if TYPE_CHECKING:
    from orbitmq.runtime import Runtime

log = logging.getLogger("orbitmq.transport")

FETCH_TIMEOUT_S = 3.0  # DefaultTopAddressing.fetchNSAddr
MAX_ADDRESSES = 100


class NameServerList:
    """The last known addresses.

    A failed fetch leaves them as they are. Only the first failure after a success is logged.

    Args:
        source: the list of the addresses, or the address server or DNS name that gives them.

    Attributes:
        addresses: each is ``host:port``; empty until the first fetch if the source is not a list.
        problem: why the last fetch failed; empty if it succeeded.
        fetched_s: monotonic time of the end of the last fetch.
    """

    def __init__(self, runtime: Runtime, source: Source) -> None:
        self._runtime = runtime
        self.source = source
        self.addresses: tuple[str, ...] = source if isinstance(source, tuple) else ()
        self.problem = ""
        self.fetched_s = float("-inf")

    async def fetch(self, timeout_s: float = FETCH_TIMEOUT_S) -> bool:
        """Fetch the addresses from the source; returns whether they changed."""
        source = self.source
        try:
            if isinstance(source, AddressServer):
                found = await self._listed(source, timeout_s)
            elif isinstance(source, DnsName):
                found = await self._looked_up(source, timeout_s)
            else:
                return False
        except (WebError, AddressError, OSError) as error:
            self._failed(str(error))
            return False
        finally:
            self.fetched_s = self._runtime.clock.monotonic()
        if self.problem:
            log.info("%s tells the name servers again", shown(source))
        self.problem = ""
        if set(found) == set(self.addresses):
            return False
        if self.addresses:
            log.info("name servers of %s: %s, before %s", shown(source), shown(found), shown(self.addresses))
        self.addresses = found
        return True

    async def _listed(self, source: AddressServer, timeout_s: float) -> tuple[str, ...]:
        text = await get_text(self._runtime, source.host, source.port, source.path, timeout_s)
        lines = text.split()
        # Only the first line has addresses, as in RocketMQ.
        return _checked(several(text.strip().splitlines()[0]) if lines else [])

    async def _looked_up(self, source: DnsName, timeout_s: float) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(timeout_s):
                hosts = await self._runtime.network.resolve_all(source.host)
        except TimeoutError as error:
            raise OSError(f"DNS does not answer for {source.host} within {timeout_s:g} s") from error
        except OSError as error:
            raise OSError(f"DNS knows no address of {source.host}: {error.strerror or error}") from error
        return _checked([joined(host, source.port) for host in hosts])

    def _failed(self, problem: str) -> None:
        if not self.problem:
            kept = f"those known stay: {shown(self.addresses)}" if self.addresses else "none is known yet"
            log.warning("%s tells no name servers, %s: %s", shown(self.source), kept, problem)
        self.problem = problem


def _checked(addresses: list[str]) -> tuple[str, ...]:
    if not addresses:
        raise OSError("the answer is empty")
    if len(addresses) > MAX_ADDRESSES:
        raise OSError(f"the answer has {len(addresses)} addresses, more than {MAX_ADDRESSES}")
    return tuple(addresses)
