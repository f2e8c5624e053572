"""The page ``/metrics`` of a broker."""

from __future__ import annotations

import asyncio

from orbitmq.broker.metrics.scrape import Scrape
from orbitmq.monitoring.exposition import CONTENT_TYPE
from orbitmq.monitoring.http import HttpAnswer
from orbitmq.runtime.tasks import in_slices

# Most parts are ready: a turn takes far less than a millisecond.
PARTS_PER_TURN = 50


class MetricsPage:
    """Reads the figures for a scrape; requests that arrive meanwhile get the same text."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape
        self._reading: asyncio.Future[list[bytes]] | None = None

    async def answer(self) -> HttpAnswer:
        """The page's present text."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._read_once)
        return HttpAnswer(200, await asyncio.shield(self._reading), CONTENT_TYPE)

    async def stop(self) -> None:
        """Cancel the reading that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _read_once(self, reading: asyncio.Future[list[bytes]]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # the connections log it

    async def _read(self) -> list[bytes]:
        text = await self._scrape.text()
        return [part async for part in in_slices(text.parts(), PARTS_PER_TURN)]
