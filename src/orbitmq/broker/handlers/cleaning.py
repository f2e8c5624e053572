"""Deleting what nobody needs any more (AdminBrokerProcessor)."""

from __future__ import annotations

import logging

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

log = logging.getLogger(__name__)


class CleaningHandlers(Family):
    """Expired files, and queues without a topic."""

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
