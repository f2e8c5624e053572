"""Rules, which allow or deny users actions on topics and groups from some addresses, and their verdict."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# The most entries of a user: a verdict reads them all, which takes about a third of a millisecond.
MAX_ENTRIES: Final = 1_000
MAX_SOURCES: Final = 100
MAX_RESOURCE_CHARACTERS: Final = 300
USER: Final = "User:"
# The verdicts: the texts of RocketMQ's refusals, or empty.
ALLOWED: Final = ""
DENIED: Final = "the decision is deny."
UNMATCHED: Final = "no matched policies."

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
E = TypeVar("E", bound=StrEnum)


class ResourceKind(StrEnum):
    """The kinds of resources that rules are about."""

    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    """The actions that rules allow or deny."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class PolicyType(StrEnum):
    """The type of a policy. Default rules apply where no custom rule matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Decision(StrEnum):
    """Whether a rule allows or denies."""

    ALLOW = "Allow"
    DENY = "Deny"


class Pattern(StrEnum):
    """How a rule names its topics or groups. A more exact pattern takes precedence."""

    ANY = "any"
    PREFIX = "prefix"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class Asked:
    """A right that a request needs: one of ``actions`` on this topic, group or cluster."""

    kind: ResourceKind
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource that a rule is about.

    Attributes:
        kind: the kind of resource; ``None`` for every resource.
        name: the name, or its beginning; empty for any name.
    """

    kind: ResourceKind | None
    name: str
    pattern: Pattern

    @staticmethod
    def parse(text: str) -> Resource:
        """Read a resource such as ``Topic:orders``, ``Group:billing*``, ``Topic:*`` or ``*``.

        Raises:
            RemotingError: the text has none of these forms.
        """
        if text == "*":
            return Resource(None, "", Pattern.ANY)
        kind, colon, name = text.partition(":")
        if not colon or not name or len(text) > MAX_RESOURCE_CHARACTERS or "*" in name[:-1]:
            expected = "*, or Topic:, Group:, Cluster: or Namespace: and a name, prefix* or *"
            raise _invalid("resource", text, expected)
        found = one_of(ResourceKind, "resource", kind)
        if name == "*":
            return Resource(found, "", Pattern.ANY)
        if name.endswith("*"):
            return Resource(found, name[:-1], Pattern.PREFIX)
        return Resource(found, name, Pattern.LITERAL)

    def __str__(self) -> str:
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return star if self.kind is None else f"{self.kind}:{self.name}{star}"

    def covers(self, asked: Asked) -> bool:
        """Whether a rule about this resource applies to the right that a request needs."""
        if self.kind is None:
            return True
        if self.kind is not asked.kind:
            return False
        if self.pattern is Pattern.LITERAL:
            return asked.name == self.name
        return asked.name.startswith(self.name)

    @property
    def exactness(self) -> tuple[bool, int, int]:
        """The sort key of how exact the resource is: of several matching rules the most exact decides."""
        length = len(self.name) if self.pattern is Pattern.PREFIX else 0
        return self.kind is not None, list(Pattern).index(self.pattern), length


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One rule.

    Attributes:
        sources: the addresses for which the rule applies, as they were given; without any it applies for all.
    """

    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[str, ...]
    decision: Decision
    networks: tuple[Network, ...]

    def counts_for(self, asked: Asked, address: Address | None) -> bool:
        """Whether the rule applies to a request from this address that needs this right."""
        return (
            self.resource.covers(asked)
            and (Action.ALL in self.actions or any(action in self.actions for action in asked.actions))
            and (not self.networks or _within(address, self.networks))
        )

    def shown(self) -> PolicyEntryInfo:
        """The rule in the form of answers and of the table file."""
        return PolicyEntryInfo(
            str(self.resource), [str(action) for action in self.actions], list(self.sources) or None,
            str(self.decision),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Acl:
    """All rules of one user."""

    policies: Mapping[PolicyType, tuple[PolicyEntry, ...]]

    @staticmethod
    def of(info: AclInfo) -> Acl:
        """The rules of a request or a table file.

        Raises:
            RemotingError: a value is invalid; the remark names field, value and what was expected.
        """
        if not info.policies:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "policies is empty; expected one at least")
        found: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
        for policy in info.policies:
            kind = one_of(PolicyType, "policyType", policy.policy_type or PolicyType.CUSTOM)
            if not policy.entries:
                raise RemotingError(ResponseCode.INVALID_PARAMETER, "entries is empty; expected one at least")
            found[kind] = _merged(found.get(kind, ()), [_entry(entry) for entry in policy.entries])
        return Acl(found)

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Acl:
        """The rules of :meth:`plain`.

        Raises:
            ValueError: the data is not rules.
        """
        try:
            return Acl.of(AclInfo.from_json(plain))
        except RemotingError as error:
            raise ValueError(error.remark) from error

    def with_more(self, other: Acl) -> Acl:
        """These rules with the given ones added, which replace rules about the same resource."""
        kinds = dict.fromkeys((*self.policies, *other.policies))
        return Acl(
            {kind: _merged(self.policies.get(kind, ()), other.policies.get(kind, ())) for kind in kinds}
        )

    def without(self, kind: PolicyType, resource: Resource) -> Acl | None:
        """These rules without the ones of type ``kind`` for ``resource``; ``None`` if no rule is left."""
        left = tuple(entry for entry in self.policies.get(kind, ()) if entry.resource != resource)
        policies = {**self.policies, kind: left}
        kept = {each: entries for each, entries in policies.items() if entries}
        return Acl(kept) if kept else None

    @property
    def size(self) -> int:
        return sum(len(entries) for entries in self.policies.values())

    def shown(self, name: str, resource_filter: str = "") -> AclInfo:
        """The rules in the form of answers; with a filter, only those whose resource contains it."""
        return AclInfo(USER + name, self._policies(resource_filter))

    def plain(self) -> dict[str, Any]:
        """The rules in the form of the table file, which keeps them under the user's name."""
        return AclInfo(None, self._policies()).to_plain()

    def _policies(self, resource_filter: str = "") -> list[PolicyInfo]:
        policies = []
        for kind, entries in self.policies.items():
            kept = [entry.shown() for entry in entries if resource_filter in str(entry.resource)]
            if kept:
                policies.append(PolicyInfo(str(kind), kept))
        return policies

    def verdict(self, asked: Asked, address: Address | None) -> str:
        """The reason for which the request is refused, or ``ALLOWED`` if one of its actions is allowed.

        Custom rules take precedence over default ones, then more exact resources, then Deny.
        """
        found = [self._verdict(replace(asked, actions=(action,)), address) for action in asked.actions]
        return min(found, key=[ALLOWED, DENIED, UNMATCHED].index)

    def _verdict(self, asked: Asked, address: Address | None) -> str:
        _, entries = self.deciding(asked, address)
        if not entries:
            return UNMATCHED
        return DENIED if any(entry.decision is Decision.DENY for entry in entries) else ALLOWED

    def deciding(self, asked: Asked, address: Address | None) -> tuple[PolicyType, list[PolicyEntry]]:
        """The policy type and the most exact entries, which decide about a request; may be none."""
        for kind in PolicyType:
            entries = [entry for entry in self.policies.get(kind, ()) if entry.counts_for(asked, address)]
            if entries:
                best = max(entry.resource.exactness for entry in entries)
                return kind, [entry for entry in entries if entry.resource.exactness == best]
        return PolicyType.CUSTOM, []


NO_RULES: Final = Acl({})
TABLE: Final = "acls"


class Rules:
    """The rules of all users of one broker.

    Args:
        changed: called with a user's name and rules after each change; the rules are ``None`` when removed.
    """

    def __init__(self, changed: Callable[[str, Acl | None], object]) -> None:
        self._changed = changed
        self._acls: dict[str, Acl] = {}

    def of(self, name: str) -> Acl:
        """The rules of a user; ``NO_RULES``, which allow nothing, for a user without rules."""
        return self._acls.get(name, NO_RULES)

    def get(self, name: str) -> Acl | None:
        """The rules of a user; ``None`` without any."""
        return self._acls.get(name)

    def all(self) -> list[tuple[str, Acl]]:
        """The rules of all users, sorted by the users' names."""
        return sorted(self._acls.items())

    def add(self, name: str, more: Acl) -> None:
        """Add rules to a user, replacing its rules about the same resources.

        Raises:
            RemotingError: the user would have too many rules.
        """
        acl = self.of(name).with_more(more)
        if acl.size > MAX_ENTRIES:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"{USER}{name} would have {acl.size} entries, the limit is {MAX_ENTRIES}",
            )
        self.put(name, acl)

    def put(self, name: str, acl: Acl) -> None:
        """Set the rules of a user."""
        self._acls[name] = acl
        self._changed(name, acl)

    def remove(self, name: str) -> None:
        """Remove all rules of this user."""
        if self._acls.pop(name, None) is not None:
            self._changed(name, None)

    def load(self, acls: Iterable[tuple[str, Acl]]) -> None:
        """Add the rules read from a file."""
        self._acls.update(acls)


def user_of(subject: str | None) -> str:
    """The user that a subject such as ``User:app`` names.

    Raises:
        RemotingError: the text names no user.
    """
    kind, colon, name = (subject or "").partition(":")
    if not colon or not name or kind.lower() != "user":
        raise _invalid("subject", subject or "", "User: and a name")
    return name


def address_of(host: str) -> Address | None:
    """The address of a host, for the rules; ``None`` if the text is not an IP address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def one_of(kind: type[E], field_name: str, text: str) -> E:
    """The member of this name, in upper or lower case.

    Raises:
        RemotingError: there is no such member.
    """
    for member in kind:
        if member.lower() == text.lower():
            return member
    raise _invalid(field_name, text, f"one of {', '.join(kind)}")


def _entry(info: PolicyEntryInfo) -> PolicyEntry:
    sources = tuple(info.source_ips or ())
    if len(sources) > MAX_SOURCES:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"sourceIps has {len(sources)} addresses, the limit is {MAX_SOURCES}",
        )
    if not info.actions:
        raise _invalid("actions", "", f"one at least of {', '.join(Action)}")
    return PolicyEntry(
        Resource.parse(info.resource or ""),
        tuple(dict.fromkeys(one_of(Action, "actions", action) for action in info.actions)),
        sources,
        one_of(Decision, "decision", info.decision or ""),
        tuple(_network(source) for source in sources),
    )


def network_of(text: str) -> Network | None:
    """The network of a rule's source, which may be one address; ``None`` if the text is neither."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _network(text: str) -> Network:
    network = network_of(text)
    if network is None:
        raise _invalid("sourceIps", text, "an IP address, or a network as 10.0.0.0/8")
    return network


def _within(address: Address | None, networks: Iterable[Network]) -> bool:
    return address is not None and any(address in network for network in networks)


def _merged(before: Iterable[PolicyEntry], more: Iterable[PolicyEntry]) -> tuple[PolicyEntry, ...]:
    return tuple({entry.resource: entry for entry in (*before, *more)}.values())


def _invalid(field_name: str, value: str, expected: str) -> RemotingError:
    return RemotingError(
        ResponseCode.INVALID_PARAMETER, f"{field_name} is {value[:80]!r}; expected {expected}"
    )
