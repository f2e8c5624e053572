"""The parts of pop, put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events
from orbitmq.broker.messaging.outlet import Outlet
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.request_modes import RequestModes
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.hand_over import CheckPoints
from orbitmq.broker.pop.held_pops import HeldPops
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.pop.popping import Popping
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.pop.service import Pops
from orbitmq.broker.pop.settling import Settling
from orbitmq.broker.pop.state import PopState
from orbitmq.broker.role import RoleState
from orbitmq.broker.statistics import Counters
from orbitmq.store import MessageStore

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class PopParts:
    """What doors call, and what has a life."""

    pops: Pops
    settling: Settling
    state: PopState
    orders: OrderedPops
    held: HeldPops
    held_notices: HeldPops
    components: tuple[Component, ...]

    def wake_topic(self, topic: str) -> None:
        """Let all look who wait for this topic."""
        self.held.wake_topic(topic)
        self.held_notices.wake_topic(topic)


def pop_parts(
    config: BrokerConfig,
    role: RoleState,
    events: Events,
    feed: ChangeFeed,
    store: MessageStore,
    metadata: MetadataAccess,
    topics: TopicConfigs,
    groups: SubscriptionGroups,
    offsets: ConsumerOffsets,
    modes: RequestModes,
    outlet: Outlet,
    counters: Counters,
    chance: Random,
) -> PopParts:
    """Make them; nothing is started or read yet."""
    clock = counters.clock
    state, orders = PopState(feed, offsets), OrderedPops(feed)
    held = HeldPops("held pops", config, clock, events, store.watch)
    held_notices = HeldPops("held notices", config, clock, events, store.watch)
    popping = Popping(
        config, role, metadata, topics, groups, offsets, store, state.in_flight, orders, counters, chance
    )
    pops = Pops(config, clock, topics, store, popping, orders, held, held_notices)
    check_points = CheckPoints(config, clock, events, offsets, store, outlet, state)
    settling = Settling(config, role, clock, metadata, offsets, store, state.in_flight, orders)
    revive = PopRevive(
        config,
        clock,
        role,
        events,
        metadata,
        topics,
        groups,
        offsets,
        modes,
        store,
        outlet,
        state,
        orders,
        check_points,
    )
    settling.freed = pops.freed
    settling.early = check_points.early
    settling.save_soon = revive.save_soon
    revive.release = held.release
    return PopParts(pops, settling, state, orders, held, held_notices, (revive, held, held_notices))
