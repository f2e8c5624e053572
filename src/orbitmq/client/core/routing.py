"""Derives the queues for producers and for consumers from the name server's route of a topic.

Pure functions and frozen values: a route is never changed, only replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import whole_number
from orbitmq.message.reserved import MASTER_ID, PERM_READ, PERM_WRITE
from orbitmq.wire.bodies.route import QueueData, TopicRouteData


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """The share of one broker in a topic."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's route as clients use it.

    Attributes:
        topic: the requested topic, even if the route is that of the default topic.
        publish: writable queues of brokers with a master, by broker name, then queue id (RT-11, RT-12).
        subscribe: readable queues of all brokers (RT-13).
        addresses: broker name -> broker id -> ``host:port``.
        write_queues: broker name -> number of queues in ``publish``.
        brokers: every broker's share, whether usable or not; ``brokers`` and ``addresses`` decide equality
            (RT-15).
        from_default: the topic does not exist yet; this is the route of the broker's default topic (RT-02).
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    write_queues: Mapping[str, int]
    brokers: tuple[BrokerQueues, ...]
    order_conf: str = ""
    from_default: bool = False

    def master(self, broker_name: str) -> str | None:
        """Address of the broker's master, None if it has none at present."""
        return self.addresses.get(broker_name, {}).get(MASTER_ID)

    @property
    def masters(self) -> set[str]:
        """The addresses of all masters in the route."""
        return {members[MASTER_ID] for members in self.addresses.values() if MASTER_ID in members}

    @property
    def members(self) -> set[str]:
        """The addresses of all brokers, masters and slaves."""
        return {address for members in self.addresses.values() for address in members.values()}

    def reader(self, broker_name: str, broker_id: int = MASTER_ID) -> tuple[str, bool] | None:
        """Address to read from and whether it is a slave (row MO-04).

        The broker with the wanted id; if the route lacks it, another slave, else any replica.
        """
        members = self.addresses.get(broker_name)
        if not members:
            return None
        chosen = broker_id
        if chosen not in members and broker_id != MASTER_ID:
            chosen = broker_id + 1
        if chosen not in members:
            chosen = min(members)
        return members[chosen], chosen != MASTER_ID

    def same_as(self, other: TopicRoute | None) -> bool:
        """Whether two routes are the same for a client (RT-15: the order of brokers does not count)."""
        return (
            other is not None
            and self.brokers == other.brokers
            and self.addresses == other.addresses
            and self.order_conf == other.order_conf
            and self.from_default == other.from_default
        )


def topic_route(topic: str, data: TopicRouteData, *, default_queues: int | None = None) -> TopicRoute:
    """Build the client's view of a route.

    Args:
        topic: the requested topic.
        data: the name server's answer; left untouched.
        default_queues: set when ``data`` is the route of the default topic: both queue numbers become
            ``min(default_queues, read queues)`` (RT-03).
    """
    brokers = tuple(sorted((_share(entry, default_queues) for entry in data.queue_datas), key=_by_name))
    addresses = {entry.broker_name: dict(entry.broker_addrs) for entry in data.broker_datas}
    order_conf = data.order_topic_conf or ""
    if order_conf and default_queues is None:
        publish = _ordered_queues(topic, order_conf)
    else:
        publish = tuple(
            MessageQueue(topic, share.broker_name, queue_id)
            for share in brokers
            if share.perm & PERM_WRITE and MASTER_ID in addresses.get(share.broker_name, {})
            for queue_id in range(share.write_queues)
        )
    subscribe = tuple(
        MessageQueue(topic, share.broker_name, queue_id)
        for share in brokers
        if share.perm & PERM_READ
        for queue_id in range(share.read_queues)
    )
    write_queues: dict[str, int] = {}
    for queue in publish:
        write_queues[queue.broker_name] = write_queues.get(queue.broker_name, 0) + 1
    return TopicRoute(
        topic, publish, subscribe, addresses, write_queues, brokers, order_conf, default_queues is not None
    )


def _by_name(share: BrokerQueues) -> tuple[str, int, int, int]:
    return share.broker_name, share.read_queues, share.write_queues, share.perm


def _share(entry: QueueData, default_queues: int | None) -> BrokerQueues:
    if default_queues is None:
        return BrokerQueues(entry.broker_name, entry.read_queue_nums, entry.write_queue_nums, entry.perm)
    queues = min(default_queues, entry.read_queue_nums)
    return BrokerQueues(entry.broker_name, queues, queues, entry.perm)


# The most queues of an order configuration: a typing error in it must not fill the memory.
_MOST_QUEUES = 65_535


def _ordered_queues(topic: str, order_conf: str) -> tuple[MessageQueue, ...]:
    """``brokerA:4;brokerB:4`` in that order (RT-14). Parts that do not parse are left out."""
    queues: list[MessageQueue] = []
    for part in order_conf.split(";"):
        broker_name, _, count = part.partition(":")
        number = whole_number(count.strip(), _MOST_QUEUES)
        if broker_name and number is not None:
            queues += (MessageQueue(topic, broker_name, queue_id) for queue_id in range(number))
    return tuple(queues)
