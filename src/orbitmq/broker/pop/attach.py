"""Adds pop to a broker: its parts, request handlers and tables."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.pop import PopAckHandlers, PopHandlers, PopInspectionHandlers, PopNoticeHandlers
from orbitmq.broker.pop.acknowledging import Acknowledging
from orbitmq.broker.pop.group_positions import GroupPositions
from orbitmq.broker.pop.hand_over import CheckPoints, marks
from orbitmq.broker.pop.held_pops import HeldPops
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.pop.popping import Popping
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.pop.service import Pops
from orbitmq.broker.pop.state import PopState
from orbitmq.monitoring.exposition import Exposition


def attach(host: Host) -> Attachment:
    """Attach dealing out, acknowledgement, redelivery, and requests that wait for messages."""
    s = host.services
    config, clock, events, store = s.config, s.runtime.clock, s.events, s.store
    role, metadata, topics, offsets = s.role, s.metadata, s.topics, s.offsets
    state = PopState(s.feed, offsets, partial(marks, config, store))
    in_flight, orders = state.in_flight, OrderedPops(s.feed)
    held = HeldPops("held pops", config, clock, events, store.watch)
    held_notices = HeldPops("held notices", config, clock, events, store.watch)
    popping = Popping(
        config, role, metadata, topics, offsets, store, in_flight, orders, s.counters, s.runtime.random
    )
    pops = Pops(config, clock, topics, store, popping, orders, held, held_notices)
    check_points = CheckPoints(config, clock, events, offsets, store, s.sink, state)
    positions = GroupPositions(events, topics, offsets, store, in_flight, orders)
    revive = PopRevive(
        config, clock, role, events, metadata, topics, s.groups, s.modes, store, s.sink, state, orders,
        check_points, positions, s.counts, held.release,
    )  # fmt: skip
    acknowledging = Acknowledging(
        config, role, clock, metadata, offsets, store, in_flight, orders,
        freed=pops.freed, early=check_points.early, save_soon=revive.save_soon,
    )  # fmt: skip

    async def figures(text: Exposition) -> None:
        family = text.family(
            "rocketmq_pop_checkpoint_buffer_size", "gauge", "Deliveries by pops with messages in flight"
        )
        family.add(in_flight.deliveries)

    return Attachment(
        components=[revive, held, held_notices],
        families=[
            PopHandlers(config, clock, pops),
            PopAckHandlers(acknowledging, s.to_master),
            PopNoticeHandlers(clock, pops),
            PopInspectionHandlers(pops),
        ],
        figures=figures,
        offers=[pops, acknowledging],
    )
