"""Whether rules let a user do something, and which of them decides. The rules are the brokers' own. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.admin.access_model import Rule, UserEntry, Verdict
from orbitmq.auth.rules import (
    ALLOWED,
    UNMATCHED,
    Acl,
    Action,
    Address,
    Asked,
    Decision,
    ResourceKind,
    address_of,
    one_of,
)
from orbitmq.errors import ValidationError
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from orbitmq.wire.errors import RemotingError


def asked_of(action: str, resource: str) -> Asked:
    """The question to the rules of a user.

    Raises:
        ValidationError: there is no such action, or the resource has another form.
    """
    kind, _, name = resource.partition(":")
    if not name:
        raise ValidationError(f"resource {resource!r}: expected Topic:name, Group:name or Cluster:name")
    try:
        return Asked(one_of(ResourceKind, "resource", kind), name, (one_of(Action, "action", action),))
    except RemotingError as error:
        raise ValidationError(error.remark or str(error)) from error


def source_of(text: str) -> Address:
    """The address of the client.

    Raises:
        ValidationError: it is none.
    """
    address = address_of(text)
    if address is None:
        raise ValidationError(f"source {text!r}: expected an IP address")
    return address


def judged(
    broker: str, name: str, user: UserEntry | None, rules: Sequence[Rule], asked: Asked, source: Address
) -> Verdict:
    """The verdict of one broker.

    Args:
        name: of the user; ``user``: what the broker knows of it, ``None``: nothing.
        rules: those of the user at this broker.
    """
    if user is None:
        return Verdict(broker, False, f"there is no user {name}")
    if not user.is_enabled:
        return Verdict(broker, False, f"{name} is disabled")
    if user.is_super:
        return Verdict(broker, True, f"{name} is a super user")
    if not rules:
        return Verdict(broker, False, "no rules")
    acl = Acl.of(AclInfo(None, [PolicyInfo(_type(rule), [_entry(rule)]) for rule in rules]))
    kind, entries = acl.deciding(asked, source)
    if not entries:
        return Verdict(broker, False, UNMATCHED.rstrip("."))
    allowed = acl.verdict(asked, source) == ALLOWED
    found = {str(entry.resource) for entry in entries if (entry.decision is Decision.ALLOW) == allowed}
    deciding = [rule for rule in rules if rule.resource in found and _type(rule) == kind]
    word = "allowed" if allowed else "denied"
    return Verdict(broker, allowed, f"{word} by {' or '.join(rule.resource for rule in deciding)}", deciding)


def _type(rule: Rule) -> str:
    return "Default" if rule.is_default else "Custom"


def _entry(rule: Rule) -> PolicyEntryInfo:
    decision = "Allow" if rule.allows else "Deny"
    return PolicyEntryInfo(rule.resource, list(rule.actions), list(rule.sources), decision)
