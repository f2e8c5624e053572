"""The rights that requests need: for the topics, groups and clusters that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, Protocol, TypeAlias, TypeVar

from orbitmq.auth.rules import Action, Asked, ResourceKind
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.errors import HeaderError

P = TypeVar("P")
ANY: Final = tuple(action for action in Action if action is not Action.ALL)

PUB, SUB, CREATE, UPDATE, DELETE, GET = (
    Action.PUB,
    Action.SUB,
    Action.CREATE,
    Action.UPDATE,
    Action.DELETE,
    Action.GET,
)


class Clusters(Protocol):
    """The clusters of a server, for requests that name none."""

    @property
    def clusters(self) -> Iterable[str]:
        """The names of the clusters, at least one."""
        ...


# Maps a request, and the state of its server, to the rights that the request needs.
Needs: TypeAlias = Callable[[Command, P], Iterable[Asked]]


def asked_of(rows: Mapping[int, Needs[P]], place: P) -> Callable[[Command], Iterable[Asked] | None]:
    """Returns a request's rights by these rows; ``None`` for another code, which needs a super user."""

    def asked(command: Command) -> Iterable[Asked] | None:
        needs = rows.get(command.code)
        return None if needs is None else needs(command, place)

    return asked


def topic_asked(name: str, actions: tuple[Action, ...]) -> Asked:
    """A right for a topic; for a group's retry topic it is a right for the group."""
    if name.startswith(RETRY_PREFIX):
        return Asked(ResourceKind.GROUP, name.removeprefix(RETRY_PREFIX), actions)
    return Asked(ResourceKind.TOPIC, name, actions)


def group_asked(name: str, actions: tuple[Action, ...]) -> Asked:
    """A right for a group, which may be named by its retry topic."""
    return Asked(ResourceKind.GROUP, name.removeprefix(RETRY_PREFIX), actions)


def cluster_asked(name: str, actions: tuple[Action, ...]) -> Asked:
    """A right for a cluster."""
    return Asked(ResourceKind.CLUSTER, name, actions)


_ASKED: Final = {
    ResourceKind.TOPIC: topic_asked,
    ResourceKind.GROUP: group_asked,
    ResourceKind.CLUSTER: cluster_asked,
}


def named(
    kind: ResourceKind, field: str, *actions: Action, split: str = "", may_miss: bool = False
) -> Needs[object]:
    """Rights for the topic, group or cluster in a header field, or for several separated by ``split``."""
    asked = _ASKED[kind]

    def needs(command: Command, _place: object) -> Iterator[Asked]:
        value = command.ext.get(field)
        if value:
            for name in value.split(split) if split else (value,):
                if name:
                    yield asked(name, actions)
        elif not may_miss:
            raise unusable(command, field, "is missing", f"a {kind.lower()}")

    return needs


def of_topic(*actions: Action, field: str = "topic", may_miss: bool = False) -> Needs[object]:
    """A right for the topic in a header field."""
    return named(ResourceKind.TOPIC, field, *actions, may_miss=may_miss)


def of_group(*actions: Action, field: str = "consumerGroup", may_miss: bool = False) -> Needs[object]:
    """A right for the group in a header field."""
    return named(ResourceKind.GROUP, field, *actions, may_miss=may_miss)


def all_of(*parts: Needs[P]) -> Needs[P]:
    """The rights of all parts together."""

    def needs(command: Command, place: P) -> Iterator[Asked]:
        return chain.from_iterable(part(command, place) for part in parts)

    return needs


def of_cluster(*actions: Action) -> Needs[Clusters]:
    """Rights for all clusters of the server."""
    return lambda _command, place: [cluster_asked(name, actions) for name in place.clusters]


def unusable(command: Command, field: str, what: str, expected: str) -> HeaderError:
    """The error for a header field that names no topic, group or cluster."""
    return HeaderError(f"request {command.code}: field '{field}' {what}; expected {expected}")


def identity(_command: Command, _place: object) -> Iterable[Asked]:
    """No rights: every known user may make the request."""
    return ()


# The requests about users and rules.
ACCESS: Final[dict[int, Needs[Clusters]]] = {
    Code.AUTH_CREATE_USER: of_cluster(UPDATE),
    Code.AUTH_UPDATE_USER: of_cluster(UPDATE),
    Code.AUTH_DELETE_USER: of_cluster(UPDATE),
    Code.AUTH_GET_USER: of_cluster(GET),
    Code.AUTH_LIST_USER: of_cluster(GET),
    Code.AUTH_CREATE_ACL: of_cluster(UPDATE),
    Code.AUTH_UPDATE_ACL: of_cluster(UPDATE),
    Code.AUTH_DELETE_ACL: of_cluster(UPDATE),
    Code.AUTH_GET_ACL: of_cluster(GET),
    Code.AUTH_LIST_ACL: of_cluster(GET),
}
# The requests about the accounts of ACL 1.0, for super users.
ACCOUNTS: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
    }
)
# Requests that are refused even while the gate observes.
ABOUT_USERS: Final = frozenset({*ACCESS, *ACCOUNTS})
