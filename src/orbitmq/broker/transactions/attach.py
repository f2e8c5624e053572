"""Adds transactions to a broker: their parts, request handlers and append hooks."""

from __future__ import annotations

from orbitmq.broker.events import CutAhead, LogCut
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.transactions import TransactionHandlers
from orbitmq.broker.transactions.acting import HalfEscape
from orbitmq.broker.transactions.ending import EndingTransactions
from orbitmq.broker.transactions.escaped import EscapedHalves
from orbitmq.broker.transactions.reading import HalfQueue
from orbitmq.broker.transactions.service import Transactions
from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.tasks import in_slices

# How many series are written before the event loop gets time for other work.
PER_TURN = 200


def attach(host: Host) -> Attachment:
    """Attach half messages, their ends and check-backs, also for a lost master."""
    s = host.services
    queue, escaped = HalfQueue(s.store, s.offsets), EscapedHalves(s.feed)
    transactions = Transactions(
        s.runtime.clock,
        s.config,
        s.store,
        s.append,
        s.metadata,
        queue,
        escaped,
        s.clients,
        s.store.config.store_host,
        s.role,
        s.counts,
    )
    ending = EndingTransactions(s.role, s.append, transactions, s.counters)
    s.append.hooks.append(transactions.prepare)

    def log_cut(_event: LogCut) -> None:
        escaped.cut(queue.end)
        queue.cut()
        transactions.log_cut()

    s.events.subscribe(CutAhead, lambda cut: queue.reopen(cut.end))
    s.events.subscribe(LogCut, log_cut)

    async def figures(text: Exposition) -> None:
        if not s.role.leads:
            return  # the master of this slave shows them
        family = text.family("rocketmq_half_messages", "gauge", "Transactions that have not ended")
        async for topic, number in in_slices(list(transactions.half_messages.items()), PER_TURN):
            family.add(number, topic=topic)

    return Attachment(
        components=[transactions, HalfEscape(s.runtime.clock, s.config, queue, s.sink, escaped)],
        families=[TransactionHandlers(host.ports.lookup, s.append, transactions, ending)],
        figures=figures,
        offers=[ending],
    )
