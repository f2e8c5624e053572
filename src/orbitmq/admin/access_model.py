"""Users, rules and refusals, as the operations return them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user of one broker, or of a name server that requires keys.

    Attributes:
        is_super: whether the user may do everything.
        is_enabled: whether the user's requests are served.
    """

    broker_name: str
    user: str
    is_super: bool
    is_enabled: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a user at one broker, or at a name server that requires keys.

    Attributes:
        resource: ``Topic:name``, ``Group:prefix*``, ``Cluster:name`` or ``*``.
        actions: the actions, such as ``Pub`` and ``Sub``.
        sources: addresses and networks from which the rule applies; empty: from all.
        allows: whether the rule allows, else it denies.
        is_default: whether the rule applies only if no other rule matches.
    """

    broker_name: str
    user: str
    resource: str
    actions: Sequence[str]
    sources: Sequence[str] = ()
    allows: bool = True
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class RefusalCount:
    """Requests that a server refused since its start, or would have refused (``authMode=observe``).

    Attributes:
        user: the user name in the requests; empty if they had none.
        why: the reason in a few words.
        action: a right that would have been enough; empty if rules were not the reason.
        resource: the resource, such as ``Topic:orders``; empty if rules were not the reason.
        address: the IP address of the client.
    """

    broker_name: str
    user: str
    why: str
    action: str
    resource: str
    address: str
    count: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a broker, or a name server that requires keys, would permit an action of a user.

    Attributes:
        why: the reason in a few words.
        rules: the rules that decide; empty if no rule applies, or rules are not the reason.
    """

    broker_name: str
    allowed: bool
    why: str
    rules: Sequence[Rule] = ()
