"""Running a broker: its settings, its state, its files (AdminBrokerProcessor)."""

from __future__ import annotations

import logging

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.broker.inspection.runtime_info import RuntimeInfo
from orbitmq.broker.live_settings import LiveSettings
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.settings import properties_text
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.broker import GetBrokerConfigResponse

log = logging.getLogger(__name__)


class OperationHandlers(HandlerFamily):
    """Reading and changing settings, and reading the broker's state."""

    def __init__(
        self, config: BrokerConfig, topics: TopicConfigs, settings: LiveSettings, info: RuntimeInfo
    ) -> None:
        self._config = config
        self._topics = topics
        self._settings = settings
        self._info = info

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
        }

    async def update_config(self, connection: ServerConnection, command: Command) -> Command:
        """Change settings that may change while the broker runs: all of the request's, or none."""
        try:
            changes = properties_text.parse(command.body.decode())
        except UnicodeDecodeError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the settings are not UTF-8: {error}") from error
        await self._settings.change(changes)
        told = ", ".join(f"{key}={value}" for key, value in sorted(changes.items()))
        log.info("settings changed by %s: %s", connection.remote_address, told)
        return command.reply()

    def get_config(self, _connection: ServerConnection, command: Command) -> Answer:
        """All settings as Java properties; for a request with ``liveKeys`` also which of them are live."""
        text = properties_text.render(self._config.to_properties())
        version = self._topics.version.encode().decode()
        live = ";".join(self._config.live_keys()) if command.ext.get("liveKeys") == "true" else None
        answer = GetBrokerConfigResponse(version=version, live_keys=live)
        return answer.reply_to(command, body=text.encode())

    def runtime_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """The broker's state, under RocketMQ's names."""
        return command.reply(body=KVTable(table=self._info.table()).encode())

    def ha_status(self, _connection: ServerConnection, command: Command) -> Answer:
        """The state of replication."""
        return command.reply(body=self._info.ha_status().encode())


class CleaningHandlers(HandlerFamily):
    """Deletion of expired files, and of queues without a topic."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
        }

    def clean(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete expired files now; the two codes for it do the same here."""
        log.info("expired files are deleted for %s", connection.remote_address)
        self._store.clean()
        return command.reply()

    def clean_unused_topics(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete queues on disk whose topic is not in the table."""
        dropped = self._store.drop_unknown_topics()
        if dropped:
            log.info("unused topics deleted for %s: %s", connection.remote_address, ", ".join(dropped))
        return command.reply()
