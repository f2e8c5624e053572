"""The bodies of requests and answers about users and access rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.wire.bodies.base import Body

__all__ = [
    "AclInfo",
    "PlainAccount",
    "PlainAccounts",
    "PolicyEntryInfo",
    "PolicyInfo",
    "UserInfo",
]


@dataclass(slots=True)
class UserInfo(Body):
    """A user, whose password ``repr`` does not show."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@dataclass(slots=True)
class PolicyEntryInfo(Body):
    """The actions that are allowed or denied on one resource."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclass(slots=True)
class PolicyInfo(Body):
    """Rules of one kind."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


@dataclass(slots=True)
class AclInfo(Body):
    """The rules of one subject, such as ``User:name``."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


@dataclass(slots=True)
class PlainAccount(Body):
    """An account of ACL 1.0, without its secret."""

    access_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


@dataclass(slots=True)
class PlainAccounts(Body):
    """All accounts of a broker with ACL 1.0."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccount] = field(default_factory=list)
