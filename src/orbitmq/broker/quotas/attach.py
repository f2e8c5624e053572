"""Quotas as a feature of a broker: handlers, table, gauges."""

from __future__ import annotations

from orbitmq.broker.events import ConnectionClosed
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.quotas import QuotaHandlers
from orbitmq.broker.quotas.buckets import Quotas
from orbitmq.broker.quotas.meter import Meter
from orbitmq.broker.quotas.table import QuotaTable


def attach(host: Host) -> Attachment:
    """Attach the table, its handlers, and the meter that the broker's doors use while there are quotas."""
    s = host.services
    quotas = Quotas()
    table = QuotaTable(s.runtime.clock, s.feed, s.events, s.metadata.save, quotas)
    meter = Meter(s.runtime.clock, quotas)
    s.events.subscribe(ConnectionClosed, lambda event: meter.gone(event.connection))
    return Attachment(
        [table], [QuotaHandlers(table)], figures=table.figures, meter=meter, offers=[meter, table]
    )
