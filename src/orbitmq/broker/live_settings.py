"""Changing the settings of a running broker (AdminBrokerProcessor.updateBrokerConfig)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.broker.events import Events, SettingsChanged
from orbitmq.runtime.seam import Runtime
from orbitmq.settings import properties_text
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

log = logging.getLogger(__name__)


class LiveSettings:
    """Changes settings, notifies parts that keep a copy, and writes the change back to ``broker.conf``."""

    def __init__(self, config: BrokerConfig, runtime: Runtime, events: Events) -> None:
        self._config = config
        self._runtime = runtime
        self._events = events
        self._saving = asyncio.Lock()

    async def change(self, changes: Mapping[str, str]) -> None:
        """Change settings by RocketMQ's keys; all of them or none. They are in force on return.

        Raises:
            RemotingError: NO_PERMISSION, a setting that a running broker may not change, or a wrong value.
        """
        try:
            self._config.apply_live(changes)
        except ConfigError as error:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"Can not update config: {error}") from error
        self._events.publish(SettingsChanged(frozenset(changes)))
        if self._config.broker_config_path:
            await self._save(self._config.broker_config_path, changes)

    async def _save(self, path: str, changes: Mapping[str, str]) -> None:
        """Write the changes into the file that the settings came from."""
        async with self._saving:
            try:
                await self._runtime.threads.run(self._amend, path, changes)
            except (OSError, ValueError) as error:
                # No error, as in RocketMQ: the settings are in force; the file may be read-only on purpose.
                log.warning("changed settings are lost with the next start, %s: %s", path, error)

    def _amend(self, path: str, changes: Mapping[str, str]) -> None:
        files = self._runtime.files
        text = files.read_bytes(path).decode() if files.exists(path) else ""
        files.write_atomic(path, properties_text.amended(text, dict(changes)).encode())
