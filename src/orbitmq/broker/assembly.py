"""What a broker consists of: the only place that knows all parts.

A new service is its own folder and a line in :func:`components`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.clients.consumer_requests import ConsumerRequests
from orbitmq.broker.clients.filter_table import FilterTable
from orbitmq.broker.clients.heartbeats import Heartbeats
from orbitmq.broker.clients.listing import ClientListing
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.clients.topic_queues import TopicQueues
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.dead_letters.job import Tools
from orbitmq.broker.dead_letters.redrives import Redrives
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.delay.search import DeliverySearch
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.doors import Connections, Doors, Serving
from orbitmq.broker.durability import DiskGate, Durability
from orbitmq.broker.events import Events, SettingsChanged, TopicChanged
from orbitmq.broker.extension import Attachment, ChangeRole, Extension, HandOver, Host, Status
from orbitmq.broker.fast_path.driver import FastPath
from orbitmq.broker.handlers.assignment import AssignmentHandlers
from orbitmq.broker.handlers.base import Family
from orbitmq.broker.handlers.cleaning import CleaningHandlers
from orbitmq.broker.handlers.clients import ClientHandlers
from orbitmq.broker.handlers.copies import CopyHandlers
from orbitmq.broker.handlers.dead_letters import DeadLetterHandlers
from orbitmq.broker.handlers.forward import ForwardHandlers
from orbitmq.broker.handlers.group_tables import GroupTableHandlers
from orbitmq.broker.handlers.group_topics import GroupTopicHandlers
from orbitmq.broker.handlers.groups import GroupHandlers
from orbitmq.broker.handlers.inspection import InspectionHandlers
from orbitmq.broker.handlers.offsets import OffsetHandlers
from orbitmq.broker.handlers.operation import OperationHandlers
from orbitmq.broker.handlers.pop import PopHandlers
from orbitmq.broker.handlers.pop_ack import PopAckHandlers
from orbitmq.broker.handlers.pop_inspection import PopInspectionHandlers
from orbitmq.broker.handlers.pop_notices import PopNoticeHandlers
from orbitmq.broker.handlers.progress import ProgressHandlers
from orbitmq.broker.handlers.pull import PullHandlers
from orbitmq.broker.handlers.query import QueryHandlers
from orbitmq.broker.handlers.queue_bounds import QueueBoundHandlers
from orbitmq.broker.handlers.queue_locks import QueueLockHandlers
from orbitmq.broker.handlers.reply import ReplyHandlers
from orbitmq.broker.handlers.router import Router
from orbitmq.broker.handlers.send import SendHandlers
from orbitmq.broker.handlers.send_back import SendBackHandlers
from orbitmq.broker.handlers.timers import TimerHandlers
from orbitmq.broker.handlers.topic_tables import TopicTableHandlers
from orbitmq.broker.handlers.topics import TopicHandlers
from orbitmq.broker.handlers.transactions import TransactionHandlers
from orbitmq.broker.handlers.writers import WriterHandlers
from orbitmq.broker.inspection.messages import MessageLookup
from orbitmq.broker.inspection.progress import ConsumeProgress
from orbitmq.broker.inspection.queues import QueueInspection
from orbitmq.broker.inspection.runtime_info import RuntimeInfo
from orbitmq.broker.live_settings import LiveSettings
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.messaging.filters import Filters
from orbitmq.broker.messaging.group_reset import GroupReset
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.messaging.outlet import Outlet
from orbitmq.broker.messaging.pulling import Pulling
from orbitmq.broker.messaging.queue_offsets import QueueOffsets
from orbitmq.broker.messaging.reply import Reply
from orbitmq.broker.messaging.send_back import SendBack
from orbitmq.broker.messaging.sending import Sending
from orbitmq.broker.messaging.writers import Writers
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.administration import GroupAdministration, TopicAdministration
from orbitmq.broker.metadata.components import MetadataTables, TableFiles
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.parts import Ports, Services
from orbitmq.broker.pop.parts import pop_parts
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import Role, RoleState, role_of_setting
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.broker.storage import StoreLife, StoreTopics, store_config
from orbitmq.broker.timers.delivered import DeliveredTimers
from orbitmq.broker.timers.following import TimerFollower
from orbitmq.broker.timers.hook import TimerHook
from orbitmq.broker.timers.inspection import TimerInspection
from orbitmq.broker.timers.recall import Recall
from orbitmq.broker.timers.service import TimerService
from orbitmq.broker.transactions.acting import HalfEscape
from orbitmq.broker.transactions.escaped import EscapedHalves
from orbitmq.broker.transactions.reading import HalfQueue
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message import reserved
from orbitmq.message.ids import UniqueIds
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection


@dataclass(frozen=True, slots=True)
class Assembly:
    """A broker that was put together: its parts to look at, and those with a life in their order.

    Attributes:
        hand_overs: what extensions do before a clean stop, in order.
    """

    services: Services
    components: Sequence[Component]
    hand_overs: Sequence[HandOver]


def assemble(
    runtime: Runtime,
    config: BrokerConfig,
    doors: Doors,
    port: int,
    change_role: ChangeRole,
    extensions: Sequence[Extension] = (),
) -> Assembly:
    """Put a broker together that is reached at ``port``; nothing is started or read yet."""
    services = _parts(runtime, config, port)
    services_of_doors = ports(services)
    host = Host(services, services_of_doors, port, change_role)
    attached = [extension(host) for extension in extensions]
    parts = components(services, services_of_doors, doors, port, attached)
    _connect(services)
    return Assembly(services, parts, [each.hand_over for each in attached if each.hand_over is not None])


def components(
    s: Services, p: Ports, doors: Doors, port: int, attached: Sequence[Attachment] = ()
) -> list[Component]:
    """All parts with a life, in the order in which they start; they stop in the opposite one."""
    status = [each.status for each in attached]
    router = Router([*families(s, p, status), *(family for each in attached for family in each.families)])
    files = TableFiles(s.persistence, s.config.flush_offset_interval_ms / 1000)

    def connection_closed(connection: ServerConnection) -> None:
        s.clients.connection_closed(connection)
        s.writers.connection_closed(connection)

    parts = [
        s.durability,
        StoreLife(s.store, s.config, s.events),
        files,
        MetadataTables(s.topics, s.groups, s.offsets),
        StoreTopics(s.topics, s.store, s.events, s.schedule.levels),
        Connections(doors, s.durability, s.store),
        s.timers,
        s.timer_follower,
        s.schedule,
        s.transactions,
        s.half_escape,
        s.redrives,
        s.writers,
        s.clients,
        s.assignments,
        s.filter_table,
        s.long_polling,
        *s.pop.components,
        s.stats,
        *(component for each in attached for component in each.components),
        Serving(doors, router, _fast_path(s), connection_closed, port),
        s.registration,
    ]
    for part in parts:
        files.keep(part.tables())
    return parts


def _parts(runtime: Runtime, config: BrokerConfig, port: int) -> Services:
    clock = runtime.clock
    address = f"{config.broker_ip1}:{port}"
    events = Events()
    feed = ChangeFeed(lambda: store.end)
    counters = Counters(clock)
    role = RoleState(_first_role(config), clock.now_ms())
    levels = DelayLevels.parse(config.message_delay_level)
    store = MessageStore(
        runtime, store_config(config, port), codes={reserved.SCHEDULE_TOPIC: levels.delivery_code}
    )
    durability = Durability(clock, [DiskGate(store.flusher, config)], counters.note_answered)
    persistence = Persistence(runtime, f"{config.store_path_root_dir}/config", feed, events)
    topics = TopicConfigs(clock, config, feed, events)
    groups = SubscriptionGroups(clock, config, feed, events)
    offsets = ConsumerOffsets(clock, feed, events, version_step=config.offset_version_step)
    metadata = MetadataAccess(config, topics, groups, persistence)
    clients = ClientManager(clock, events, expire_ms=config.channel_expired_ms)
    append = MessageAppend(store, durability, counters)
    modes = RequestModes(feed)
    outlet = Outlet(role, append, store)
    delays = DelayProgress(clock, levels.highest, feed, config.delay_version_step)
    search = DeliverySearch(clock, runtime.threads, store, levels, delays)
    half_queue = HalfQueue(store, offsets)
    escaped = EscapedHalves(feed)
    host = (config.broker_ip1, port)
    transactions = Transactions(
        clock, config, store, append, metadata, half_queue, escaped, clients, host, role
    )
    timer_hook = TimerHook(clock, config)
    delivered = DeliveredTimers(runtime.threads, store)
    timers = TimerService(runtime, config, events, store, outlet, topics, feed, delivered)
    append.hooks += [transactions.prepare, levels.delayed, timer_hook.timed]
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
        filter_table=FilterTable(clock, events, feed),
        assignments=Assignments(config, metadata, clients, TopicQueues(runtime, config, topics), modes),
        locks=QueueLocks(clock, feed),
        append=append,
        outlet=outlet,
        delays=delays,
        long_polling=LongPolling(clock, events, store.watch, limit=config.pull_queue_capacity),
        schedule=ScheduleService(clock, events, store, outlet, topics, levels, delays, search),
        timer_hook=timer_hook,
        timers=timers,
        timer_follower=TimerFollower(clock, config, timers.pending, timers.written),
        transactions=transactions,
        half_escape=HalfEscape(clock, config, half_queue, outlet, escaped),
        redrives=Redrives(
            Tools(clock, runtime.threads, role, store, append, topics),
            Filters(config),
            feed,
            metadata.save,
            config.broker_name,
        ),
        writers=Writers(role, feed, metadata.save),
        pop=pop_parts(
            config,
            role,
            events,
            feed,
            store,
            metadata,
            topics,
            groups,
            offsets,
            modes,
            outlet,
            counters,
            runtime.random,
        ),
        counters=counters,
        stats=Stats(clock, events, store, offsets, config.broker_cluster_name, counters),
        registration=Registration(runtime, config, topics, address),
    )


def _first_role(config: BrokerConfig) -> Role:
    """Replication ends the isolation of a broker that has others of its name (PO-01)."""
    return Role.PRE_ONLINE if config.starts_isolated else role_of_setting(config.broker_role)


def _connect(s: Services) -> None:
    """Who hears of what, besides what parts subscribe to themselves."""
    s.store.flusher.attach(s.durability)
    s.store.on_arrival = s.events.messages_arrived
    subscribe = s.events.subscribe
    # Behind the store, which then has the topic's queues: a pull that is woken looks at them.
    subscribe(TopicChanged, lambda event: s.long_polling.wake_topic(event.topic))
    subscribe(TopicChanged, lambda event: s.pop.wake_topic(event.topic))
    subscribe(TopicChanged, lambda event: s.registration.topic_changed(event.topic))

    def settings_changed(event: SettingsChanged) -> None:
        s.offsets.version_step = s.config.offset_version_step
        s.delays.version_step = s.config.delay_version_step
        if "namesrvAddr" in event.keys:
            s.registration.name_servers_changed()
        if "brokerPermission" in event.keys:
            s.topics.touch()
            s.registration.all_changed()

    subscribe(SettingsChanged, settings_changed)


def _fast_path(s: Services) -> FastPath:
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
    )


def ports(s: Services) -> Ports:
    """The services of a broker that has these parts."""
    config, metadata, topics, groups, offsets = s.config, s.metadata, s.topics, s.groups, s.offsets
    clients, store = s.clients, s.store
    chance = s.runtime.random
    sending = Sending(
        config, s.role, metadata, topics, s.locks, s.append, UniqueIds(s.runtime), chance, s.counters
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
            groups,
            offsets,
            clients,
            store,
            s.long_polling,
            s.counters,
            filters,
            s.runtime.host,
        ),
        send_back=SendBack(
            config, s.role, metadata, store, s.append, s.schedule.levels, s.timer_hook, chance
        ),
        queue_offsets=QueueOffsets(metadata, topics, groups, offsets, store),
        group_reset=GroupReset(config, metadata, topics, groups, offsets, clients, store),
        lookup=MessageLookup(config, store),
        recall=Recall(s.runtime.clock, config, s.role, topics, s.append, s.timers),
    )


def families(s: Services, p: Ports, status: Sequence[Status] = ()) -> list[Family]:
    """The doors of a broker on the wire, each with the services that it calls."""
    config, metadata, topics, groups, offsets = s.config, s.metadata, s.topics, s.groups, s.offsets
    clients, store = s.clients, s.store
    progress = ConsumeProgress(
        config, s.runtime.clock, metadata, topics, groups, offsets, clients, store, s.stats, s.address
    )
    timers = TimerInspection(s.runtime.clock, topics, s.timers)
    more = [timers.state, *status]
    info = RuntimeInfo(s.role, s.runtime, store, s.stats, s.long_polling, s.schedule, more)
    topic_administration = TopicAdministration(config, metadata, topics, offsets, s.registration)
    group_administration = GroupAdministration(metadata, groups, offsets)
    return [
        SendHandlers(config, p.sending),
        ReplyHandlers(config, p.reply),
        TransactionHandlers(s.role, p.lookup, s.append, s.transactions, s.counters),
        SendBackHandlers(p.send_back),
        PullHandlers(config, p.pulling),
        PopHandlers(config, s.runtime.clock, s.pop.pops),
        PopAckHandlers(s.pop.settling),
        PopNoticeHandlers(s.runtime.clock, s.pop.pops),
        PopInspectionHandlers(s.pop.pops),
        OffsetHandlers(offsets, p.queue_offsets, p.group_reset),
        QueueBoundHandlers(p.queue_offsets),
        ClientHandlers(Heartbeats(config, topics, groups, clients), ClientListing(clients), p.filters),
        QueueLockHandlers(s.locks),
        AssignmentHandlers(s.assignments),
        DeadLetterHandlers(s.redrives),
        WriterHandlers(s.writers),
        TopicHandlers(topic_administration),
        TopicTableHandlers(metadata, topics, offsets, clients),
        GroupHandlers(group_administration, groups),
        GroupTableHandlers(groups),
        GroupTopicHandlers(offsets, clients, s.address),
        QueryHandlers(p.lookup),
        CopyHandlers(s.delays, s.assignments),
        TimerHandlers(config, p.recall, timers),
        ForwardHandlers(ConsumerRequests(config, topics, groups, clients, p.lookup)),
        InspectionHandlers(s.stats, QueueInspection(config, metadata, clients, store, s.stats)),
        ProgressHandlers(progress),
        OperationHandlers(config, topics, LiveSettings(config, s.runtime, s.events), info),
        CleaningHandlers(store),
    ]
