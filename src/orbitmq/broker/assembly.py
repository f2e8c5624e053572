"""What a broker consists of, as handed to the request handlers."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.broker.change_feed import DELAYS, FORBIDDEN, GROUPS, OFFSETS, TOPICS, ChangeFeed
from orbitmq.broker.clients.consumer_requests import ConsumerRequests
from orbitmq.broker.clients.heartbeats import Heartbeats
from orbitmq.broker.clients.listing import ClientListing
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.durability import DiskGate, Durability
from orbitmq.broker.events import Events, OffsetsReset, SettingsChanged, TopicChanged
from orbitmq.broker.handlers.base import Family
from orbitmq.broker.handlers.clients import ClientHandlers
from orbitmq.broker.handlers.forward import ForwardHandlers
from orbitmq.broker.handlers.groups import GroupHandlers
from orbitmq.broker.handlers.inspection import InspectionHandlers
from orbitmq.broker.handlers.offsets import OffsetHandlers
from orbitmq.broker.handlers.operation import OperationHandlers
from orbitmq.broker.handlers.pull import PullHandlers
from orbitmq.broker.handlers.query import QueryHandlers
from orbitmq.broker.handlers.send import SendHandlers
from orbitmq.broker.handlers.send_back import SendBackHandlers
from orbitmq.broker.handlers.topics import TopicHandlers
from orbitmq.broker.handlers.transactions import TransactionHandlers
from orbitmq.broker.inspection.messages import MessageLookup
from orbitmq.broker.inspection.progress import ConsumeProgress
from orbitmq.broker.inspection.queues import QueueInspection
from orbitmq.broker.inspection.runtime_info import RuntimeInfo
from orbitmq.broker.live_settings import LiveSettings
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.messaging.group_reset import GroupReset
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.messaging.pulling import Pulling
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.broker.messaging.reply import Reply
from orbitmq.broker.messaging.send_back import SendBack
from orbitmq.broker.messaging.sending import Sending
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.administration import GroupAdministration, TopicAdministration
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.rates import Rates
from orbitmq.broker.registration import Registration
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.broker.transactions.service import Parts, Transactions
from orbitmq.message import reserved
from orbitmq.message.ids import UniqueIds
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore, StoreConfig

_HOUR_MS = 3_600_000
_BATCH_SLACK_BYTES = 128 * 1024


@dataclass(slots=True)
class Services:
    """The parts of a broker. Built by :func:`build`; what handlers get of them says :func:`families`."""

    runtime: Runtime
    config: BrokerConfig
    events: Events
    feed: ChangeFeed
    persistence: Persistence
    metadata: MetadataAccess
    store: MessageStore
    topics: TopicConfigs
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    clients: ClientManager
    locks: QueueLocks
    long_polling: LongPolling
    registration: Registration
    durability: Durability
    append: MessageAppend
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
    store = MessageStore(
        runtime, store_config(config, port), codes={reserved.SCHEDULE_TOPIC: levels.delivery_code}
    )
    topics = TopicConfigs(runtime.clock, config, feed, events)
    persistence = Persistence(runtime, f"{config.store_path_root_dir}/config", feed, events)
    groups = SubscriptionGroups(runtime.clock, config, feed, events)
    offsets = ConsumerOffsets(runtime.clock, feed, events, version_step=config.offset_version_step)
    persistence.register(TOPICS, topics)
    persistence.register(GROUPS, groups, parts=[FORBIDDEN])
    persistence.register(OFFSETS, offsets)
    durability = Durability(runtime.clock, [DiskGate(store.flusher)], config.sync_flush_timeout_ms)
    store.flusher.attach(durability)
    append = MessageAppend(store, durability, sync_flush=config.flush_disk_type == "SYNC_FLUSH")
    clients = ClientManager(runtime.clock, events, expire_ms=config.channel_expired_ms)
    transactions = Transactions(
        Parts(
            clock=runtime.clock,
            config=config,
            store=store,
            append=append,
            topics=topics,
            offsets=offsets,
            clients=clients,
            host=(config.broker_ip1, port),
            save_topics=lambda: persistence.flush(TOPICS),
        )
    )
    append.hooks += [transactions.prepare, levels.delayed]
    schedule = ScheduleService(runtime.clock, store, durability, append, topics, levels, feed)
    persistence.register(DELAYS, schedule)
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
        metadata=MetadataAccess(config, topics, groups, persistence),
        store=store,
        topics=topics,
        groups=groups,
        offsets=offsets,
        clients=clients,
        locks=QueueLocks(runtime.clock, feed),
        long_polling=LongPolling(runtime.clock, store.watch, limit=config.pull_queue_capacity),
        registration=Registration(runtime, config, topics, address),
        durability=durability,
        append=append,
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


def families(s: Services) -> list[Family]:
    """The doors of a broker on the wire, each with the services that it calls."""
    config, metadata, topics, groups, offsets = s.config, s.metadata, s.topics, s.groups, s.offsets
    clients, store = s.clients, s.store
    chance = s.runtime.random
    sending = Sending(config, metadata, topics, s.locks, s.append, s.ids, chance, s.counters)
    reply = Reply(config, s.runtime.clock, clients, metadata, sending, s.address)
    send_back = SendBack(config, metadata, store, s.append, s.schedule.levels, chance)
    pulling = Pulling(
        config, s.events, metadata, topics, groups, offsets, clients, store, s.long_polling, s.counters
    )
    queues = QueueOffsets(metadata, topics, groups, offsets, store)
    reset = GroupReset(config, metadata, topics, groups, offsets, clients, store)
    lookup = MessageLookup(config, store)
    progress = ConsumeProgress(
        config, s.runtime.clock, metadata, topics, groups, offsets, clients, store, s.stats, s.address
    )
    info = RuntimeInfo(config, s.runtime, store, s.stats, s.rates, s.counters, s.long_polling)
    topic_administration = TopicAdministration(config, metadata, topics, offsets, s.registration)
    group_administration = GroupAdministration(metadata, groups, offsets)
    return [
        SendHandlers(config, sending, reply),
        TransactionHandlers(config, lookup, s.append, s.transactions, s.counters),
        SendBackHandlers(send_back),
        PullHandlers(config, pulling),
        OffsetHandlers(offsets, queues, reset),
        ClientHandlers(Heartbeats(config, topics, groups, clients), ClientListing(clients), s.locks),
        TopicHandlers(metadata, topic_administration, topics, offsets, clients),
        GroupHandlers(group_administration, groups, offsets, clients, s.address),
        QueryHandlers(lookup),
        ForwardHandlers(ConsumerRequests(config, topics, groups, clients, lookup)),
        InspectionHandlers(s.stats, QueueInspection(config, metadata, clients, store, s.stats), progress),
        OperationHandlers(config, topics, store, LiveSettings(config, s.runtime, s.events), info),
    ]


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
