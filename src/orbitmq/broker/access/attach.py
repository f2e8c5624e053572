"""What users and rules add to a broker."""

from __future__ import annotations

from orbitmq.auth.access_requests import AccessRequests
from orbitmq.auth.gate import AuthGate
from orbitmq.broker.access.auditing import AuditLog, sights
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.component import Component
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.access import AccessHandlers
from orbitmq.settings.access import OBSERVE
from orbitmq.transport.audit import Audit


def attach(host: Host) -> Attachment:
    """Tables and audit log; with ``authenticationEnabled`` the gate and the handlers, too."""
    s = host.services
    access = BrokerAccess(s.config, s.feed, s.events, s.metadata.save)
    seen = sights(host, access)
    components: list[Component] = [access]
    audit: Audit | None = None
    if s.config.audit_place is not None:
        audit = Audit(s.runtime, s.config.audit_place, seen)
        components.append(AuditLog(audit))
    offers = [] if audit is None else [audit]
    if not s.config.authentication_enabled:
        return Attachment(components, audit=audit, offers=offers)
    gate = AuthGate(
        seen.asked,
        access.users,
        access.rules,
        authorizes=s.config.authorization_enabled,
        observes=lambda: s.config.auth_mode == OBSERVE,
    )
    return Attachment(
        components,
        [AccessHandlers(AccessRequests(access.users, access.rules, gate, access.written))],
        gate=gate,
        audit=audit,
        offers=[gate, access, *offers],
        status=lambda: {"authMode": s.config.auth_mode, **gate.refusals.lines()},
    )
