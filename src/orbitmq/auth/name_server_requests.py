"""The table of the rights that each request to a name server needs.

Only super users may make a request whose code is not in the table. RocketMQ's name server has no such checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from orbitmq.auth.needs import (
    ACCESS,
    ANY,
    DELETE,
    GET,
    UPDATE,
    Needs,
    cluster_asked,
    named,
    of_cluster,
    of_topic,
    topic_asked,
    unusable,
)
from orbitmq.auth.rules import Action, Asked, ResourceKind
from orbitmq.message.reserved import is_system_topic
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

# The name of no cluster: only rules about all clusters allow a request that needs a right for it.
_NONE: Final = ""


@dataclass(frozen=True, slots=True)
class NameServerFacts:
    """The facts of the name server that the table needs.

    Attributes:
        names: returns the names of the clusters with registered brokers.
        cluster_of: the cluster of a broker name; ``None`` if no broker of that name is registered.
    """

    names: Callable[[], Iterable[str]]
    cluster_of: Callable[[str], str | None]

    @property
    def clusters(self) -> list[str]:
        """The clusters for requests that name none: all clusters."""
        return sorted(self.names()) or [_NONE]


def _route(command: Command, _place: object) -> Iterator[Asked]:
    """Any action on the topic. System topics, which all clients need, require no right."""
    name = command.ext.get("topic", "")
    if not name:
        raise unusable(command, "topic", "is missing", "a topic")
    if not is_system_topic(name):
        yield topic_asked(name, ANY)


def _of_broker(*actions: Action) -> Needs[NameServerFacts]:
    """The cluster that the request names, and the broker's present cluster, whose routes would change."""

    def needs(command: Command, place: NameServerFacts) -> Iterator[Asked]:
        name = command.ext.get("clusterName", "")
        if not name:
            raise unusable(command, "clusterName", "is missing", "a cluster")
        registered = place.cluster_of(command.ext.get("brokerName", ""))
        for each in dict.fromkeys((name, registered or name)):
            yield cluster_asked(each, actions)

    return needs


def _of_its_cluster(command: Command, place: NameServerFacts) -> Iterator[Asked]:
    """The cluster of a broker name; all clusters if no broker has this name."""
    found = place.cluster_of(command.ext.get("brokerName", ""))
    for name in place.clusters if found is None else [found]:
        yield cluster_asked(name, (UPDATE,))


REQUESTS: Final[dict[int, Needs[NameServerFacts]]] = {
    **ACCESS,
    # Brokers. QUERY_DATA_VERSION needs Update, as it counts as a heartbeat of the broker that it names.
    Code.REGISTER_BROKER: _of_broker(UPDATE),
    Code.UNREGISTER_BROKER: _of_broker(UPDATE),
    Code.BROKER_HEARTBEAT: _of_broker(UPDATE),
    Code.QUERY_DATA_VERSION: _of_broker(UPDATE),
    Code.GET_BROKER_MEMBER_GROUP: _of_broker(GET),
    Code.WIPE_WRITE_PERM_OF_BROKER: _of_its_cluster,
    Code.ADD_WRITE_PERM_OF_BROKER: _of_its_cluster,
    # Topics.
    Code.GET_ROUTEINFO_BY_TOPIC: _route,
    Code.DELETE_TOPIC_IN_NAMESRV: of_topic(DELETE),
    Code.REGISTER_TOPIC_IN_NAMESRV: of_cluster(UPDATE),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: of_cluster(GET),
    Code.GET_TOPICS_BY_CLUSTER: named(ResourceKind.CLUSTER, "cluster", GET),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: of_cluster(GET),
    Code.GET_UNIT_TOPIC_LIST: of_cluster(GET),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: of_cluster(GET),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: of_cluster(GET),
    # The name server itself.
    Code.GET_BROKER_CLUSTER_INFO: of_cluster(GET),
    Code.GET_BROKER_RUNTIME_INFO: of_cluster(GET),
    Code.PUT_KV_CONFIG: of_cluster(UPDATE),
    Code.DELETE_KV_CONFIG: of_cluster(UPDATE),
    Code.GET_KV_CONFIG: of_cluster(GET),
    Code.GET_KVLIST_BY_NAMESPACE: of_cluster(GET),
}
