"""Which queues of a topic belong to which member of a consumer group.

Every member computes the same shares from the same sorted lists, without communication between members.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from orbitmq.message.model import MessageQueue
from orbitmq.message.sharing import Allocation, average, average_by_circle

__all__ = [
    "Allocation",
    "ByBroker",
    "average",
    "average_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "nearest_room",
]


def by_config(own: Sequence[MessageQueue]) -> Allocation:
    """A fixed list of queues, whatever the other members' queues are (AllocateMessageQueueByConfig)."""
    fixed = list(own)

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        existing = set(queues)
        return [queue for queue in fixed if queue in existing]

    return allocate


def consistent_hash(virtual_nodes: int = 10) -> Allocation:
    """Consistent hashing: few queues move when a member joins or leaves (AllocateMessageQueueConsistentHash,
    MD5 ring).
    """

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        ring = {
            _ring_hash(f"{member}-{replica}"): member
            for member in members
            for replica in range(virtual_nodes)
        }
        points = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            topic, broker_name, queue_id = queue
            text = f"MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]"
            return ring[points[bisect_left(points, _ring_hash(text)) % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]

    return allocate


@dataclass(frozen=True, slots=True)
class ByBroker:
    """The topic's broker divides the queues among the members (QUERY_ASSIGNMENT).

    The broker must be OrbitMQ or RocketMQ 5. It also decides whether the members pull or pop: an
    administrator may switch a group between pulling and popping while it consumes (``mqadmin
    setConsumeMode``). A consumer with ``ordered``, and a ``PullConsumer``, cannot pop: they get no queues
    until the group is switched back.

    Attributes:
        strategy: AVG gives each member neighbouring queues, AVG_BY_CIRCLE every n-th queue.
    """

    strategy: str = "AVG"


def by_machine_room(rooms: Collection[str]) -> Allocation:
    """Equal shares of the queues of brokers in these rooms; the remainder goes to the first members
    (AllocateMessageQueueByMachineRoom).

    A broker's room is the first part of its name: ``room@name``. Queues of brokers in other rooms go to no
    member.
    """
    wanted = frozenset(rooms)

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        here = [queue for queue in queues if _room_of(queue) in wanted]
        share, rest = divmod(len(here), len(members))
        index = members.index(client_id)
        own = here[index * share : (index + 1) * share]
        return own + ([here[share * len(members) + index]] if index < rest else [])

    return allocate


def nearest_room(
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
    share: Allocation = average,
) -> Allocation:
    """Queues go to members in the same room; queues of a room without members go to all
    (AllocateMachineRoomNearby).

    Args:
        room_of_queue, room_of_client: the room of a queue's broker, and of a client id. All members must give
            the same answers.
        share: how the members of a room share its queues.
    """

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_room.setdefault(_known(room_of_queue(queue), queue), []).append(queue)
        members_in: dict[str, list[str]] = {}
        for member in members:
            members_in.setdefault(_known(room_of_client(member), member), []).append(member)
        own_room = _known(room_of_client(client_id), client_id)
        own = share(client_id, by_room.pop(own_room, []), members_in.get(own_room, []))
        for room, others in sorted(by_room.items()):
            if room not in members_in:
                own += share(client_id, others, members)
        return own

    return allocate


def _room_of(queue: MessageQueue) -> str | None:
    room, at, name = queue.broker_name.partition("@")
    return room if at and "@" not in name else None


def _known(room: str, of: object) -> str:
    if not room:
        raise ValueError(f"no room is known of {of}")
    return room


def _ring_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])
