"""The named parts of a broker, and the services that its doors call."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.counts import Counts
from orbitmq.broker.delay.levels import DelayLevels
from orbitmq.broker.durability import Durability
from orbitmq.broker.events import Events
from orbitmq.broker.inspection.messages import MessageLookup
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
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.name_servers import NameServers
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.broker.timers.hook import TimerHook
from orbitmq.broker.to_master import ToMaster
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.server_tls import ServerTls
from orbitmq.store import MessageStore
from orbitmq.transport.seats import Seats


@dataclass(frozen=True, slots=True)
class Services:
    """Objects shared by several parts of a broker, by name; for the code that assembles parts, and tests.

    No part gets this object: each part's constructor names what it uses. Parts that work by themselves are
    not here, but are components of the broker (``Broker.part``).
    """

    runtime: Runtime
    config: BrokerConfig
    address: str
    events: Events
    feed: ChangeFeed
    role: RoleState
    store: MessageStore
    durability: Durability
    persistence: Persistence
    topics: TopicConfigs
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    metadata: MetadataAccess
    clients: ClientManager
    modes: RequestModes
    assignments: Assignments
    locks: QueueLocks
    append: MessageAppend
    sink: DeliverySink
    long_polling: LongPolling
    levels: DelayLevels
    timer_hook: TimerHook
    counters: Counters
    counts: Counts
    stats: Stats
    name_servers: NameServers
    registration: Registration
    to_master: ToMaster
    tls: ServerTls
    seats: Seats


@dataclass(frozen=True, slots=True)
class Ports:
    """The services that the doors call: the request handlers, and other doors that take requests.

    Services use neither commands nor connections.
    """

    sending: Sending
    reply: Reply
    filters: Filters
    pulling: Pulling
    send_back: SendBack
    queue_offsets: QueueOffsets
    group_reset: GroupReset
    lookup: MessageLookup
