"""Assembles a broker: the only module that names all its parts.

A new service is a folder of its own and a line in :data:`FEATURES`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from orbitmq.broker.access.attach import attach as access
from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.clients.consumer_requests import ConsumerRequests
from orbitmq.broker.clients.filter_table import FilterTable
from orbitmq.broker.clients.heartbeats import Heartbeats
from orbitmq.broker.clients.listing import ClientListing
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.clients.routed_queues import RoutedQueues
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.dead_letters.attach import attach as dead_letters
from orbitmq.broker.delay.attach import attach as delay_levels
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.doors import Connections, Doors, Serving
from orbitmq.broker.durability import DiskGate, Durability
from orbitmq.broker.events import Events, QuotasChanged, SettingsChanged, TopicChanged
from orbitmq.broker.extension import Attachment, ChangeRole, Extension, HandOver, Host, Status, Unready
from orbitmq.broker.fast_path.driver import FastPath
from orbitmq.broker.handlers.base import HandlerFamily
from orbitmq.broker.handlers.changes import ROLES, AdminChanges
from orbitmq.broker.handlers.clients import (
    AssignmentHandlers,
    ClientHandlers,
    ForwardHandlers,
    QueueLockHandlers,
)
from orbitmq.broker.handlers.groups import GroupHandlers, GroupTableHandlers, GroupTopicHandlers
from orbitmq.broker.handlers.inspection import InspectionHandlers, QueryHandlers
from orbitmq.broker.handlers.offsets import OffsetHandlers, ProgressHandlers, QueueBoundHandlers
from orbitmq.broker.handlers.operation import CleaningHandlers, OperationHandlers
from orbitmq.broker.handlers.pull import PullHandlers
from orbitmq.broker.handlers.router import Router
from orbitmq.broker.handlers.send import ReplyHandlers, SendBackHandlers, SendHandlers
from orbitmq.broker.handlers.slave_tables import CODES, SlaveTables
from orbitmq.broker.handlers.topics import TopicHandlers, TopicTableHandlers
from orbitmq.broker.inspection.messages import MessageLookup
from orbitmq.broker.inspection.progress import ConsumeProgress
from orbitmq.broker.inspection.queues import QueueInspection
from orbitmq.broker.inspection.runtime_info import RuntimeInfo
from orbitmq.broker.live_settings import LiveSettings
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.messaging.delivery_sink import DeliverySink
from orbitmq.broker.messaging.filters import Filters
from orbitmq.broker.messaging.group_reset import GroupReset
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.messaging.pulling import Pulling
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.broker.messaging.reply import Reply
from orbitmq.broker.messaging.send_back import SendBack
from orbitmq.broker.messaging.sending import Sending
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.administration import GroupAdministration, TopicAdministration
from orbitmq.broker.metadata.components import KeptAtOnce, MetadataTables, TableFiles
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.metrics.counted import Attached, CountedMetrics
from orbitmq.broker.metrics.creating import CODES as TIMED
from orbitmq.broker.metrics.creating import CreationTimes
from orbitmq.broker.metrics.figures import Figures
from orbitmq.broker.metrics.topics import Topics
from orbitmq.broker.monitoring import BrokerMonitoring, Readiness
from orbitmq.broker.name_server_watch import NameServerWatch
from orbitmq.broker.name_servers import NameServers
from orbitmq.broker.parts import Ports, Services
from orbitmq.broker.pop.attach import attach as pop
from orbitmq.broker.quotas.attach import attach as quotas
from orbitmq.broker.quotas.meter import Meter
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import Role, RoleState, role_of_setting
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.broker.storage import StoreLife, StoreTopics, made_now, store_config
from orbitmq.broker.timers.attach import attach as timers
from orbitmq.broker.timers.hook import TimerHook
from orbitmq.broker.to_master import ToMaster
from orbitmq.broker.transactions.attach import attach as transactions
from orbitmq.broker.writers.attach import attach as writers
from orbitmq.message import reserved
from orbitmq.message.ids import UniqueIds
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.server_tls import ServerTls
from orbitmq.store import MessageStore, StoreClosedError
from orbitmq.transport.seats import Seats
from orbitmq.wire.addresses import joined

# Services besides sending and pulling, in the order in which they start and in which their append hooks run.
# Pop is first: a message that a later service stores at its start may reuse the queue offset of a lost
# message that pop's tables still name.
FEATURES: Sequence[Extension] = (
    pop,
    transactions,
    delay_levels,
    timers,
    dead_letters,
    writers,
    quotas,
    access,
)


@dataclass(frozen=True, slots=True)
class Assembly:
    """An assembled broker: its parts, and its components in the order in which they start.

    Attributes:
        hand_overs: the extensions' work before a clean stop, in order.
    """

    services: Services
    components: Sequence[Component]
    hand_overs: Sequence[HandOver]


def assemble(
    runtime: Runtime,
    config: BrokerConfig,
    doors: Doors,
    address: tuple[str, int],
    change_role: ChangeRole,
    extensions: Sequence[Extension] = (),
) -> Assembly:
    """Assemble a broker without starting or reading anything. Its records name ``address``, an IP and a
    port."""
    port = address[1]
    services = _services(runtime, config, address, doors.tls, doors.seats)
    services_of_doors = ports(services)
    files = TableFiles(
        services.persistence, config.flush_offset_interval_ms / 1000, services.store.stop_as_crash
    )
    # Filled while features and extensions are attached.
    status: list[Status] = []
    figures_of_parts: list[Attached] = []
    unready: list[Unready] = []
    figures = _figures(services, doors, status)
    counted = CountedMetrics(services.counts, services.topics, figures_of_parts)
    readiness = Readiness(doors, services.role, services.store, services.registration, unready)
    shared = _components(services, doors, files, readiness, figures, counted)
    _connect(services)
    host = Host(services, services_of_doors, port, change_role)
    attached: list[Attachment] = []
    for attach in (*FEATURES, *extensions):
        attached.append(attach(host))
        host.offers.extend(attached[-1].offers)
    for each in attached:
        doors.takers.update(each.takers)
        if each.gate is not None:
            doors.close_with(each.gate)
        if each.audit is not None:
            doors.audit_with(each.audit)
        if each.meter is not None:
            services.events.subscribe(QuotasChanged, _measures(doors, each.meter))
        if each.figures is not None:
            figures_of_parts.append(each.figures)
        status.append(each.status)
        unready.append(each.unready)
    router = Router(
        [*families(services, services_of_doors, status), *(f for each in attached for f in each.families)]
    )
    for each in attached:
        router.replace(each.instead)
    router.wrap(
        ROLES.keys() & router.codes,
        AdminChanges(services.role, services.to_master, config.broker_name).around,
    )
    creations = CreationTimes(runtime.clock, services.counts, services.topics)
    router.wrap(TIMED, creations.around)
    router.wrap(CODES, SlaveTables(services.role).around)
    parts = [
        *shared,
        *(component for each in attached for component in each.components),
        Serving(doors, router, _fast_path(services, doors), services.events, port),
        services.registration,
    ]
    for part in parts:
        files.keep(part.tables())
    return Assembly(services, parts, [each.hand_over for each in attached if each.hand_over is not None])


def _measures(doors: Doors, meter: Meter) -> Callable[[QuotasChanged], None]:
    return lambda _event: doors.measure_with(meter)


def _figures(s: Services, doors: Doors, status: Sequence[Status]) -> Figures:
    return Figures(
        s.runtime,
        s.config,
        doors,
        s.role,
        s.store,
        s.topics,
        s.groups,
        s.clients,
        s.stats,
        s.long_polling,
        status,
    )


def _components(
    s: Services,
    doors: Doors,
    files: TableFiles,
    readiness: Readiness,
    figures: Figures,
    counted: CountedMetrics,
) -> list[Component]:
    """The components that start first, in that order; they stop last, in reverse order."""
    clock = s.runtime.clock
    return [
        BrokerMonitoring(
            s.runtime,
            s.config,
            s.events,
            readiness,
            figures,
            counted,
            Topics(clock, s.config, s.role, s.store, s.topics, s.groups, s.offsets, s.clients, s.stats),
        ),
        s.durability,
        NameServerWatch(s.runtime, s.config, s.events),
        s.name_servers,
        StoreLife(s.store, s.config, s.events),
        files,
        MetadataTables(s.topics, s.groups, s.offsets, s.locks),
        KeptAtOnce(s.events, s.persistence),
        StoreTopics(
            s.topics,
            s.store,
            s.events,
            s.levels,
            copies=role_of_setting(s.config.broker_role) is Role.SLAVE,
        ),
        Connections(doors, s.durability, s.store),
        s.clients,
        s.assignments,
        FilterTable(clock, s.events, s.feed),
        s.long_polling,
        s.stats,
    ]


def _services(
    runtime: Runtime, config: BrokerConfig, host: tuple[str, int], tls: ServerTls, seats: Seats
) -> Services:
    clock = runtime.clock
    address = joined(config.broker_ip1, host[1])
    events = Events()
    feed = ChangeFeed(lambda: store.end)
    counts = Counts(events)
    counters = Counters(clock, counts.bytes_out if config.metrics_exporter != "DISABLE" else None)
    role = RoleState(_first_role(config), clock.now_ms())
    levels = DelayLevels.parse(config.message_delay_level)
    store = MessageStore(
        runtime,
        store_config(config, host),
        codes={reserved.SCHEDULE_TOPIC: levels.delivery_code},
        on_arrival=events.messages_arrived,
    )
    durability = Durability(
        clock,
        [DiskGate(store.flusher, config)],
        partial(_end_written, store),
        counters.note_answered,
    )
    persistence = Persistence(runtime, f"{config.store_path_root_dir}/config", feed, events)
    topics = TopicConfigs(clock, config, feed, events, partial(made_now, store))
    groups = SubscriptionGroups(clock, config, feed, events)
    offsets = ConsumerOffsets(clock, feed, events, version_step=config.offset_version_step)
    metadata = MetadataAccess(config, topics, groups, persistence)
    clients = ClientManager(clock, events, expire_ms=config.channel_expired_ms)
    append = MessageAppend(role, store, durability, counters)
    modes = RequestModes(feed, events)
    name_servers = NameServers(runtime, config)
    return Services(
        runtime=runtime,
        config=config,
        address=address,
        events=events,
        feed=feed,
        role=role,
        store=store,
        durability=durability,
        persistence=persistence,
        topics=topics,
        groups=groups,
        offsets=offsets,
        metadata=metadata,
        clients=clients,
        modes=modes,
        assignments=Assignments(config, metadata, clients, RoutedQueues(config, topics, name_servers), modes),
        locks=QueueLocks(clock, feed, alone=_grants_locks_alone(config)),
        append=append,
        sink=DeliverySink(role, append, store),
        long_polling=LongPolling(clock, events, store.watch, limit=config.pull_queue_capacity),
        levels=levels,
        timer_hook=TimerHook(clock, config),
        counters=counters,
        counts=counts,
        stats=Stats(clock, events, store, offsets, config.broker_cluster_name, counters),
        name_servers=name_servers,
        registration=Registration(runtime, config, topics, address, events),
        to_master=ToMaster(),
        tls=tls,
        seats=seats,
    )


def _end_written(store: MessageStore) -> int:
    """The end of the log's files, after the messages put in this turn of the event loop are written."""
    with contextlib.suppress(StoreClosedError):
        store.write()
    return store.max_commit_log_offset


def _first_role(config: BrokerConfig) -> Role:
    """The role at the start: PRE_ONLINE if the broker has to catch up with others of its name (PO-01)."""
    return Role.PRE_ONLINE if config.starts_isolated else role_of_setting(config.broker_role)


def _grants_locks_alone(config: BrokerConfig) -> bool:
    """Whether this is the only broker of its name that grants queue locks: a master without acting
    masters."""
    return role_of_setting(config.broker_role) is Role.MASTER and not config.enable_slave_acting_master


def _connect(s: Services) -> None:
    """Subscribe the parts that do not subscribe to events by themselves."""
    s.store.flusher.attach(s.durability)
    subscribe = s.events.subscribe
    # Pulls are woken after the store has subscribed: a woken pull looks at the topic's queues in the store.
    subscribe(TopicChanged, lambda event: s.long_polling.wake_topic(event.topic))
    subscribe(TopicChanged, lambda event: s.registration.topic_changed(event.topic))

    def settings_changed(event: SettingsChanged) -> None:
        s.offsets.version_step = s.config.offset_version_step
        if "autoCreateTopicEnable" in event.keys:
            s.topics.add_system_topics()
        if "namesrvAddr" in event.keys:
            s.registration.name_servers_changed()
        if "brokerPermission" in event.keys:
            s.topics.touch()
            s.registration.all_changed()

    subscribe(SettingsChanged, settings_changed)


def _fast_path(s: Services, doors: Doors) -> FastPath:
    return FastPath(
        s.config,
        s.role,
        s.events,
        s.store,
        s.durability,
        s.topics,
        s.groups,
        s.offsets,
        s.metadata,
        s.long_polling,
        s.counters,
        s.runtime.host,
        doors.times,
        doors.resume,
    )


def ports(s: Services) -> Ports:
    """The services that these parts of a broker offer."""
    config, metadata, topics, groups, offsets = s.config, s.metadata, s.topics, s.groups, s.offsets
    clients, store = s.clients, s.store
    chance = s.runtime.random
    sending = Sending(
        config,
        metadata,
        topics,
        s.locks,
        s.append,
        UniqueIds(s.runtime),
        chance,
        s.counters,
        s.counts,
        s.registration,
    )
    filters = Filters(config)
    return Ports(
        sending=sending,
        reply=Reply(config, s.runtime.clock, clients, metadata, sending, s.address),
        filters=filters,
        pulling=Pulling(
            config,
            s.role,
            s.events,
            metadata,
            topics,
            offsets,
            clients,
            store,
            s.long_polling,
            s.counters,
            filters,
            s.runtime.host,
        ),
        send_back=SendBack(
            config,
            s.role,
            metadata,
            store,
            s.append,
            s.levels,
            s.timer_hook,
            chance,
            s.registration,
            s.counts,
        ),
        queue_offsets=QueueOffsets(metadata, topics, groups, offsets, store),
        group_reset=GroupReset(config, metadata, topics, groups, offsets, clients, store),
        lookup=MessageLookup(config, store),
    )


def families(s: Services, p: Ports, status: Sequence[Status] = ()) -> list[HandlerFamily]:
    """The broker's own request handlers, each with the services that it calls."""
    config, metadata, topics, groups, offsets = s.config, s.metadata, s.topics, s.groups, s.offsets
    clients, store = s.clients, s.store
    progress = ConsumeProgress(
        config, s.runtime.clock, metadata, topics, groups, offsets, clients, store, s.stats, s.address
    )
    info = RuntimeInfo(s.role, s.runtime, store, s.stats, s.long_polling, status)
    topic_administration = TopicAdministration(config, metadata, topics, offsets, s.registration)
    group_administration = GroupAdministration(metadata, groups, offsets)
    return [
        SendHandlers(config, p.sending),
        ReplyHandlers(config, p.reply),
        SendBackHandlers(p.send_back),
        PullHandlers(config, p.pulling),
        OffsetHandlers(offsets, p.queue_offsets, p.group_reset),
        QueueBoundHandlers(p.queue_offsets),
        ClientHandlers(
            Heartbeats(config, topics, groups, clients, s.registration), ClientListing(clients), p.filters
        ),
        QueueLockHandlers(s.locks, s.metadata),
        AssignmentHandlers(s.assignments),
        TopicHandlers(topic_administration),
        TopicTableHandlers(metadata, topics, offsets, clients),
        GroupHandlers(group_administration, groups),
        GroupTableHandlers(groups),
        GroupTopicHandlers(offsets, clients, s.address),
        QueryHandlers(p.lookup),
        ForwardHandlers(ConsumerRequests(config, topics, groups, clients, p.lookup)),
        InspectionHandlers(s.stats, QueueInspection(config, metadata, clients, store, s.stats)),
        ProgressHandlers(progress),
        OperationHandlers(config, topics, LiveSettings(config, s.runtime, s.events), info),
        CleaningHandlers(store),
    ]
