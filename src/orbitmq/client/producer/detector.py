"""Probes failed brokers, so that they are used again as soon as they can be reached (FT-28)."""

from __future__ import annotations

import asyncio
import logging

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.producer.faults import FaultTable
from orbitmq.transport.errors import TransportError
from orbitmq.wire.headers.offset import GetMaxOffsetRequest

log = logging.getLogger("orbitmq.client")

DETECT_EVERY_S = 3.0
PROBE_TIMEOUT_MS = 200


class Detector:
    """Requests a max offset from the brokers of a fault table; an answer of any kind means that the broker is
    reachable.
    """

    def __init__(self, client: ClientInstance, faults: FaultTable) -> None:
        self._client = client
        self._faults = faults

    async def probe(self) -> None:
        """Probe the brokers that are due."""
        due = self._faults.due_probes(self._client.now_ms())
        await asyncio.gather(*(self._probe(broker_name) for broker_name in due))

    async def _probe(self, broker_name: str) -> None:
        found = self._client.any_queue_of(broker_name)
        if found is None:
            # No route names this broker.
            self._faults.remove(broker_name)
            return
        address, queue = found
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        try:
            await self._client.remoting.request(address, header.command(), PROBE_TIMEOUT_MS)
        except TransportError as error:
            log.debug("probe of %s failed: %s", broker_name, error)
            self._faults.probed(broker_name, reachable=False)
        else:
            self._faults.probed(broker_name, reachable=True)
