"""Accounts of ACL 1.0, and the users and rules made from them.

A right for a topic or group replaces the account's default right, as in RocketMQ 4.x. The gate reads only
rules, so each account becomes one user with rules, mostly those that RocketMQ's AuthMigrator makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orbitmq.auth.needs import group_asked, topic_asked
from orbitmq.auth.rules import Acl, Action, Decision, Pattern, PolicyEntry, PolicyType, Resource, ResourceKind
from orbitmq.auth.users import User, UserType
from orbitmq.message.reserved import TRACE_TOPIC
from orbitmq.wire.signing import Secret

DENY: Final = "DENY"
_PUB: Final = (Action.PUB,)
# A 4.x consumer requests the end offsets of its queues, which needs Get for the topic.
_SUB: Final = (Action.SUB, Action.GET)
_ACTIONS: Final = {
    "PUB": _PUB,
    "SUB": _SUB,
    "PUB|SUB": _PUB + _SUB,
    "SUB|PUB": _PUB + _SUB,
    DENY: (),
}
RIGHTS: Final = tuple(_ACTIONS)
_TRACES: Final = Resource(ResourceKind.TOPIC, TRACE_TOPIC, Pattern.LITERAL)


@dataclass(frozen=True, slots=True)
class Account:
    """One account of a file.

    Attributes:
        line: the account's line in the file.
        white_address: the value of whiteRemoteAddress, which has no effect in OrbitMQ.
        default_topic, default_group: each is one of :data:`RIGHTS`; empty if the file has none.
        topics, groups: names, each with one of :data:`RIGHTS`, in the order of the file.
    """

    access_key: str
    secret: Secret
    line: int
    admin: bool = False
    white_address: str = ""
    default_topic: str = ""
    default_group: str = ""
    topics: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, str], ...] = ()

    def user(self) -> User:
        """The account's user; an admin becomes a super user."""
        return User(self.access_key, self.secret, UserType.SUPER if self.admin else UserType.NORMAL)

    def acl(self) -> Acl:
        """The account's rules, for a user that is not a super user."""
        rights = {ResourceKind.TOPIC: self.default_topic, ResourceKind.GROUP: self.default_group}
        custom = dict(self._named())
        narrowed = []
        for resource, actions in custom.items():
            assert resource.kind is not None
            # Actions that the custom rule does not name have to be denied: a wider default right would allow
            # them.
            wider = set(_ACTIONS[rights[resource.kind] or DENY]) - set(actions)
            if actions and wider:
                denied = tuple(action for action in Action if action in wider)
                narrowed.append(PolicyEntry(resource, denied, (), Decision.DENY, ()))
        defaults = [
            _entry(Resource(kind, "", Pattern.ANY), _ACTIONS[right])
            for kind, right in rights.items()
            if right
        ]
        # Each account may send traces, as in RocketMQ 4.x.
        traces = {_TRACES: _PUB} if _TRACES not in custom else {}
        named = [_entry(resource, actions) for resource, actions in (custom | traces).items()]
        return Acl({PolicyType.CUSTOM: tuple(named), PolicyType.DEFAULT: (*narrowed, *defaults)})

    def _named(self) -> Iterator[tuple[Resource, tuple[Action, ...]]]:
        for names, asked_of in ((self.topics, topic_asked), (self.groups, group_asked)):
            for name, right in names:
                asked = asked_of(name, ())
                yield Resource(asked.kind, asked.name, Pattern.LITERAL), _ACTIONS[right]


def _entry(resource: Resource, actions: tuple[Action, ...]) -> PolicyEntry:
    """The rule for the actions of a right; a right without actions, DENY, denies all."""
    if not actions:
        return PolicyEntry(resource, (Action.ALL,), (), Decision.DENY, ())
    return PolicyEntry(resource, actions, (), Decision.ALLOW, ())
