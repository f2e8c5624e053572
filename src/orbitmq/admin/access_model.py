"""Users, rules and refusals as the operations show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user of one broker, or of a name server that requires keys.

    Attributes:
        is_super: may do everything.
        is_enabled: is served.
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
        actions: such as ``Pub`` and ``Sub``.
        sources: addresses and networks for which it counts; empty: for all.
        allows: whether it allows, else it denies.
        is_default: counts where no other rule matches.
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
        user: the name that they gave; empty: none.
        why: in a few words.
        action: a right that would have been enough; empty: not a matter of rules.
        resource: as ``Topic:orders``; empty: not a matter of rules.
        address: where they came from.
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
    """Whether a broker, or a name server that requires keys, would let a user do something.

    Attributes:
        why: in a few words.
        rules: those that decide; empty: none fits, or it is no matter of rules.
    """

    broker_name: str
    allowed: bool
    why: str
    rules: Sequence[Rule] = ()
