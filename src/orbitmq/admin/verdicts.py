"""Whether rules permit a user's action, and which rule decides, by the same code as in the brokers. Pure
functions.
"""

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
    """The question to a user's rules.

    Raises:
        ValidationError: the action does not exist, or the resource has another form.
    """
    kind, _, name = resource.partition(":")
    if not name:
        raise ValidationError(f"resource {resource!r}: expected Topic:name, Group:name or Cluster:name")
    try:
        return Asked(one_of(ResourceKind, "resource", kind), name, (one_of(Action, "action", action),))
    except RemotingError as error:
        raise ValidationError(error.remark or str(error)) from error


def check_rule(resource: str, actions: Sequence[str], sources: Sequence[str]) -> None:
    """Refuse a rule that no broker takes.

    Raises:
        ValidationError: it names the value and what was expected.
    """
    entry = PolicyEntryInfo(resource, list(actions), list(sources), Decision.ALLOW)
    try:
        Acl.of(AclInfo(None, [PolicyInfo("Custom", [entry])]))
    except RemotingError as error:
        raise ValidationError(error.remark or str(error)) from error


def source_of(text: str) -> Address:
    """Parse the IP address of a client.

    Raises:
        ValidationError: the text is no IP address.
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
        name: the user's name; ``user``: the broker's entry of the user, ``None`` if it has none.
        rules: the rules of the user at this broker.
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
