"""The named parts of a broker, and the services that its doors call."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.clients.filter_table import FilterTable
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.dead_letters.redrives import Redrives
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.broker.durability import Durability
from orbitmq.broker.events import Events
from orbitmq.broker.inspection.messages import MessageLookup
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
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.table_files import Persistence
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.parts import PopParts
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters, Stats
from orbitmq.broker.timers.following import TimerFollower
from orbitmq.broker.timers.hook import TimerHook
from orbitmq.broker.timers.recall import Recall
from orbitmq.broker.timers.service import TimerService
from orbitmq.broker.transactions.acting import HalfEscape
from orbitmq.broker.transactions.service import Transactions
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore


@dataclass(frozen=True, slots=True)
class Services:
    """The named parts of a broker, to look at: for programs that embed one, and for tests.

    No part gets this: each one's constructor names what it uses.
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
    filter_table: FilterTable
    assignments: Assignments
    locks: QueueLocks
    append: MessageAppend
    outlet: Outlet
    delays: DelayProgress
    long_polling: LongPolling
    schedule: ScheduleService
    timer_hook: TimerHook
    timers: TimerService
    timer_follower: TimerFollower
    transactions: Transactions
    half_escape: HalfEscape
    redrives: Redrives
    writers: Writers
    pop: PopParts
    counters: Counters
    stats: Stats
    registration: Registration


@dataclass(frozen=True, slots=True)
class Ports:
    """The services that doors call: the handlers of the wire, and whatever else takes requests.

    They know neither commands nor connections.
    """

    sending: Sending
    reply: Reply
    filters: Filters
    pulling: Pulling
    send_back: SendBack
    queue_offsets: QueueOffsets
    group_reset: GroupReset
    lookup: MessageLookup
    recall: Recall
