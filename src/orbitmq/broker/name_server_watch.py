"""Keeps the list of name servers up to date when it comes from an address server or DNS."""

from __future__ import annotations

import asyncio
import contextlib

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, SettingsChanged
from orbitmq.runtime.seam import Runtime
from orbitmq.transport.name_server_list import NameServerList
from orbitmq.wire.addresses import DnsName

NAME_SERVERS = "namesrvAddr"


class NameServerWatch(Component):
    """Fetches the list repeatedly, and notifies the parts of the broker when the addresses change.

    A list in ``namesrvAddr`` is used as it is, and nothing is fetched.
    """

    name = "name server watch"

    def __init__(self, runtime: Runtime, config: BrokerConfig, events: Events) -> None:
        self._runtime = runtime
        self._config = config
        self._events = events
        self._list = NameServerList(runtime, config.name_server_source)
        self._list.addresses = tuple(config.name_servers)
        if not self._list.addresses:
            self._list.problem = "the first fetch failed"  # the last problem that was logged
        self._source_changed = asyncio.Event()
        events.subscribe(SettingsChanged, self._settings_changed)

    async def start(self) -> None:
        """Begin; the first list was fetched before the parts were made."""
        self._spawn(self._run(), "fetch the name servers")

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._source_changed.wait()
            self._source_changed.clear()
            if await self._list.fetch():
                self._config.found_name_servers = self._list.addresses
                self._events.publish(SettingsChanged(frozenset({NAME_SERVERS})))

    def _pause_s(self) -> float | None:
        """Seconds until the next fetch; ``None``: the settings have a list, which needs none."""
        source, config = self._list.source, self._config
        if isinstance(source, tuple):
            return None
        often_ms = config.fetch_name_servers_ms
        seldom = isinstance(source, DnsName) and self._list.addresses and not self._list.problem
        return (config.update_name_servers_ms if seldom else often_ms) / 1000

    def _settings_changed(self, event: SettingsChanged) -> None:
        """Use another source; the previous addresses are used until the new one has answered."""
        source = self._config.name_server_source
        if NAME_SERVERS in event.keys and source != self._list.source:
            self._list = NameServerList(self._runtime, source)
            self._list.addresses = tuple(self._config.name_servers)
            self._source_changed.set()


async def first_name_servers(runtime: Runtime, config: BrokerConfig) -> None:
    """Fetch the list before the broker starts. Without a list it starts too, and :class:`NameServerWatch`
    keeps trying."""
    found = NameServerList(runtime, config.name_server_source)
    if await found.fetch():
        config.found_name_servers = found.addresses
