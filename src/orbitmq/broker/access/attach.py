"""Adds users, rules and the gate to a broker."""

from __future__ import annotations

from orbitmq.auth.access_requests import AccessRequests
from orbitmq.auth.gate import AuthGate
from orbitmq.auth.plain_requests import Place, PlainAclRequests
from orbitmq.broker.access.auditing import AuditLog, sights
from orbitmq.broker.access.plain_files import PlainAclFiles
from orbitmq.broker.access.tables import BrokerAccess
from orbitmq.broker.component import Component
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.handlers.access import AccessHandlers
from orbitmq.runtime.kept_secrets import KeptSecrets
from orbitmq.settings.access import OBSERVE
from orbitmq.transport.audit import Audit
from orbitmq.transport.private_answers import PrivateAnswers


def attach(host: Host) -> Attachment:
    """Attach tables and audit log, and if keys are required also the gate and the handlers."""
    s = host.services
    accounts = PlainAclFiles(s.runtime, s.config, s.events) if s.config.reads_accounts else None
    tables = BrokerAccess(
        s.runtime.clock,
        s.config,
        s.role,
        s.feed,
        s.events,
        s.metadata.save,
        KeptSecrets.of(s.runtime.files, s.config.auth_key_file),
        s.persistence.note_version,
        accounts,
    )
    components: list[Component] = [tables]
    source: BrokerAccess | PlainAclFiles = tables
    if accounts is not None and s.config.acl_enable:
        source = accounts
        components.append(accounts)
    seen = sights(host, source.users, source.rules)
    audit: Audit | None = None
    if s.config.audit_place is not None:
        audit = Audit(s.runtime, s.config.audit_place, seen)
        components.append(AuditLog(audit))
    offers = [] if audit is None else [audit]
    if not s.config.requires_keys:
        return Attachment(components, audit=audit, offers=offers)
    gate = AuthGate(
        seen.asked,
        source.users,
        source.rules,
        authorizes=s.config.authorization_enabled or s.config.acl_enable,
        observes=lambda: s.config.auth_mode == OBSERVE,
    )
    requests = AccessRequests(source.users, source.rules, gate, tables.written)
    by_code = requests.by_code
    if isinstance(source, PlainAclFiles):
        place = Place(s.config.broker_cluster_name, s.config.broker_name, s.address)
        of_accounts = PlainAclRequests(source, place, s.runtime.clock.now_ms)
        by_code = {**requests.looks, **of_accounts.by_code}
    return Attachment(
        components,
        [
            AccessHandlers(
                PrivateAnswers(
                    by_code,
                    requests.revealing if s.config.auth_reveal_passwords else {},
                    behind_proxies=bool(s.config.proxy_protocol_trusted),
                )
            )
        ],
        gate=gate,
        audit=audit,
        offers=[gate, source.users, *offers],
        status=lambda: {"authMode": s.config.auth_mode, **gate.refusals.lines()},
    )
