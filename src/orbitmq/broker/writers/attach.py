"""Adds bound connections and fences of writers to a broker."""

from __future__ import annotations

from orbitmq.broker.events import ConnectionClosed
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.writers import WriterHandlers
from orbitmq.broker.writers.fences import Writers


def attach(host: Host) -> Attachment:
    """Attach bound connections and their fences."""
    s = host.services
    writers = Writers(s.role, s.feed, s.metadata.save)
    s.events.subscribe(ConnectionClosed, lambda event: writers.connection_closed(event.connection))
    return Attachment(components=[writers], families=[WriterHandlers(writers)])
