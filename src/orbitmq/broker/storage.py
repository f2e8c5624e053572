"""The message store as a part of a broker: its life, its settings, and the queues of the broker's topics."""

from __future__ import annotations

import logging

from orbitmq.broker.component import Component
from orbitmq.broker.config import MAX_MESSAGE_BYTES, BrokerConfig
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.events import Events, SettingsChanged, TopicChanged
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message import reserved
from orbitmq.store import Made, MessageStore, StoreConfig
from orbitmq.wire.bodies.topic import MadeAt, TopicConfig
from orbitmq.wording import counted

log = logging.getLogger(__name__)

# One log line names at most this many of the topics that the table lacks.
TOPICS_SHOWN = 5
_HOUR_MS = 3_600_000
_BATCH_SLACK_BYTES = 128 * 1024


class StoreLife(Component):
    """Opens and closes the store, and carries changed settings to it."""

    name = "store"
    stop_limit_s = None  # messages not written and flushed are lost

    def __init__(self, store: MessageStore, config: BrokerConfig, events: Events) -> None:
        self._store = store
        self._config = config
        events.subscribe(SettingsChanged, self._settings_changed)

    async def start(self) -> None:
        await self._store.start()
        # The broker's start may still fail before the search for deliveries after a crash: then the next
        # start has to search.
        self._store.count_crash(True)

    async def stop(self) -> None:
        await self._store.stop()

    def _settings_changed(self, _event: SettingsChanged) -> None:
        self._store.config = store_config(self._config, self._store.config.store_host)


class StoreTopics(Component):
    """Gives every topic its queues in the store. Starts when the table of topics has been read.

    Args:
        copies: whether messages here may come from a master that has not sent their topics yet.
    """

    name = "topics in the store"

    def __init__(
        self,
        topics: TopicConfigs,
        store: MessageStore,
        events: Events,
        levels: DelayLevels,
        *,
        copies: bool,
    ) -> None:
        self._topics = topics
        self._store = store
        self._levels = levels
        self._copies = copies
        self._started = False
        events.subscribe(TopicChanged, self._follow)

    async def start(self) -> None:
        self._started = True
        made = self._store.incarnations
        for config in self._topics:
            self._set(config)
            if config.made_at is not None:
                made.resume(config.topic_name, _made(config.made_at), copies=self._copies)
        # A table without any change is new, or was lost: it does not show that a topic was deleted.
        if made.rebuilt and made.ours and not self._copies and self._topics.version.counter:
            self._drop_deleted()
        if not self._copies:
            self._log_unknown_topics()

    def _log_unknown_topics(self) -> None:
        """Log topics that have messages but no entry in the table: they cannot be read, and the table may be
        damaged."""
        queues, is_system = self._store.queues, self._topics.is_system
        unknown = [
            topic for topic in queues.unknown_topics() if not is_system(topic) and queues.has_messages(topic)
        ]
        if unknown:
            shown = ", ".join(unknown[:TOPICS_SHOWN]) + (", ..." if len(unknown) > TOPICS_SHOWN else "")
            log.warning(
                "config/topics.json does not name %s with messages in the store: %s; bring a "
                "copy back, or create them again (docs/operations.md, Damaged files)",
                counted(len(unknown), "topic"), shown,
            )  # fmt: skip

    def _drop_deleted(self) -> None:
        """Delete queues that were rebuilt from the log for topics that no longer exist.

        A topic made later with such a name would begin with their messages. A topic with messages newer
        than the table is kept: it was made after the table, which then is a backup.
        """
        changed_ms, made = self._topics.version.timestamp, self._store.incarnations
        deleted = [
            topic
            for topic in self._store.queues.unknown_topics()
            if not self._topics.is_system(topic) and made.last_stored_ms(topic) <= changed_ms
        ]
        if deleted:
            self._store.drop_topics(deleted)

    def _follow(self, event: TopicChanged) -> None:
        if not self._started:
            return  # the start looks at all topics
        if event.config is None:
            self._store.drop_topic(event.topic)
            return
        self._set(event.config)
        if event.config.made_at is not None:
            self._store.incarnations.take(event.topic, _made(event.config.made_at))

    def _set(self, config: TopicConfig) -> None:
        topic = config.topic_name
        # Each delay level has its queue, also levels that an older table of topics does not have.
        least = self._levels.highest if topic == reserved.SCHEDULE_TOPIC else 0
        self._store.set_topic(
            topic,
            read_queues=max(config.read_queue_nums, least),
            write_queues=max(config.write_queue_nums, least),
            perm=config.perm,
        )


def _made(told: MadeAt) -> Made:
    return Made(told.log_offset, told.time_ms)


def made_now(store: MessageStore, topic: str) -> MadeAt | None:
    """Where in the log the messages of a topic made now begin; ``None``: all of its name are its own."""
    made = store.incarnations.now(topic)
    return None if made is None else MadeAt(made.log_offset, made.time_ms)


def store_config(config: BrokerConfig, host: tuple[str, int]) -> StoreConfig:
    """The store's settings, from the broker's. ``host``: its IP address and port, for records."""
    return StoreConfig(
        root=config.store_path_root_dir,
        commit_log=config.store_path_commit_log or None,
        commit_log_file_bytes=config.mapped_file_size_commit_log,
        # RocketMQ rounds the size up to whole entries of 20 bytes.
        consume_queue_file_bytes=-(-config.mapped_file_size_consume_queue // 20) * 20,
        sync_flush=config.flush_disk_type == "SYNC_FLUSH",
        flush_interval_ms=config.flush_interval_commit_log_ms,
        store_host=host,
        batch_bytes=max(4 << 20, config.max_message_size) + _BATCH_SLACK_BYTES,
        largest_bytes=MAX_MESSAGE_BYTES + _BATCH_SLACK_BYTES,
        file_reserved_ms=config.file_reserved_time_hours * _HOUR_MS,
        delete_hours=frozenset(map(int, config.delete_when.split(";"))),
        index=config.message_index_enable,
        index_slots=config.max_hash_slot_num,
        index_entries=config.max_index_num,
        disk_max_used_ratio=config.disk_max_used_space_ratio / 100,
    )
