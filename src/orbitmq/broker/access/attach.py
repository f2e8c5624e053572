"""What users and rules add to a broker."""

from __future__ import annotations

from orbitmq.auth.access_requests import AccessRequests
from orbitmq.auth.gate import AuthGate
from orbitmq.auth.needs import asked_of
from orbitmq.auth.requests import REQUESTS, BrokerFacts
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.access.topics import topic_at
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.access import AccessHandlers
from orbitmq.settings.access import OBSERVE


def attach(host: Host) -> Attachment:
    """The tables; with ``authenticationEnabled`` the gate, and the handlers that change them."""
    s = host.services
    access = BrokerAccess(s.config, s.feed, s.events, s.metadata.save)
    if not s.config.authentication_enabled:
        return Attachment([access])
    gate = AuthGate(
        asked_of(
            REQUESTS, BrokerFacts(s.config.broker_cluster_name, lambda offset: topic_at(s.store, offset))
        ),
        access.users,
        access.rules,
        authorizes=s.config.authorization_enabled,
        observes=lambda: s.config.auth_mode == OBSERVE,
    )
    return Attachment(
        [access],
        [AccessHandlers(AccessRequests(access.users, access.rules, gate, access.written))],
        gate=gate,
        offers=[gate],
        status=lambda: {"authMode": s.config.auth_mode, **gate.refusals.lines()},
    )
