"""What a broker consists of, as handed to the request handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orbitmq.broker.change_feed import DELAYS, FORBIDDEN, GROUPS, OFFSETS, TOPICS, ChangeFeed
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.durability import DiskGate, Durability
from orbitmq.broker.events import Events, OffsetsReset, SettingsChanged, TopicChanged
from orbitmq.broker.messaging.append import Putter
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.rates import Rates
from orbitmq.broker.registration import Registration
from orbitmq.broker.statistics import Stats
from orbitmq.broker.transactions.service import Parts, Transactions
from orbitmq.message import reserved
from orbitmq.message.ids import UniqueIds
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore, StoreConfig

_HOUR_MS = 3_600_000
_BATCH_SLACK_BYTES = 128 * 1024


def _none() -> int:
    return 0


@dataclass(slots=True)
class Counters:
    """What a broker has done since its start: the handlers count here, the fast path itself.

    Attributes:
        started_ms: when it began to serve, milliseconds since the epoch.
        started_offset: where the commit log ended then.
    """

    started_ms: int = 0
    started_offset: int = 0
    handled_in: int = 0
    handled_out: int = 0
    fast_in: Callable[[], int] = _none
    fast_out: Callable[[], int] = _none

    @property
    def messages_in(self) -> int:
        return self.handled_in + self.fast_in()

    @property
    def messages_out(self) -> int:
        return self.handled_out + self.fast_out()


@dataclass(slots=True)
class Services:
    """Everything that handlers call. Built by :func:`build`."""

    runtime: Runtime
    config: BrokerConfig
    events: Events
    feed: ChangeFeed
    persistence: Persistence
    store: MessageStore
    topics: TopicConfigs
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    clients: ClientManager
    locks: QueueLocks
    long_polling: LongPolling
    registration: Registration
    durability: Durability
    putter: Putter
    transactions: Transactions
    schedule: ScheduleService
    stats: Stats
    ids: UniqueIds
    address: str
    counters: Counters
    rates: Rates = field(default_factory=Rates)

    def follow_topic(self, event: TopicChanged) -> None:
        """Carry a topic's change to where it matters: the store and the pulls that wait."""
        topic, config = event.topic, event.config
        if config is None:
            self.store.drop_topic(topic)
        else:
            # Each delay level has its queue, also levels that an older table of topics does not know.
            least = self.schedule.levels.highest if topic == reserved.SCHEDULE_TOPIC else 0
            self.store.set_topic(
                topic,
                read_queues=max(config.read_queue_nums, least),
                write_queues=max(config.write_queue_nums, least),
                perm=config.perm,
            )
        self.long_polling.wake_topic(topic)
        self.registration.soon()


def build(runtime: Runtime, config: BrokerConfig, port: int) -> Services:
    """Make the services of a broker that is reached at ``port``; nothing is started or read yet."""
    address = f"{config.broker_ip1}:{port}"
    events = Events()
    feed = ChangeFeed(lambda: store.log.end)
    levels = DelayLevels.parse(config.message_delay_level)
    store = MessageStore(runtime, store_config(config, port), tags_code_of=levels.tags_code_of)
    topics = TopicConfigs(runtime.clock, config, feed, events)
    persistence = Persistence(runtime, f"{config.store_path_root_dir}/config", feed, events)
    groups = SubscriptionGroups(runtime.clock, config, feed, events)
    offsets = ConsumerOffsets(runtime.clock, feed, events, version_step=config.offset_version_step)
    persistence.register(TOPICS, topics.snapshot, note_keys=True)
    persistence.register(GROUPS, groups.snapshot, parts=[FORBIDDEN])
    persistence.register(OFFSETS, offsets.snapshot)
    durability = Durability(runtime.clock, [DiskGate(store.flusher)], config.sync_flush_timeout_ms)
    store.flusher.attach(durability)
    putter = Putter(store, durability, sync_flush=config.flush_disk_type == "SYNC_FLUSH")
    clients = ClientManager(runtime.clock, events, expire_ms=config.channel_expired_ms)
    transactions = Transactions(
        Parts(
            clock=runtime.clock,
            config=config,
            store=store,
            putter=putter,
            topics=topics,
            offsets=offsets,
            clients=clients,
            host=(config.broker_ip1, port),
            save_topics=lambda: persistence.flush(TOPICS),
        )
    )
    putter.hooks += [transactions.prepare, levels.delayed]
    schedule = ScheduleService(runtime.clock, store, durability, putter, topics, levels, feed)
    persistence.register(DELAYS, schedule.snapshot)
    counters = Counters()
    stats = Stats(
        runtime.clock,
        store,
        topics,
        offsets,
        config.broker_cluster_name,
        lambda: counters.messages_in,
        lambda: counters.messages_out,
    )
    services = Services(
        runtime=runtime,
        config=config,
        events=events,
        feed=feed,
        persistence=persistence,
        store=store,
        topics=topics,
        groups=groups,
        offsets=offsets,
        clients=clients,
        locks=QueueLocks(runtime.clock, feed),
        long_polling=LongPolling(runtime.clock, store.watch, limit=config.pull_queue_capacity),
        registration=Registration(runtime, config, topics, address),
        durability=durability,
        putter=putter,
        transactions=transactions,
        schedule=schedule,
        stats=stats,
        ids=UniqueIds(runtime),
        address=address,
        counters=counters,
    )

    store.on_arrival = events.messages_arrived
    events.on_messages_arrived(services.long_polling.on_arrival)
    events.on_messages_arrived(schedule.on_arrival, topic=reserved.SCHEDULE_TOPIC)

    def settings_changed(event: SettingsChanged) -> None:
        store.config = store_config(config, port)
        if "brokerPermission" in event.keys:
            topics.touch()
            services.registration.soon()

    events.subscribe(SettingsChanged, settings_changed)
    events.subscribe(OffsetsReset, lambda event: services.long_polling.wake_topic(event.topic))
    return services


def load_tables(services: Services) -> None:
    """Read the tables of an earlier run.

    Raises:
        TableError: a table and its backup are damaged.
    """
    for table, restore in (
        (TOPICS, services.topics.restore),
        (GROUPS, services.groups.restore),
        (OFFSETS, services.offsets.restore),
        (DELAYS, services.schedule.restore),
    ):
        content = services.persistence.load(table)
        if content is not None:
            restore(content)


def store_config(config: BrokerConfig, port: int) -> StoreConfig:
    """The store's settings that follow from the broker's."""
    return StoreConfig(
        root=config.store_path_root_dir,
        commit_log=config.store_path_commit_log or None,
        commit_log_file_bytes=config.mapped_file_size_commit_log,
        # RocketMQ rounds the size up to whole entries of 20 bytes.
        consume_queue_file_bytes=-(-config.mapped_file_size_consume_queue // 20) * 20,
        sync_flush=config.flush_disk_type == "SYNC_FLUSH",
        flush_interval_ms=config.flush_interval_commit_log_ms,
        store_host=(config.broker_ip1, port),
        batch_bytes=max(4 << 20, config.max_message_size) + _BATCH_SLACK_BYTES,
        file_reserved_ms=config.file_reserved_time_hours * _HOUR_MS,
        delete_hour=int(config.delete_when.partition(";")[0]),
        index=config.message_index_enable,
        index_slots=config.max_hash_slot_num,
        index_entries=config.max_index_num,
        disk_max_used_ratio=config.disk_max_used_space_ratio / 100,
    )
