"""Adds the redrive of dead letters to a broker."""

from __future__ import annotations

from orbitmq.broker.dead_letters.job import Tools
from orbitmq.broker.dead_letters.redrives import Redrives
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.dead_letters import DeadLetterHandlers


def attach(host: Host) -> Attachment:
    """Attach the jobs that send dead letters again."""
    s = host.services
    tools = Tools(s.runtime.clock, s.runtime.threads, s.role, s.store, s.append, s.topics)
    redrives = Redrives(tools, host.ports.filters, s.feed, s.events, s.metadata.save, s.config.broker_name)
    return Attachment(components=[redrives], families=[DeadLetterHandlers(redrives)])
